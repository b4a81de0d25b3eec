//! The fate of one connection.

use bentpipe_flow::ResetCode;
use quinn::ConnectionError::{Reset, TimedOut};

/// Observer of one connection, also after its end.
#[derive(Clone)]
pub struct ConnectionWatch(pub(crate) quinn::Connection);

impl ConnectionWatch {
    /// Returns `true` if the connection is lost because the server is silent or has forgotten it,
    /// instead of closed.
    pub fn is_dead(&self) -> bool {
        matches!(self.0.close_reason(), Some(Reset | TimedOut))
    }

    /// Reason for the end of a flow that ended with `code`: [`ResetCode::Unreachable`] if it was lost
    /// because the server is dead. A server that closes its connection may hand its flows to the next
    /// process.
    pub fn cause(&self, code: ResetCode) -> ResetCode {
        match code {
            ResetCode::Lost if self.is_dead() => ResetCode::Unreachable,
            code => code,
        }
    }
}
