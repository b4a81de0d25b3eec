//! A flow of the link that records its activity in a table, which evicts the least active flow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Grip;
use crate::transport::{Carried, DatagramError, FlowDatagrams, Incoming};

/// A flow and its table entry.
pub struct Noted<T> {
    io: T,
    grip: Arc<Grip>,
}

/// Wraps the flow so that its datagrams record activity in `grip`. For streams, the relay does this
/// itself.
pub fn noted(mut incoming: Incoming, grip: &Arc<Grip>) -> Incoming {
    if let Carried::Datagrams { protocol, source, is_gateway, flow } = incoming.carries {
        let flow = Box::new(Noted::new(flow, grip.clone()));
        incoming.carries = Carried::Datagrams { protocol, source, is_gateway, flow };
    }
    incoming
}

impl<T> Noted<T> {
    /// Wraps `io` so that its activity is recorded in `grip`.
    pub fn new(io: T, grip: Arc<Grip>) -> Self {
        Self { io, grip }
    }

    fn note<R>(&self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Ok(_)) = &polled {
            self.grip.touch();
        }
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.note(polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl FlowDatagrams for Noted<Box<dyn FlowDatagrams>> {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        self.grip.touch();
        self.io.send(datagram)
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(async {
            let received = self.io.receive().await;
            self.grip.touch();
            received
        })
    }

    fn max_bytes(&self) -> usize {
        self.io.max_bytes()
    }

    fn provisioned_max_bytes(&self) -> usize {
        self.io.provisioned_max_bytes()
    }

    fn keep_order(&self) {
        self.io.keep_order();
    }

    fn reset(&self, code: ResetCode) {
        self.io.reset(code);
    }

    fn connected(&self) {
        self.io.connected();
    }
}
