//! Calls of the owners of datagram flows.

use std::time::Duration;

use bentpipe_flow::OpenDatagrams;

use super::{OpenError, Session};
use crate::flow::{Receive, SendError};
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame::{self, REPAIR_EXTRA_BYTES};

/// Maximum length of a symbol number: a million symbols a second for a year are 2^45.
const SYMBOL_NUMBER_BYTES: usize = 7;

impl Session {
    /// Opens a flow of datagrams. Returns its number.
    pub fn open_datagrams(
        &mut self,
        open: &OpenDatagrams,
        now: Duration,
    ) -> Result<u64, OpenError> {
        let max = self.flows.max_datagram_flows();
        self.flows.open_datagrams(open, now)?.ok_or(OpenError::TooManyFlows(max))
    }

    /// Queues a datagram. It is sent in the flow's turn, unless it expires before.
    pub fn send_datagram(
        &mut self,
        flow: u64,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), SendError> {
        let max = self.max_datagram_bytes(flow);
        self.flows.send_datagram(flow, payload, max, now)
    }

    /// Takes the oldest received datagram of the flow.
    pub fn receive_datagram(&mut self, flow: u64, now: Duration) -> Receive {
        self.flows.receive_datagram(flow, now)
    }

    /// Delivers received datagrams of the flow in the order in which they were sent. A datagram
    /// after a gap waits for the retransmission of the missing one, and no longer. The operator's
    /// and the network's classes ignore this, because calls prefer a loss to a delay.
    pub fn keep_order(&mut self, flow: u64) {
        self.flows.keep_order(flow);
    }

    /// Largest payload of the flow's datagrams now: the datagram and a repair of it each fit into
    /// one packet of the path.
    pub fn max_datagram_bytes(&self, flow: u64) -> usize {
        self.path.max_plaintext() - overhead(flow)
    }

    /// Largest payload after the first MTU search, if the path carries the provisioned maximum.
    /// Equal to [`Self::max_datagram_bytes`] after that search.
    pub fn provisioned_datagram_bytes(&self, flow: u64) -> usize {
        self.path.provisioned_plaintext() - overhead(flow)
    }
}

/// Bytes of a packet's plaintext that are not payload, for a datagram or a repair of it.
fn overhead(flow: u64) -> usize {
    1 + SYMBOL_NUMBER_BYTES + REPAIR_EXTRA_BYTES + frame::datagram_head_len(flow)
}

const _: () = assert!(SYMBOL_NUMBER_BYTES <= MAX_VARINT_BYTES);
