//! A stream or a flow of datagrams with a layer over it that changes some operations.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::{DatagramError, FlowDatagrams};

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

/// Changed operations of a flow of datagrams. The flow itself does what a layer does not change.
pub trait DatagramLayer: Send + Sync {
    /// Sends over `flow`.
    fn send(&self, flow: &dyn FlowDatagrams, datagram: &[u8]) -> Result<(), DatagramError> {
        flow.send(datagram)
    }

    /// Receives from `flow`.
    fn receive<'a>(
        &'a self,
        flow: &'a dyn FlowDatagrams,
    ) -> BoxFuture<'a, Result<Bytes, ResetCode>> {
        flow.receive()
    }
}

/// A flow of datagrams under a layer.
pub struct LayeredDatagrams<L> {
    flow: Box<dyn FlowDatagrams>,
    layer: L,
}

impl<L> LayeredDatagrams<L> {
    /// Puts `layer` over `flow`.
    pub fn new(flow: Box<dyn FlowDatagrams>, layer: L) -> Self {
        Self { flow, layer }
    }
}

impl<L: DatagramLayer> FlowDatagrams for LayeredDatagrams<L> {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        self.layer.send(&*self.flow, datagram)
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        self.layer.receive(&*self.flow)
    }

    fn max_bytes(&self) -> usize {
        self.flow.max_bytes()
    }

    fn provisioned_max_bytes(&self) -> usize {
        self.flow.provisioned_max_bytes()
    }

    fn keep_order(&self) {
        self.flow.keep_order();
    }

    fn reset(&self, code: ResetCode) {
        self.flow.reset(code);
    }

    fn connected(&self) {
        self.flow.connected();
    }
}
