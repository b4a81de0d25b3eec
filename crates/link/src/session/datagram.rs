//! Flows of datagrams, seen from their owners.

use std::time::Duration;

use super::{OpenError, Session};
use crate::flow::{Receive, SendError};
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame::{self, OpenDatagrams, REPAIR_EXTRA_BYTES};

/// The symbol numbers that a session can come to take no more bytes than this: a million a second
/// for a year is 2^45.
const SYMBOL_NUMBER_BYTES: usize = 7;

impl Session {
    /// Opens a flow of datagrams; returns its number.
    pub fn open_datagrams(
        &mut self,
        open: &OpenDatagrams,
        now: Duration,
    ) -> Result<u64, OpenError> {
        let most = self.flows.most_datagram_flows();
        self.flows.open_datagrams(open, now)?.ok_or(OpenError::TooManyFlows(most))
    }

    /// Hands a datagram to its flow. It leaves when its turn comes, if that is soon enough for it.
    pub fn send_datagram(
        &mut self,
        flow: u64,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), SendError> {
        let most = self.max_datagram_bytes(flow);
        self.flows.send_datagram(flow, payload, most, now)
    }

    /// The oldest datagram of the flow that came.
    pub fn receive_datagram(&mut self, flow: u64, now: Duration) -> Receive {
        self.flows.receive_datagram(flow, now)
    }

    /// From now on what comes for the flow is passed on in the order in which it left: what comes after
    /// something that is missing waits for it as long as it takes to come again, and no longer. It has
    /// no effect on the operator's and the network's classes, where late is lost.
    pub fn keep_order(&mut self, flow: u64) {
        self.flows.keep_order(flow);
    }

    /// The longest payload that a datagram of the flow may have now: it fits into one packet of the
    /// path, and so does a repair of it.
    pub fn max_datagram_bytes(&self, flow: u64) -> usize {
        self.path.most_plaintext() - heads(flow)
    }

    /// The same as soon as the path has shown that it carries what it is provisioned for; equal to
    /// [`Self::max_datagram_bytes`] once it has, or has shown that it does not.
    pub fn hoped_datagram_bytes(&self, flow: u64) -> usize {
        self.path.hoped_plaintext() - heads(flow)
    }
}

/// Overhead in a packet's plaintext: bytes that are not payload of a datagram, or of a repair of
/// it.
fn heads(flow: u64) -> usize {
    1 + SYMBOL_NUMBER_BYTES + REPAIR_EXTRA_BYTES + frame::datagram_head_len(flow)
}

const _: () = assert!(SYMBOL_NUMBER_BYTES <= MAX_VARINT_BYTES);
