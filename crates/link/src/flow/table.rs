//! All flows of a session: their owners' calls, their ends, and what keeps their counters right.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Target};
use bentpipe_schedule::Class;

use super::bursts::Bursts;
use super::control::ControlQueue;
use super::datagrams::Datagrams;
use super::event::FlowEvent;
use super::limits::FlowLimits;
use super::lingering::Lingering;
use super::memory::{ReceiveMemory, SendMemory};
use super::scheduling::{Rooms, Turns, received};
use super::state::{Flow, FlowMap, Stream};
use super::{FlowRefusals, Pressure, Read, Write};
use crate::lane::{Lane, RangeSet};

/// All flows of a session.
///
/// Each field owns one concern and its counters. The table composes them: it finds the flow, passes
/// it to the parts that an operation concerns, and reports events.
#[derive(Debug)]
pub struct FlowTable {
    pub(super) limits: FlowLimits,
    pub(super) flows: FlowMap,
    /// Numbers of all flows that were ever opened.
    pub(super) seen: RangeSet,
    /// The most favoured class that the peer's flows may have.
    pub(super) highest_class: Class,
    pub(super) turns: Turns,
    pub(super) control: ControlQueue,
    pub(super) lingering: Lingering,
    pub(super) send_memory: SendMemory,
    pub(super) receive_memory: ReceiveMemory,
    pub(super) bursts: Bursts,
    pub(super) datagrams: Datagrams,
    pub(super) events: VecDeque<FlowEvent>,
    /// Flows whose OPEN is in the symbol that was filled last.
    pub(super) openings: Vec<u64>,
    /// Refusals since they were last taken.
    pub(super) refusals: FlowRefusals,
    /// Start of the session.
    pub(super) began: Duration,
    /// Time of the last call of [`Self::traffic`].
    pub(super) last_traffic: Duration,
}

impl FlowTable {
    pub fn new(limits: FlowLimits, now: Duration) -> Self {
        let classes = limits.classes;
        let mut table = Self {
            flows: FlowMap::default(),
            seen: RangeSet::default(),
            highest_class: Class::Operator,
            turns: Turns::default(),
            control: ControlQueue::default(),
            lingering: Lingering::default(),
            send_memory: SendMemory::new(&limits),
            receive_memory: ReceiveMemory::new(&limits),
            bursts: Bursts::default(),
            datagrams: Datagrams::default(),
            events: VecDeque::new(),
            openings: Vec::new(),
            refusals: FlowRefusals::default(),
            began: now,
            last_traffic: now,
            limits,
        };
        table.set_classes(classes, now);
        table
    }

    /// Sets the window that fills the link towards us, and the pause that ends a burst.
    pub fn tune(&mut self, window: u64, round_trip: Duration) {
        self.receive_memory.set_window(window);
        self.bursts.set_pause(round_trip);
    }

    /// Sets the number of bytes that are sent within a round trip.
    pub fn set_in_flight(&mut self, bytes: u64) {
        self.bursts.set_in_flight(bytes);
    }

    /// Limits the classes of flows that the peer opens to `highest` and less favoured ones.
    pub fn limit_class(&mut self, highest: Class) {
        self.highest_class = highest;
    }

    /// Lends flows what `pressure` permits.
    pub fn set_pressure(&mut self, pressure: &Pressure) {
        self.send_memory.set_pressure(pressure);
        self.receive_memory.set_pressure(pressure);
    }

    pub fn len(&self) -> usize {
        self.flows.len()
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub fn next_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    /// Wakes the flow's owner, once for consecutive events of the flow.
    pub(super) fn wake(&mut self, id: u64) {
        let wakes = FlowEvent::Wake(id);
        if self.events.back() != Some(&wakes) {
            self.events.push_back(wakes);
        }
    }

    /// Returns `true` if another flow may be opened or accepted.
    ///
    /// Flows that wait without an owner do not count, up to as many again.
    pub(super) fn has_room(&self) -> bool {
        let max = self.limits.max_flows;
        self.len() - self.lingering.count() < max && self.len() < 2 * max
    }

    /// Takes the number of a new flow of this end.
    pub(super) fn next_number(&mut self) -> u64 {
        self.lingering.take_number().unwrap_or_else(|| {
            let id = self.seen.end();
            self.seen.insert(id);
            id
        })
    }

    /// Counts a flow of `passenger` that the limit of all flows refuses.
    pub(super) fn refuse(&mut self, passenger: u32) {
        self.refusals.count(true, passenger, self.len(), self.limits.max_flows);
    }

    /// Takes the counts of refusals since the last call.
    pub fn take_refusals(&mut self) -> FlowRefusals {
        std::mem::take(&mut self.refusals)
    }

    /// Bytes that wait in flows, in both directions.
    pub fn held_bytes(&self) -> u64 {
        let streams = self.send_memory.unsent_bytes() as u64 + self.receive_memory.bytes();
        streams + self.datagrams.held_bytes()
    }

    /// Returns `true` if so many pieces wait for earlier bytes that only the oldest symbols should
    /// be accepted.
    pub fn is_fragmented(&self) -> bool {
        self.receive_memory.is_fragmented()
    }

    // Calls of a flow's owner.

    /// Opens a stream to the encoded `target`; `None` at the limit.
    pub fn open(
        &mut self,
        target: Vec<u8>,
        class: Class,
        passenger: u32,
        now: Duration,
    ) -> Option<u64> {
        if !self.has_room() {
            self.refuse(passenger);
            return None;
        }
        let id = self.next_number();
        let (credit, reserve) = (self.limits.peer_reserve, self.limits.reserve);
        let mut stream = Stream::new(class, passenger, credit, reserve, now);
        self.receive_memory.open(&mut stream);
        stream.state.target = Target::decode(&target).ok().map(|(target, _)| target);
        stream.state.control.open = Some(target);
        self.flows.insert(id, Flow::Stream(stream));
        self.refresh(id, now);
        Some(id)
    }

    pub fn write(&mut self, id: u64, data: &[u8], now: Duration) -> Write {
        let Some(stream) = self.flows.stream_mut(id) else {
            return Write::Reset(ResetCode::Aborted);
        };
        if let Some(code) = stream.state.ended {
            return Write::Reset(code);
        }
        let written = self.send_memory.write(id, stream, data);
        if let Write::Taken(_) = written {
            stream.state.active = now;
            // What it left may be enough for the next one.
            self.wake_next_writer();
        }
        self.refresh(id, now);
        written
    }

    /// Bytes written to the stream that have not been sent yet.
    pub fn unsent_bytes_of(&self, id: u64) -> usize {
        self.flows.stream(id).map_or(0, |stream| stream.send.unsent_bytes())
    }

    pub fn read(&mut self, id: u64, out: &mut [u8], now: Duration) -> Read {
        let Some(stream) = self.flows.stream_mut(id) else {
            return Read::Reset(ResetCode::Aborted);
        };
        if let Some(code) = stream.state.ended {
            return Read::Reset(code);
        }
        let read = self.receive_memory.read(stream, out, now);
        if let Read::Taken(bytes) = read {
            stream.state.active = now;
            self.turns.record_payload(id, &mut stream.state, received(bytes));
            self.adjust_credit(id);
        }
        read
    }

    /// Ends the sending direction after what was written.
    pub fn finish(&mut self, id: u64) {
        if let Some(stream) = self.flows.stream_mut(id) {
            stream.send.finish();
        }
        if let Some(flow) = self.flows.get_mut(id).filter(|flow| !flow.is_datagrams()) {
            // The delay of an end without data concerns nobody, so that it counts as no wait.
            self.turns.refresh(id, flow, Duration::MAX);
        }
    }

    /// Ends both directions at once and tells the peer why.
    pub fn reset(&mut self, id: u64, code: ResetCode) {
        if !self.end(id, code) {
            return;
        }
        // A flow whose opening was never sent is unknown to the peer; the next flow gets its number.
        if let Some(flow) = self.flows.get_mut(id).filter(|flow| !is_unsent(&self.limits, flow)) {
            let control = &mut flow.state_mut().control;
            control.reset = Some(code);
            self.control.push(id, control);
        }
        self.remove_if_over(id);
    }

    /// Ends the receiving direction because the owner reads no more; the other direction goes on.
    pub fn stop_reading(&mut self, id: u64, code: ResetCode) {
        let Some(stream) = self.flows.stream_mut(id) else { return };
        if stream.state.ended.is_some() || stream.recv.is_done() {
            return;
        }
        let peer_sends = stream.recv.wants_credit();
        self.receive_memory.stop(stream);
        if peer_sends {
            stream.state.control.stop = Some(code);
            self.control.push(id, &mut stream.state.control);
        }
        self.adjust_credit(id);
    }

    /// Drops the flow: what was finished is still sent, and anything else is reset.
    pub fn release(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.state_mut().released = true;
        match flow {
            Flow::Stream(stream) if stream.send.is_finishing() => {
                let (state, max) = (&mut stream.state, self.limits.max_flows);
                let is_unsent = self.limits.opens && !state.opened && state.ended.is_none();
                if !is_unsent || self.lingering.finish(state, max) {
                    self.stop_reading(id, ResetCode::Aborted);
                } else {
                    let passenger = state.passenger;
                    self.refuse(passenger);
                    self.reset(id, ResetCode::Limit);
                }
            }
            _ => self.reset(id, ResetCode::Aborted),
        }
        self.remove_if_over(id);
    }

    /// Ends every flow, because the peer is another instance than before.
    pub fn end_all(&mut self, code: ResetCode) {
        for id in self.flows.ids(|_| true) {
            self.end(id, code);
            self.remove_if_over(id);
        }
    }

    /// Resets idle flows, and streams whose received bytes nobody reads. To be called regularly.
    pub fn reap(&mut self, now: Duration) {
        self.datagrams.sweep_unread(&mut self.flows, now);
        let limits = &self.limits;
        let exceeds = |since: Duration, limit: Duration| now.saturating_sub(since) >= limit;
        let ids = self.flows.ids(|flow| {
            let state = flow.state();
            let is_idle = match flow {
                Flow::Stream(stream) => {
                    // Bytes that arrived before their OPEN have no reader, perhaps for an outage.
                    let since = stream.recv.unread_since.filter(|_| state.opened);
                    since.is_some_and(|since| exceeds(since, limits.flow_unread))
                        || exceeds(state.active, limits.flow_idle)
                }
                Flow::Datagrams(_) => exceeds(state.active, limits.datagram_idle),
            };
            state.ended.is_none() && is_idle
        });
        for id in ids {
            self.reset(id, ResetCode::Idle);
        }
        // The owner of the last one may have given up its write.
        self.wake_next_writer();
    }

    // Turns.

    /// Tells which lanes accept another symbol of which classes. Other flows give up their turns
    /// until there is room again.
    pub fn set_room(&mut self, rooms: Rooms, now: Duration) {
        self.turns.set_room(rooms);
        while let Some(id) = self.turns.next_released() {
            self.refresh(id, now);
        }
    }

    /// The lane of what would be sent next; `None` if nothing waits that its lane has room for.
    pub fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        if self.control_leads(now) {
            return Some(Lane::Urgent);
        }
        self.next_turn(now).map(|(_, lane)| lane)
    }

    /// The flow whose turn it is, and the lane of what it would send.
    pub(super) fn next_turn(&mut self, now: Duration) -> Option<(u64, Lane)> {
        loop {
            let id = self.turns.scheduler_mut().pick(now)?;
            let lane = match self.flows.get(id) {
                Some(Flow::Stream(stream)) => Some(self.bursts.lane(stream, now)),
                Some(flow) if flow.is_opening() => Some(Lane::Urgent),
                _ => self.next_datagram_len(id, now).map(|_| Lane::Datagram),
            };
            // If all of the flow's datagrams had expired, the turn is another's.
            let Some(lane) = lane else { continue };
            let Some(state) = self.flows.get(id).map(Flow::state) else { continue };
            if self.turns.has_room(lane, state.class) {
                return Some((id, lane));
            }
            self.turns.hold(id, state, lane);
        }
    }

    /// The class of the flow whose turn it is.
    pub fn next_class(&mut self, now: Duration) -> Option<Class> {
        let (id, _) = self.next_turn(now)?;
        self.flows.get(id).map(|flow| flow.state().class)
    }

    /// Returns `true` if the passenger whose turn it is has just begun, or sends little.
    pub fn next_is_new(&mut self, now: Duration) -> bool {
        self.next_turn(now).is_some() && self.turns.scheduler_mut().picks_new(now)
    }

    /// Returns `true` if the flow whose turn it is goes before a retransmission or repair of
    /// `class`.
    pub fn precedes(&mut self, class: Class, now: Duration) -> bool {
        self.turns.scheduler_mut().precedes(class, now)
    }

    /// Charges the class for `bytes` that no flow's turn accounts for.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        self.turns.scheduler_mut().charge(class, bytes, now);
    }

    /// Time at which something may be sent that only its class's ceiling delays.
    pub fn next_ready(&mut self, now: Duration) -> Option<Duration> {
        self.turns.scheduler_mut().next_ready(now)
    }

    /// Returns `true` if control frames are next. They go before the flows, which do not pay for
    /// them, but only up to a limit while a flow waits.
    pub(super) fn control_leads(&mut self, now: Duration) -> bool {
        self.control.is_waiting(&mut self.flows)
            && self.turns.has_room_for_control()
            && (self.control.may_lead() || self.next_turn(now).is_none())
    }

    /// The class whose deferred burst end in `lane` is now due, because less than one round trip of
    /// its owner's data follows.
    pub fn take_due_burst_end(&mut self, lane: Lane) -> Option<Class> {
        self.bursts.take_due(lane)
    }

    // Consistency of the parts.

    /// Makes the scheduler and the counters follow what the flow could send.
    pub(super) fn refresh(&mut self, id: u64, now: Duration) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if let Flow::Stream(stream) = flow {
            self.bursts.count(stream, now);
        }
        self.turns.refresh(id, flow, now);
    }

    /// Adjusts the stream's credit to its reader, and queues a CREDIT frame if the credit grew.
    pub(super) fn adjust_credit(&mut self, id: u64) {
        let Some(stream) = self.flows.stream_mut(id) else { return };
        if self.receive_memory.adjust(stream) {
            stream.state.control.credit = true;
            self.control.push(id, &mut stream.state.control);
        }
    }

    /// Accounts for `bytes` that the stream sent or discarded, and wakes a writer that waited for
    /// the memory.
    pub(super) fn free_unsent(&mut self, id: u64, bytes: usize) {
        let Some(stream) = self.flows.stream_mut(id) else { return };
        if self.send_memory.free(stream, bytes) {
            self.wake_next_writer();
        }
    }

    /// Wakes the next writer that waits for memory, if there is enough. Its write wakes the one after
    /// it, so that no more are woken than can go on.
    fn wake_next_writer(&mut self) {
        if let Some(id) = self.send_memory.next_writer(&self.flows) {
            self.wake_writer(id);
        }
    }

    /// Wakes the flow's writer if it was blocked.
    pub(super) fn wake_writer(&mut self, id: u64) {
        let stream = self.flows.stream_mut(id);
        if stream.is_some_and(|stream| self.send_memory.woken(stream)) {
            self.wake(id);
        }
    }

    /// Ends the flow on this side and frees its buffers and credit. Returns `false` if it had ended
    /// before.
    pub(super) fn end(&mut self, id: u64, code: ResetCode) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
        if !flow.state_mut().end(code) {
            return false;
        }
        self.lingering.end(flow.state_mut());
        match flow {
            Flow::Stream(stream) => {
                self.receive_memory.stop(stream);
                let discarded = stream.send.stop(code);
                self.send_memory.woken(stream);
                self.turns.remove(&mut stream.state);
                self.free_unsent(id, discarded);
                if let Some(stream) = self.flows.stream_mut(id) {
                    // An ended stream has no sendable bytes, whatever the time.
                    self.bursts.count(stream, Duration::ZERO);
                }
                self.wake_next_writer();
                self.adjust_credit(id);
            }
            Flow::Datagrams(datagrams) => {
                self.datagrams.end(id, datagrams, self.turns.scheduler_mut());
                self.turns.remove(&mut datagrams.state);
            }
        }
        self.wake(id);
        true
    }

    /// Frees the flow's state if nothing needs it any more.
    pub(super) fn remove_if_over(&mut self, id: u64) {
        if !self.flows.get(id).is_some_and(Flow::is_over) {
            return;
        }
        let Some(mut flow) = self.flows.remove(id) else { return };
        let unsent = is_unsent(&self.limits, &flow).then_some(id);
        self.lingering.remove(flow.state_mut(), unsent);
        self.turns.remove(flow.state_mut());
        self.turns.unhold(id);
        if let Flow::Stream(stream) = &flow {
            self.receive_memory.remove(stream);
            self.send_memory.remove(stream);
            self.bursts.remove(stream);
        }
    }
}

/// Returns `true` if the flow is this end's, and its opening has not been sent.
fn is_unsent(limits: &FlowLimits, flow: &Flow) -> bool {
    limits.opens && !flow.state().opened
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod writer_tests;
