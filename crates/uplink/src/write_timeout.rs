//! A client's connection that fails if the client does not read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::flows::Grip;

/// A TCP connection on which a write fails if it blocks longer than the limit.
pub struct WriteTimeout {
    tcp: TcpStream,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    activity: Option<Arc<Grip>>,
}

impl WriteTimeout {
    /// Wraps `tcp`: a write fails if it is pending for longer than `limit`.
    pub fn new(tcp: TcpStream, limit: Duration) -> Self {
        Self { tcp, limit, waiting: None, activity: None }
    }

    /// Records activity in `activity`.
    pub fn noting(mut self, activity: Arc<Grip>) -> Self {
        self.activity = Some(activity);
        self
    }

    fn note<T>(&self, polled: &Poll<io::Result<T>>) {
        if let (Some(activity), Poll::Ready(Ok(_))) = (&self.activity, polled) {
            activity.touch();
        }
    }

    /// Returns the connection.
    pub fn into_inner(self) -> TcpStream {
        self.tcp
    }

    /// Returns `polled`, or an error if it has been pending for longer than the limit.
    fn guard<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        std::task::ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        self.note(&polled);
        polled
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        self.note(&polled);
        self.guard(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
