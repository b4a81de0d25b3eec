//! Bytes of a site's origin, at the ground, and their end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bentpipe_prefetch::wire::single::{End, put_said};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::outbox::Outbox;
use crate::far::FarStream;
use crate::relay::Local;

/// The most that is taken at once; what it came to waits until the flow has it, and nothing more is taken.
const MOST_BYTES: usize = 16 << 10;

/// Those bytes, as chunks.
pub struct Said {
    out: Outbox,
    has_ended: bool,
    is_cut: Arc<AtomicBool>,
}

impl Said {
    /// Nothing yet; its end is a clean one unless `is_cut` then.
    pub fn new(is_cut: Arc<AtomicBool>) -> Self {
        Self { out: Outbox::default(), has_ended: false, is_cut }
    }

    pub fn poll_write<S: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.out.poll_drain(cx, flow))?;
        let part = &bytes[..bytes.len().min(MOST_BYTES)];
        put_said(part, &mut self.out.bytes);
        // What it does not take now it takes before the next, or when it is flushed.
        match self.out.poll_drain(cx, flow) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(part.len())),
        }
    }

    pub fn poll_flush<S: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
    ) -> Poll<io::Result<()>> {
        self.out.poll_drain(cx, flow)
    }

    /// Gives `flow` all that was said, and how it ended.
    pub fn poll_end<S: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
    ) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.has_ended, true) {
            let end = if self.is_cut.load(Relaxed) { End::Cut } else { End::Whole };
            end.put(&mut self.out.bytes);
        }
        self.out.poll_drain(cx, flow)
    }
}

/// Ends `flow`, by which nothing was said, like that.
pub async fn end(flow: &mut dyn FarStream, end: End) -> io::Result<()> {
    let mut out = Vec::new();
    end.put(&mut out);
    flow.write_all(&out).await?;
    flow.shutdown().await
}

/// A connection to an origin, which ends cleanly however it ends; whether that was so is told beside it. A TLS
/// connection that ends without saying so is one that somebody may have cut. An origin that takes no more, as one that
/// has answered and closes, may still be read.
pub struct Cuts<L> {
    io: L,
    is_cut: Arc<AtomicBool>,
}

impl<L> Cuts<L> {
    /// Sets `is_cut` when `io` breaks.
    pub fn new(io: L, is_cut: Arc<AtomicBool>) -> Self {
        Self { io, is_cut }
    }
}

impl<L: Local> Local for Cuts<L> {
    fn tcp(&self) -> &TcpStream {
        self.io.tcp()
    }
}

impl<L: AsyncRead + Unpin> AsyncRead for Cuts<L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buffer));
        if let Err(error) = read {
            tracing::debug!(%error, "a site's origin broke off");
            self.is_cut.store(true, Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<L: AsyncWrite + Unpin> AsyncWrite for Cuts<L> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes));
        Poll::Ready(self.taken(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(cx));
        Poll::Ready(self.taken(flushed))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = ready!(Pin::new(&mut self.io).poll_shutdown(cx));
        Poll::Ready(self.taken(shut))
    }
}

impl<L> Cuts<L> {
    /// However it broke, what has come from the origin is still to be read, and then it may be all or not.
    fn taken<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            tracing::debug!(%error, "a site's origin takes no more");
            self.is_cut.store(true, Relaxed);
            io::ErrorKind::BrokenPipe.into()
        })
    }
}
