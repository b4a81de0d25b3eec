//! Control frames that wait for the next urgent symbol.

use std::collections::VecDeque;

use super::Violation;
use super::state::{Control, FlowMap};
use bentpipe_flow::ResetCode;

/// Bytes of control that may go before the flows' turns until a flow has had its turn. About a
/// packet, so that control gets at most half of the link while anything else waits.
const MAX_LEADING_BYTES: usize = 1200;
/// Bytes that control in a packet counts at least, because it may take the packet by itself.
const MIN_LEADING_BYTES: usize = 300;
/// Refusals that may wait to be sent. Each is a flow beyond the limit; a correct peer opens such
/// flows only until it learns that others have ended here.
const MAX_REFUSALS: usize = 4096;

/// Flows whose control frames wait, and refusals of flows that were never accepted.
#[derive(Debug, Default)]
pub struct ControlQueue {
    flows: VecDeque<u64>,
    refusals: VecDeque<(u64, ResetCode)>,
    /// Bytes of control sent before the flows' turns since a flow last had its turn.
    leading_bytes: usize,
}

impl ControlQueue {
    /// Queues the flow if it is not queued yet.
    pub fn push(&mut self, id: u64, control: &mut Control) {
        if !std::mem::replace(&mut control.queued, true) {
            self.flows.push_back(id);
        }
    }

    /// Queues the refusal of a flow beyond the limit.
    pub fn refuse(&mut self, id: u64) -> Result<(), Violation> {
        if self.refusals.len() >= MAX_REFUSALS {
            return Err(Violation("far more flows than the limit"));
        }
        self.refusals.push_back((id, ResetCode::Limit));
        Ok(())
    }

    pub fn next_refusal(&mut self) -> Option<(u64, ResetCode)> {
        self.refusals.pop_front()
    }

    /// Takes the next flow whose control frames may be sent now.
    pub fn next(&mut self, flows: &mut FlowMap) -> Option<u64> {
        while let Some(id) = self.flows.pop_front() {
            if has_control(flows, id) {
                return Some(id);
            }
        }
        None
    }

    /// Returns `true` if control frames wait that may be sent now.
    pub fn is_waiting(&mut self, flows: &mut FlowMap) -> bool {
        while let Some(&id) = self.flows.front()
            && !has_control(flows, id)
        {
            self.flows.pop_front();
        }
        !(self.flows.is_empty() && self.refusals.is_empty())
    }

    /// Returns `true` if control may go before a flow that waits for its turn.
    pub fn may_lead(&self) -> bool {
        self.leading_bytes < MAX_LEADING_BYTES
    }

    /// Counts control frames in a packet that went before the flows.
    pub fn led(&mut self, bytes: usize) {
        self.leading_bytes += bytes.max(MIN_LEADING_BYTES);
    }

    /// Notes that a flow has had its turn.
    pub fn had_turn(&mut self) {
        self.leading_bytes = 0;
    }
}

/// Returns `true` if the flow's control frames wait for no opening. Frames that wait for an opening
/// are sent with it, in the flow's turn.
fn has_control(flows: &mut FlowMap, id: u64) -> bool {
    let Some(flow) = flows.get_mut(id) else { return false };
    let control = &mut flow.state_mut().control;
    control.queued = control.open.is_none() && !control.is_empty();
    control.queued
}
