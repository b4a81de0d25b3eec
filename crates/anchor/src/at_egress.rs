//! A hub's flow to an egress. It tells the loss of the egress from the loss of a carrier.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bentpipe_flow::{Class, ResetCode};
use bentpipe_masque::{ConnectionWatch, Flow};
use bentpipe_net::BufferSizes;
use bentpipe_transport::{FlowStream, Standing};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A flow at an egress. If the egress is dead, the reason of its reset is
/// [`ResetCode::Unreachable`]: the air ends the flow and need not ask again. An egress that closes its
/// connection may hand its flows to the next process.
pub struct AtEgress {
    flow: Flow,
    connection: Option<ConnectionWatch>,
}

impl AtEgress {
    /// Takes a flow on `connection`.
    pub fn new(flow: Flow, connection: Option<ConnectionWatch>) -> Self {
        Self { flow, connection }
    }
}

impl FlowStream for AtEgress {
    fn reset(&mut self, code: ResetCode) {
        self.flow.reset(code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        self.flow.stop_reading(code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        match self.flow.reset_code() {
            Some(ResetCode::Lost) if self.connection.as_ref().is_some_and(|it| it.is_dead()) => {
                Some(ResetCode::Unreachable)
            }
            code => code,
        }
    }

    fn standing(&self) -> Standing {
        FlowStream::standing(&self.flow)
    }

    fn local_buffers(&self) -> BufferSizes {
        FlowStream::local_buffers(&self.flow)
    }

    fn demote(&mut self, class: Class) {
        FlowStream::demote(&mut self.flow, class);
    }

    fn class(&self) -> Option<Class> {
        FlowStream::class(&self.flow)
    }
}

impl AsyncRead for AtEgress {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.flow).poll_read(cx, buffer)
    }
}

impl AsyncWrite for AtEgress {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.flow).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.flow).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.flow).poll_shutdown(cx)
    }
}
