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
use crate::layer::Layer;
use crate::transport::{Carried, DatagramError, FlowDatagrams, Incoming};

/// Layer that records the activity of a stream in its table entry.
pub struct Activity(pub Arc<Grip>);

/// A flow of datagrams and its table entry.
struct NotedDatagrams {
    flow: Box<dyn FlowDatagrams>,
    grip: Arc<Grip>,
}

/// Wraps the flow so that its datagrams record activity in `grip`. For streams, the relay does this
/// itself.
pub fn noted(mut incoming: Incoming, grip: &Arc<Grip>) -> Incoming {
    if let Carried::Datagrams { protocol, source, is_gateway, flow } = incoming.carries {
        let flow = Box::new(NotedDatagrams { flow, grip: grip.clone() });
        incoming.carries = Carried::Datagrams { protocol, source, is_gateway, flow };
    }
    incoming
}

impl Activity {
    fn note<R>(&self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Ok(_)) = &polled {
            self.0.touch();
        }
        polled
    }
}

impl Layer for Activity {
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.note(Pin::new(io).poll_read(cx, buffer))
    }

    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note(Pin::new(io).poll_write(cx, bytes))
    }
}

impl FlowDatagrams for NotedDatagrams {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        self.grip.touch();
        self.flow.send(datagram)
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(async {
            let received = self.flow.receive().await;
            self.grip.touch();
            received
        })
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
