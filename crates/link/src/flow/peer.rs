//! Effects of the peer's frames on the flows.
//!
//! Lanes and losses reorder symbols, so that a flow's bytes may arrive before its OPEN: they wait
//! within the reserve. Frames of flows that are over are ignored. Frames of flows that cannot exist
//! are a violation.

use std::time::Duration;

use bentpipe_flow::passenger::EVERYONE_ELSE;
use bentpipe_flow::{Claim, OpenDatagrams, ResetCode, Target};
use bentpipe_schedule::Class;
use bytes::Bytes;

use super::state::{Flow, Stream};
use super::table::FlowTable;
use super::{FlowEvent, Violation};
use crate::wire::frame::Frame;

/// Maximum distance of a new flow's number above the oldest missing number.
const MAX_FLOWS_AHEAD: u64 = 1 << 16;

impl FlowTable {
    /// Acts on a frame whose symbol does not order datagrams.
    #[cfg(test)]
    pub fn take_frame(&mut self, frame: Frame<'_>, now: Duration) -> Result<(), Violation> {
        self.take_frame_at(&frame, None, now)
    }

    /// Acts on a frame of a symbol that arrived for the first time. `symbol` is the symbol's number
    /// if that orders the datagrams in it.
    pub fn take_frame_at(
        &mut self,
        frame: &Frame<'_>,
        symbol: Option<u64>,
        now: Duration,
    ) -> Result<(), Violation> {
        match *frame {
            Frame::Open { flow, class, passenger, credit, ref target } => {
                self.peer_opens(flow, class, passenger, credit, target.clone(), now)
            }
            Frame::Stream { flow, offset, fin, data } => {
                self.peer_sends(flow, offset, fin, data, now)
            }
            Frame::Credit { flow, limit } => {
                if let Some(stream) = self.live(flow, now)? {
                    stream.send.credit(limit);
                    self.refresh(flow, now);
                }
                Ok(())
            }
            Frame::Reset { flow, code } => self.peer_resets(flow, code, now),
            Frame::Stop { flow, code } => self.peer_stops(flow, code, now),
            Frame::Claim { flow, ref claim } => self.peer_claims(flow, claim.clone(), now),
            Frame::Class { flow, class } => self.peer_confirms(flow, class, now),
            Frame::OpenDatagrams { flow, ref open } => {
                self.peer_opens_datagrams(flow, open.clone(), now)
            }
            Frame::Datagram { flow, payload } => {
                self.peer_sends_datagram(flow, payload, symbol, now)
            }
        }
    }

    /// The stream, created if its OPEN has not arrived yet; `None` if it is over or refused.
    fn live(&mut self, id: u64, now: Duration) -> Result<Option<&mut Stream>, Violation> {
        const KIND: Violation = Violation("a frame of streams in a flow of datagrams");
        match self.flows.get(id) {
            Some(Flow::Stream(stream)) if stream.state.ended.is_some() => return Ok(None),
            Some(Flow::Stream(_)) => return Ok(self.flows.stream_mut(id)),
            Some(Flow::Datagrams(_)) => return Err(KIND),
            None if self.seen.contains(id) => return Ok(None),
            None => {}
        }
        if self.datagrams.pre_open.waits_for(id, now) {
            return Err(KIND);
        }
        self.check_number(id)?;
        // A flow whose OPEN has not arrived has no passenger yet.
        if !self.admit(id, EVERYONE_ELSE)? {
            return Ok(None);
        }
        let mut stream = Stream::new(Class::BestEffort, 0, 0, self.limits.reserve, now);
        stream.state.released = true; // it has no owner until it is opened
        self.flows.insert(id, Flow::Stream(stream));
        Ok(self.flows.stream_mut(id))
    }

    /// Checks that an unknown number can be a flow's.
    fn check_number(&self, id: u64) -> Result<(), Violation> {
        if self.limits.opens {
            return Err(Violation("a frame of a flow that was never opened"));
        }
        if id >= self.seen.base() + MAX_FLOWS_AHEAD {
            return Err(Violation("a flow number far ahead of the others"));
        }
        Ok(())
    }

    /// Marks the number as seen. Returns `false` if there is no room for its flow, which is refused.
    fn admit(&mut self, id: u64, passenger: u32) -> Result<bool, Violation> {
        self.seen.insert(id);
        if self.has_room() {
            return Ok(true);
        }
        self.refuse(passenger);
        self.control.refuse(id)?;
        Ok(false)
    }

    fn peer_opens_datagrams(
        &mut self,
        id: u64,
        open: OpenDatagrams,
        now: Duration,
    ) -> Result<(), Violation> {
        if self.limits.opens {
            return Err(Violation("only the air opens flows"));
        }
        if self.flows.get(id).is_some() {
            return Err(Violation("a flow opened twice, or of two kinds"));
        }
        if self.seen.contains(id) {
            return Ok(()); // its end arrived first
        }
        self.check_number(id)?;
        if self.admit(id, open.passenger)? {
            let class = open.class.max(self.highest_class);
            self.accept_datagrams(id, OpenDatagrams { class, ..open }, now);
        }
        Ok(())
    }

    fn peer_sends_datagram(
        &mut self,
        id: u64,
        payload: &[u8],
        symbol: Option<u64>,
        now: Duration,
    ) -> Result<(), Violation> {
        let flow = self.flows.get(id);
        if flow.is_some_and(|flow| !flow.is_datagrams()) {
            return Err(Violation("a datagram in a flow of bytes"));
        }
        let is_known = flow.is_some() || self.seen.contains(id);
        let mut payload = Bytes::copy_from_slice(payload);
        let keeps_order = self.flows.datagrams(id).is_some_and(|flow| flow.keeps_order);
        if let Some(symbol) = symbol.filter(|_| keeps_order) {
            match self.datagrams.reorder.offer(symbol, id, payload) {
                Some(passed) => payload = passed,
                None => return Ok(()),
            }
        }
        if is_known {
            self.take_datagram(id, payload, now);
            return Ok(());
        }
        self.check_number(id)?;
        self.datagrams.pre_open.push(id, payload, now);
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
        if self.limits.opens {
            return Err(Violation("only the air opens flows"));
        }
        // A favoured class is less than others.
        let class = class.max(self.highest_class);
        let Some(stream) = self.live(id, now)? else { return Ok(()) };
        let state = &mut stream.state;
        if state.opened {
            return Err(Violation("a flow opened twice"));
        }
        state.opened = true;
        state.released = false;
        state.class = class;
        state.passenger = passenger;
        state.target = Some(target.clone());
        stream.send.credit(credit);
        stream.recv.unread_since = stream.recv.unread_since.map(|_| now);
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
        if self.live(id, now)?.is_none() {
            return Ok(());
        }
        let Some(stream) = self.flows.stream_mut(id) else { return Ok(()) };
        stream.state.active = now;
        let has_news = self.receive_memory.insert(stream, offset, data, fin, now)?;
        // Grow early, when the peer has used a quarter of its window, whatever the order of arrival.
        let recv = &stream.recv;
        let grows = stream.state.opened && recv.left() < recv.window().max(1) * 3 / 4;
        if has_news {
            self.wake(id);
        }
        if grows {
            self.adjust_credit(id);
        }
        self.remove_if_over(id);
        Ok(())
    }

    fn peer_resets(&mut self, id: u64, code: ResetCode, now: Duration) -> Result<(), Violation> {
        if self.flows.datagrams(id).is_none() {
            // The opening has not arrived yet, and will find the flow over.
            self.datagrams.pre_open.forget(id, now);
            if self.live(id, now)?.is_none() {
                return Ok(());
            }
        }
        self.end(id, code);
        self.remove_if_over(id);
        Ok(())
    }

    fn peer_stops(&mut self, id: u64, code: ResetCode, now: Duration) -> Result<(), Violation> {
        if let Some(stream) = self.live(id, now)? {
            let discarded = stream.send.stop(code);
            self.free_unsent(id, discarded);
            self.refresh(id, now);
            self.wake(id);
            self.remove_if_over(id);
        }
        Ok(())
    }

    fn peer_claims(&mut self, id: u64, claim: Claim, now: Duration) -> Result<(), Violation> {
        if self.limits.opens {
            return Err(Violation("only the air claims"));
        }
        if let Some(stream) = self.live(id, now)? {
            stream.claim.get_or_insert(claim);
        }
        Ok(())
    }

    fn peer_confirms(&mut self, id: u64, class: Class, now: Duration) -> Result<(), Violation> {
        if !self.limits.opens {
            return Err(Violation("only the ground confirms claims"));
        }
        let Some(stream) = self.live(id, now)? else { return Ok(()) };
        let Some(claim) = &stream.claim else {
            return Err(Violation("a class for a flow that claimed none"));
        };
        // No more than was claimed.
        let class = class.max(claim.class);
        stream.confirmed = Some(class);
        self.reclass(id, class, now);
        self.wake(id);
        Ok(())
    }
}
