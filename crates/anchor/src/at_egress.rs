//! A hub's flow to an egress. It tells the loss of the egress from the loss of a carrier.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bentpipe_flow::{Class, ResetCode};
use bentpipe_masque::{Client, Flow};
use bentpipe_transport::FlowStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A flow at an egress. If the connection to the egress is lost, the reason of its reset is
/// [`ResetCode::Unreachable`]: the air ends the flow and need not ask again.
pub struct AtEgress {
    flow: Flow,
    client: Client,
    /// Number of the connection.
    connection: Option<u64>,
}

impl AtEgress {
    /// Takes a flow on the `connection` of `client`.
    pub fn new(flow: Flow, client: Client, connection: Option<u64>) -> Self {
        Self { flow, client, connection }
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
            Some(ResetCode::Lost) if self.client.session() != self.connection => {
                Some(ResetCode::Unreachable)
            }
            code => code,
        }
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
