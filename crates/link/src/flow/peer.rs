//! Effects of the peer's frames on the flows.
//!
//! Lanes and losses reorder symbols, so a flow's bytes may come before its OPEN: they wait within
//! the reserve. Frames of flows that are over are ignored; frames of flows that cannot be are a
//! violation.

use std::time::Duration;

use bentpipe_schedule::Class;

use bytes::Bytes;

use super::table::{Flow, FlowTable};
use super::{FlowEvent, Violation};
use crate::code::ResetCode;
use crate::target::Target;
use crate::wire::frame::{Frame, OpenDatagrams};

/// Distance of a new flow's number above the oldest missing number, at most.
const MAX_FLOWS_AHEAD: u64 = 1 << 16;
/// Most refusals that wait to be sent; each is a flow beyond the limit, which a correct peer opens
/// only in the moment before it hears that others are over here too.
const MAX_REFUSALS: usize = 4096;

impl FlowTable {
    /// The same of a frame that has no place.
    #[cfg(test)]
    pub fn take_frame(&mut self, frame: Frame<'_>, now: Duration) -> Result<(), Violation> {
        self.take_frame_at(frame, None, now)
    }

    /// Acts on a frame of a symbol that came for the first time. `place` is the symbol's number, where
    /// that orders the datagrams in it.
    pub fn take_frame_at(
        &mut self,
        frame: Frame<'_>,
        place: Option<u64>,
        now: Duration,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Open { flow, class, passenger, credit, target } => {
                self.peer_opens(flow, class, passenger, credit, target, now)
            }
            Frame::Stream { flow, offset, fin, data } => {
                self.peer_sends(flow, offset, fin, data, now)
            }
            Frame::Credit { flow, limit } => {
                if let Some(live) = self.live(flow, now)? {
                    live.send.credit(limit);
                    self.refresh(flow, now);
                }
                Ok(())
            }
            Frame::Reset { flow, code } => self.peer_resets(flow, code, now),
            Frame::Stop { flow, code } => self.peer_stops(flow, code, now),
            Frame::Claim { flow, claim } => self.peer_claims(flow, claim, now),
            Frame::Class { flow, class } => self.peer_confirms(flow, class, now),
            Frame::OpenDatagrams { flow, open } => self.peer_opens_datagrams(flow, open, now),
            Frame::Datagram { flow, payload } => {
                self.peer_sends_datagram(flow, payload, place, now)
            }
        }
    }

    /// The flow, made if its OPEN is still on its way; `None` when it is over or refused.
    pub(super) fn live(&mut self, id: u64, now: Duration) -> Result<Option<&mut Flow>, Violation> {
        if self.flows.contains_key(&id) {
            let flow = self.flows.get_mut(&id);
            return Ok(flow.filter(|flow| flow.ended.is_none()));
        }
        let of_datagrams = Violation("a frame of streams in a flow of datagrams");
        if self.datagrams.flows.contains_key(&id) {
            return Err(of_datagrams);
        }
        if self.seen.contains(id) {
            return Ok(None);
        }
        if self.datagrams.early.waits_for(id, now) {
            return Err(of_datagrams);
        }
        self.check_number(id)?;
        if !self.admit(id)? {
            return Ok(None);
        }
        let mut flow = self.flow(Class::BestEffort, 0, 0, now);
        flow.released = true; // nobody holds it until it is opened
        self.flows.insert(id, flow);
        Ok(self.flows.get_mut(&id))
    }

    /// Checks that a missing number can be a flow's.
    fn check_number(&self, id: u64) -> Result<(), Violation> {
        if self.terms.opens {
            return Err(Violation("a frame of a flow that was never opened"));
        }
        if id >= self.seen.base() + MAX_FLOWS_AHEAD {
            return Err(Violation("a flow number far ahead of the others"));
        }
        Ok(())
    }

    /// The number has come; `false` where there is no room for its flow, which is refused.
    fn admit(&mut self, id: u64) -> Result<bool, Violation> {
        self.seen.insert(id);
        if self.len() < self.terms.max_flows {
            return Ok(true);
        }
        if self.refusals.len() >= MAX_REFUSALS {
            return Err(Violation("far more flows than the limit"));
        }
        self.refusals.push_back((id, ResetCode::Limit));
        Ok(false)
    }

    fn peer_opens_datagrams(
        &mut self,
        id: u64,
        open: OpenDatagrams,
        now: Duration,
    ) -> Result<(), Violation> {
        if self.terms.opens {
            return Err(Violation("only the air opens flows"));
        }
        if self.flows.contains_key(&id) || self.datagrams.flows.contains_key(&id) {
            return Err(Violation("a flow opened twice, or of two kinds"));
        }
        if self.seen.contains(id) {
            return Ok(()); // its end came first
        }
        self.check_number(id)?;
        if self.admit(id)? {
            let class = open.class.max(self.highest_class);
            self.take_datagram_flow(id, OpenDatagrams { class, ..open }, now);
        }
        Ok(())
    }

    fn peer_sends_datagram(
        &mut self,
        id: u64,
        payload: &[u8],
        place: Option<u64>,
        now: Duration,
    ) -> Result<(), Violation> {
        if self.flows.contains_key(&id) {
            return Err(Violation("a datagram in a flow of bytes"));
        }
        let mut payload = Bytes::copy_from_slice(payload);
        if let Some(place) = place.filter(|_| self.datagrams.keeps_order(id)) {
            match self.datagrams.order.offer(place, id, payload) {
                Some(passed) => payload = passed,
                None => return Ok(()),
            }
        }
        if self.datagrams.flows.contains_key(&id) || self.seen.contains(id) {
            self.take_datagram(id, payload, now);
            return Ok(());
        }
        self.check_number(id)?;
        self.datagrams.early.keep(id, payload, now);
        self.datagrams.counts.early += 1;
        Ok(())
    }

    fn peer_opens(
        &mut self,
        id: u64,
        class: Class,
        passenger: u32,
        credit: u64,
        target: Target,
        now: Duration,
    ) -> Result<(), Violation> {
        if self.terms.opens {
            return Err(Violation("only the air opens flows"));
        }
        let class = class.max(self.highest_class); // the most favoured is the least
        let Some(flow) = self.live(id, now)? else { return Ok(()) };
        if flow.opened {
            return Err(Violation("a flow opened twice"));
        }
        flow.opened = true;
        flow.released = false;
        flow.class = class;
        flow.passenger = passenger;
        flow.target = Some(target.clone());
        flow.send.credit(credit);
        flow.recv.unread_since = flow.recv.unread_since.map(|_| now);
        self.events.push_back(FlowEvent::Opened { flow: id, target, class, passenger });
        Ok(())
    }

    fn peer_sends(
        &mut self,
        id: u64,
        offset: u64,
        fin: bool,
        data: &[u8],
        now: Duration,
    ) -> Result<(), Violation> {
        let Some(flow) = self.live(id, now)? else { return Ok(()) };
        flow.active = now;
        let before = (flow.recv.pieces(), flow.recv.held_bytes());
        let news = flow.recv.insert(offset, data, fin, now)?;
        // Early growth: the peer is well into its window, and what it has comes in order or not.
        let grow = flow.opened && flow.recv.left() < flow.recv.window().max(1) * 3 / 4;
        self.count_pieces(id, before)?;
        if news {
            self.events.push_back(FlowEvent::Wake(id));
        }
        if grow {
            self.adjust_credit(id);
        }
        self.remove_if_over(id);
        Ok(())
    }

    fn peer_resets(&mut self, id: u64, code: ResetCode, now: Duration) -> Result<(), Violation> {
        if self.datagrams.flows.contains_key(&id) {
            self.end_datagrams(id, code);
            return Ok(());
        }
        // Its opening is still on its way, and finds the flow over.
        self.datagrams.early.forget(id, now);
        if self.live(id, now)?.is_some() {
            self.end(id, code);
            self.events.push_back(FlowEvent::Wake(id));
            self.remove_if_over(id);
        }
        Ok(())
    }

    fn peer_stops(&mut self, id: u64, code: ResetCode, now: Duration) -> Result<(), Violation> {
        if let Some(flow) = self.live(id, now)? {
            let forgotten = flow.send.stop(code);
            self.sent_or_forgotten(id, forgotten);
            self.refresh(id, now);
            self.events.push_back(FlowEvent::Wake(id));
            self.remove_if_over(id);
        }
        Ok(())
    }
}
