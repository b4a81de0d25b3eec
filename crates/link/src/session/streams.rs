//! Calls of the owners of streams.

use std::time::Duration;

use bentpipe_flow::{Claim, ResetCode, Target};

use super::{OpenError, Session};
use crate::Class;
use crate::flow::{FlowRefusals, Read, Write};

impl Session {
    /// Opens a flow to `target` with as many of its first bytes as fit. Returns its number and the
    /// number of bytes accepted. The rest is written like any other bytes.
    pub fn open(
        &mut self,
        target: &Target,
        class: Class,
        passenger: u32,
        first: &[u8],
        now: Duration,
    ) -> Result<(u64, usize), OpenError> {
        let mut encoded = Vec::new();
        target.encode(&mut encoded)?;
        let limit = self.settings.max_flows.min(self.peer.max_flows) as usize;
        let flow = self
            .flows
            .open(encoded, class, passenger, now)
            .ok_or(OpenError::TooManyFlows(limit))?;
        let taken = match self.flows.write(flow, first, now) {
            Write::Taken(bytes) => bytes,
            _ => 0,
        };
        Ok((flow, taken))
    }

    /// Takes the counts of flows that limits refused or ended since the last call.
    pub(crate) fn take_flow_refusals(&mut self) -> FlowRefusals {
        self.flows.take_refusals()
    }

    /// Returns `true` if the peer has not acknowledged the opening of our stream `flow`.
    pub fn is_unopened(&self, flow: u64) -> bool {
        let reported = |lane, number| self.send.reliable[lane as usize].is_reported(number);
        self.flows.is_unopened(flow, reported)
    }

    /// Writes bytes to a flow.
    pub fn write(&mut self, flow: u64, data: &[u8], now: Duration) -> Write {
        self.flows.write(flow, data, now)
    }

    /// Reads bytes of a flow that are in order.
    pub fn read(&mut self, flow: u64, out: &mut [u8], now: Duration) -> Read {
        self.flows.read(flow, out, now)
    }

    /// Ends the sending direction of the flow after what was written.
    pub fn finish(&mut self, flow: u64) {
        self.flows.finish(flow);
    }

    /// Adds a class claim to the flow, which was just opened; the claim is sent with the opening.
    pub fn claim(&mut self, flow: u64, claim: Claim) {
        self.flows.claim(flow, claim);
    }

    /// Class claim of the peer for a flow that it opened.
    pub fn claim_of(&self, flow: u64) -> Option<&Claim> {
        self.flows.claim_of(flow)
    }

    /// Confirms the peer's claim: the flow has `class` from now on, at both ends.
    pub fn confirm(&mut self, flow: u64, class: Class, now: Duration) {
        self.flows.confirm(flow, class, now);
    }

    /// Moves what this end sends on the flow to `class`, if that is less favoured.
    pub fn demote(&mut self, flow: u64, class: Class, now: Duration) {
        self.flows.demote(flow, class, now);
    }

    /// Class that the peer has confirmed for the flow's claim.
    pub fn confirmed(&self, flow: u64) -> Option<Class> {
        self.flows.confirmed(flow)
    }

    /// Ends both directions of the flow at once.
    pub fn reset(&mut self, flow: u64, code: ResetCode) {
        self.flows.reset(flow, code);
    }

    /// Ends the receiving direction of the flow; the other direction goes on.
    pub fn stop_reading(&mut self, flow: u64, code: ResetCode) {
        self.flows.stop_reading(flow, code);
    }

    /// Drops the flow: what was finished is still sent, and anything else is reset.
    pub fn release(&mut self, flow: u64) {
        self.flows.release(flow);
    }
}
