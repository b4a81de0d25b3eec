//! A layer that records the activity of a flow in a table, which evicts the least active flow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Grip;
use crate::layer::{DatagramLayer, Layer, LayeredDatagrams};
use crate::transport::{Carried, DatagramError, FlowDatagrams, Incoming};

/// Layer that records the activity of a flow in its table entry.
pub struct Activity(pub Arc<Grip>);

/// Wraps the flow so that its datagrams record activity in `grip`. For streams, the relay does this
/// itself.
pub fn record_activity(mut incoming: Incoming, grip: &Arc<Grip>) -> Incoming {
    if let Carried::Datagrams { protocol, source, is_gateway, flow } = incoming.carries {
        let flow = Box::new(LayeredDatagrams::new(flow, Activity(grip.clone())));
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

impl DatagramLayer for Activity {
    fn send(&self, flow: &dyn FlowDatagrams, datagram: &[u8]) -> Result<(), DatagramError> {
        self.0.touch();
        flow.send(datagram)
    }

    fn receive<'a>(
        &'a self,
        flow: &'a dyn FlowDatagrams,
    ) -> BoxFuture<'a, Result<Bytes, ResetCode>> {
        Box::pin(async {
            let received = flow.receive().await;
            self.0.touch();
            received
        })
    }
}
