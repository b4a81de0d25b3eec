//! Openings of our streams, until the peer acknowledges them.

use super::FlowTable;
use crate::lane::Lane;

impl FlowTable {
    /// Notes that the symbol that was filled last is `symbol`.
    pub fn sent_as(&mut self, symbol: (Lane, u64)) {
        for id in self.openings.drain(..) {
            if let Some(flow) = self.flows.get_mut(id) {
                flow.state_mut().opened_by = Some(symbol);
            }
        }
    }

    /// Returns `true` if the stream waits for its opening: it has not been sent, or `is_reported`
    /// returns `false` for its symbol.
    pub fn is_unopened(&self, id: u64, is_reported: impl FnOnce(Lane, u64) -> bool) -> bool {
        let Some(stream) = self.flows.stream(id) else { return false };
        match stream.state.opened_by {
            Some((lane, number)) => !is_reported(lane, number),
            None => stream.state.control.open.is_some(),
        }
    }
}
