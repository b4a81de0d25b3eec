//! The local side of a relay: a TCP connection, or a flow through a proxy.

use bentpipe_flow::ResetCode;
use bentpipe_net::BufferSizes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::transport::FlowStream;

/// Local side of a relay.
pub trait Local: AsyncRead + AsyncWrite + Unpin {
    /// Sets the sizes of the buffers, if this side has any.
    fn size_buffers(&self, sizes: BufferSizes);

    /// Reason of a failed read or write.
    fn fault(&self) -> ResetCode;

    /// Breaks the connection off: its end is not a clean one.
    fn abort(&mut self);
}

impl Local for TcpStream {
    fn size_buffers(&self, sizes: BufferSizes) {
        bentpipe_net::size_buffers(self, sizes);
    }

    fn fault(&self) -> ResetCode {
        ResetCode::Aborted
    }

    fn abort(&mut self) {
        reset_on_close(self);
    }
}

/// A flow through a proxy, which has no next session: with the connection to the proxy it is over.
impl Local for Box<dyn FlowStream> {
    fn size_buffers(&self, _: BufferSizes) {}

    fn fault(&self) -> ResetCode {
        match self.reset_code() {
            None | Some(ResetCode::Lost) => ResetCode::Unreachable,
            Some(code) => code,
        }
    }

    fn abort(&mut self) {
        self.reset(ResetCode::Aborted);
    }
}

/// Makes a later close of `tcp` send a reset.
pub fn reset_on_close(tcp: &TcpStream) {
    // Fails only if the connection is already gone.
    let _ = tcp.set_zero_linger();
}
