//! A stream with a layer over it that changes some operations.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Changed operations of a stream. The stream itself does what a layer does not change.
pub trait Layer {
    /// Reads from `io`.
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(io).poll_read(cx, buffer)
    }

    /// Writes to `io`.
    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(io).poll_write(cx, bytes)
    }

    /// Flushes `io`.
    fn poll_flush<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(io).poll_flush(cx)
    }
}

/// A stream under a layer.
pub struct Layered<T, L> {
    io: T,
    layer: L,
}

impl<T, L> Layered<T, L> {
    /// Puts `layer` over `io`.
    pub const fn new(io: T, layer: L) -> Self {
        Self { io, layer }
    }

    /// Returns the stream and the layer.
    pub fn into_parts(self) -> (T, L) {
        (self.io, self.layer)
    }
}

impl<T: AsyncRead + Unpin, L: Layer + Unpin> AsyncRead for Layered<T, L> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, layer } = self.get_mut();
        layer.poll_read(io, cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin, L: Layer + Unpin> AsyncWrite for Layered<T, L> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { io, layer } = self.get_mut();
        layer.poll_write(io, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, layer } = self.get_mut();
        layer.poll_flush(io, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
