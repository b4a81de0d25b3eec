//! The cabin's end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bentpipe_prefetch::wire::single::HeadPacker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::counters::Counters;

/// The most that is taken at once; what it came to waits until the flow has it, and nothing more is taken.
const MOST_BYTES: usize = 16 << 10;

/// A flow whose uplink is packed, or one that is left as it is.
pub struct Packed<S> {
    flow: S,
    packing: Option<Box<Packing>>,
}

struct Packing {
    packer: HeadPacker,
    /// The opening, before anything is written; then what the flow has not taken yet.
    out: Vec<u8>,
    sent: usize,
    has_begun: bool,
    /// Heads that were packed and have not been answered, and by how many bytes they are shorter.
    unanswered: (u64, u64),
    counters: Arc<Counters>,
}

impl<S> Packed<S> {
    /// `flow`, which leads to the ground's half and begins with `opening`.
    pub fn new(flow: S, opening: Vec<u8>, counters: Arc<Counters>) -> Self {
        let packer = HeadPacker::default();
        let (sent, has_begun, unanswered) = Default::default();
        let packing = Packing { packer, out: opening, sent, has_begun, unanswered, counters };
        Self { flow, packing: Some(Box::new(packing)) }
    }

    /// `flow` as it is.
    pub fn plain(flow: S) -> Self {
        Self { flow, packing: None }
    }
}

impl Packing {
    fn push(&mut self, bytes: &[u8]) {
        self.has_begun = true;
        self.packer.push(bytes, &mut self.out);
        let (heads, saved_bytes) = self.packer.take_saved();
        self.unanswered.0 += heads;
        self.unanswered.1 += saved_bytes;
    }

    /// Something has come back: what was refused, and crosses once more, is not counted.
    fn answered(&mut self) {
        let (heads, saved_bytes) = std::mem::take(&mut self.unanswered);
        self.counters.http_heads_packed.add(heads);
        self.counters.http_head_bytes_saved.add(saved_bytes);
    }

    /// Gives `flow` what waits for it.
    fn poll_drain<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
    ) -> Poll<io::Result<()>> {
        while self.has_begun && self.sent < self.out.len() {
            let count = ready!(Pin::new(&mut *flow).poll_write(cx, &self.out[self.sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        if self.has_begun {
            // An idle flow holds nothing.
            (self.out, self.sent) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Packed<S> {
    /// Gives the flow all that was written, a head that is cut short among it.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(packing) = &mut self.packing else { return Poll::Ready(Ok(())) };
        packing.packer.flush(&mut packing.out);
        packing.poll_drain(cx, &mut self.flow)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Packed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before_bytes = buffer.filled().len();
        let polled = Pin::new(&mut this.flow).poll_read(cx, buffer);
        if let Some(packing) =
            this.packing.as_mut().filter(|_| buffer.filled().len() > before_bytes)
        {
            packing.answered();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Packed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(packing) = &mut this.packing else {
            return Pin::new(&mut this.flow).poll_write(cx, bytes);
        };
        ready!(packing.poll_drain(cx, &mut this.flow))?;
        let part = &bytes[..bytes.len().min(MOST_BYTES)];
        if !part.is_empty() {
            packing.push(part);
        }
        // What it does not take now it takes before the next, or when it is flushed.
        match packing.poll_drain(cx, &mut this.flow) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(part.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_all(cx))?;
        Pin::new(&mut this.flow).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_all(cx))?;
        Pin::new(&mut this.flow).poll_shutdown(cx)
    }
}
