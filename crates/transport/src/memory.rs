//! A flow in memory, to a peer in the same process: for tests and benches.

use bentpipe_flow::ResetCode;
use tokio::io::DuplexStream;

use crate::FlowStream;

/// It ends by being dropped alone, so that the peer never sees a reason.
impl FlowStream for DuplexStream {
    fn reset(&mut self, _code: ResetCode) {}

    fn stop_reading(&mut self, _code: ResetCode) {}

    fn reset_code(&self) -> Option<ResetCode> {
        None
    }
}
