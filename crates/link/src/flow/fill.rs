//! What goes into the next symbol, decided at the moment it leaves.

use std::time::Duration;

use super::table::Flow;
use super::{FlowEvent, FlowTable};
use crate::Class;
use crate::lane::Lane;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame;

/// Below this a symbol counts as full: a STREAM head and a few bytes.
const LEAST_ROOM: usize = 32;
/// What an OPEN with the longest name takes, or any other frames of one flow's control.
const CONTROL_ROOM: usize = 300;
/// What an OPEN to an address takes with the longest claim behind it.
const CLAIM_ROOM: usize = 330;

impl FlowTable {
    /// The lane of what would be sent next; `None` when nothing waits.
    pub fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        while let Some(&id) = self.control.front()
            && !self.has_control(id)
        {
            self.control.pop_front();
        }
        if !self.control.is_empty() || !self.refusals.is_empty() {
            return Some(Lane::Urgent);
        }
        let id = self.scheduler.pick()?;
        self.flows.get(&id).map(|flow| self.lane_of(flow, now))
    }

    fn has_control(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        flow.control.queued = !flow.control.is_empty();
        flow.control.queued
    }

    fn lane_of(&self, flow: &Flow, now: Duration) -> Lane {
        let urgent = flow.class <= Class::Network;
        if urgent || flow.send.is_short(now, self.quiet) { Lane::Urgent } else { Lane::Bulk }
    }

    /// Fills a symbol of `lane` with up to `room` bytes of frames. The class is of what ended with
    /// it, if anything did: control, or all that a flow had to send for now.
    pub fn fill(
        &mut self,
        lane: Lane,
        room: usize,
        out: &mut Vec<u8>,
        now: Duration,
    ) -> Option<Class> {
        let end = out.len() + room;
        let controls = lane == Lane::Urgent && self.fill_control(end, out, now);
        let mut ended = controls.then_some(Class::BestEffort);
        while end - out.len() >= LEAST_ROOM {
            let Some(id) = self.scheduler.pick() else { break };
            let Some(flow) = self.flows.get(&id) else { break };
            let class = flow.class;
            if self.lane_of(flow, now) != lane || !self.fill_stream(id, end, out, now) {
                break;
            }
            if !self.flows.get(&id).is_some_and(|flow| self.goes_on(flow, lane, now)) {
                ended = Some(class);
            }
        }
        ended
    }

    /// Whether enough of a flow's burst follows for reports to tell in time what was lost of it in
    /// `lane`, so that nothing has to be protected yet.
    fn goes_on(&self, flow: &Flow, lane: Lane, now: Duration) -> bool {
        let unsent = flow.send.unsent_bytes();
        if self.lane_of(flow, now) != lane {
            return unsent as u64 >= self.in_flight_bytes;
        }
        // Bulk that waits for credit waits for what is missing, which reports tell.
        flow.send.is_ready() || (lane == Lane::Bulk && unsent > 0)
    }

    /// `true` when there was any.
    fn fill_control(&mut self, end: usize, out: &mut Vec<u8>, now: Duration) -> bool {
        let before = out.len();
        while end - out.len() >= 2 * MAX_VARINT_BYTES
            && let Some((id, code)) = self.refusals.pop_front()
        {
            frame::put_reset(out, id, code);
        }
        while end - out.len() >= CONTROL_ROOM
            && let Some(id) = self.control.pop_front()
        {
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            if flow.control.claim && end - out.len() < CLAIM_ROOM {
                self.control.push_front(id);
                break;
            }
            let control = std::mem::take(&mut flow.control);
            let opens = control.open.is_some();
            if let Some(target) = control.open {
                let credit = flow.recv.limit();
                frame::put_open(out, id, flow.class, flow.passenger, credit, &target);
                flow.opened = true;
                if let Some(claim) = flow.claim.as_ref().filter(|_| control.claim) {
                    frame::put_claim(out, id, claim);
                }
            } else if control.credit {
                frame::put_credit(out, id, flow.recv.limit());
            }
            if let Some(class) = flow.confirmed.filter(|_| control.class) {
                frame::put_class(out, id, class);
            }
            if let Some(code) = control.stop {
                frame::put_stop(out, id, code);
            }
            if let Some(code) = control.reset {
                frame::put_reset(out, id, code);
            }
            if opens {
                // The first bytes travel with the opening, if there are any.
                self.refresh(id);
                if self.flows.get(&id).is_some_and(|flow| flow.send.is_ready()) {
                    self.fill_stream(id, end, out, now);
                }
            }
            self.remove_if_over(id);
        }
        out.len() > before
    }

    /// Puts one STREAM frame of the flow; `false` when there was nothing to put.
    fn fill_stream(&mut self, id: u64, end: usize, out: &mut Vec<u8>, now: Duration) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let room = end - out.len();
        let head = frame::stream_head_len(id, flow.send.offset());
        let Some(without_length) = room.checked_sub(head) else { return false };
        let (mut len, mut fin) = flow.send.next_len(without_length);
        // Bytes that do not reach the symbol's end need a length, at most three bytes of it.
        let fills = len == without_length;
        if !fills && len + 3 > without_length {
            (len, fin) = flow.send.next_len(without_length - 3);
        }
        if len == 0 && !fin {
            return false;
        }
        let length = (!fills).then_some(len as u64);
        let before = out.len();
        frame::put_stream_head(out, id, flow.send.offset(), fin, length);
        flow.send.take(len, fin, out, now, self.quiet);
        flow.active = now;
        let wake = std::mem::take(&mut flow.send.blocked);
        self.scheduler.spent(id, flow.class, flow.passenger, out.len() - before);
        if wake {
            self.events.push_back(FlowEvent::Wake(id));
        }
        self.sent_or_forgotten(id, len);
        self.refresh(id);
        self.remove_if_over(id);
        true
    }
}
