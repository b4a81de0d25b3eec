//! Flows of datagrams: bounded queues in both directions, and nothing that comes again.

use std::time::Duration;

use bentpipe_schedule::{Class, DatagramQueue, PerClass, Popped};
use bentpipe_units::BitRate;
use bytes::Bytes;

use super::order::MOST_HELD_OF_A_FLOW;
use super::queues::{DATAGRAM_COST_BYTES, DatagramCounts, DatagramFlow};
use super::table::Control;
use super::traffic::{received, sent};
use super::unread::{MOST_UNREAD_BYTES, Unread};
use super::{Bill, FlowEvent, FlowTable};
use crate::code::ResetCode;
use crate::lane::Lane;
use crate::target::TargetError;
use crate::wire::codec::varint_len;
use crate::wire::frame::{self, OpenDatagrams};

/// Part of the open flows that may be of datagrams: names are resolved from ever new ports, each
/// flow stays for its idle time, and streams must still find room.
const PART_OF_FLOWS: usize = 2;

/// Reason for which a datagram was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It is longer than one packet carries.
    #[error("the datagram is too large: the path carries {most} bytes of payload at most now")]
    TooLarge {
        /// Largest size that is accepted now.
        most: usize,
    },
    /// The flow is over.
    #[error("the flow is over: {}", .0.name())]
    Ended(ResetCode),
}

/// Result of a request for a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receive {
    /// The oldest that waits.
    Taken(Bytes),
    /// None is here; the flow says when there is one.
    Blocked,
    /// The flow is over.
    Reset(ResetCode),
}

/// Description of a filled symbol of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Number of datagrams in it.
    pub datagrams: u32,
    /// All are of it, and have paid for themselves.
    pub bill: Bill,
    /// Time after which the last is useless.
    pub expires: Duration,
}

impl FlowTable {
    /// Tells what the path is like, by which queues are judged.
    pub fn tell_path(&mut self, round_trip: Duration, rate: BitRate, packet_bytes: usize) {
        let datagrams = &mut self.datagrams;
        (datagrams.round_trip, datagrams.packet_bytes) = (round_trip, packet_bytes);
        datagrams.rate = Some(rate).filter(|rate| rate.bps() > 0);
    }

    pub fn datagram_counts(&self) -> DatagramCounts {
        let DatagramCounts { dropped, .. } = self.datagrams.counts;
        DatagramCounts { dropped: dropped + self.datagrams.early.gone(), ..self.datagrams.counts }
    }

    /// Returns `true` if datagrams wait to be sent.
    pub fn has_datagrams(&self) -> bool {
        self.datagrams.outgoing_bytes > 0
    }

    /// Maximum number of open datagram flows.
    pub fn most_datagram_flows(&self) -> usize {
        self.terms.max_flows / PART_OF_FLOWS
    }

    /// Opens a flow of datagrams, for which another may have to end; `None` at the limit.
    pub fn open_datagrams(
        &mut self,
        open: &OpenDatagrams,
        now: Duration,
    ) -> Result<Option<u64>, TargetError> {
        let id = self.seen.end();
        let mut opening = Vec::new();
        open.put(id, &mut opening)?;
        if self.len() >= self.terms.max_flows || !self.make_room(open.passenger) {
            return Ok(None);
        }
        self.seen.insert(id);
        let mut flow = self.datagram_flow(id, open, now);
        flow.control.open = Some(opening);
        self.datagrams.crowd.enter(open.passenger, id);
        self.datagrams.flows.insert(id, flow);
        self.refresh_datagrams(id, now);
        Ok(Some(id))
    }

    /// Ends the longest idle flow of who has more than his part, if there has to be room for another
    /// of `passenger`; `false` where there is none.
    fn make_room(&mut self, passenger: u32) -> bool {
        let most = self.most_datagram_flows();
        let flows = &self.datagrams.flows;
        let active = |id: &&u64| flows.get(id).map(|flow| flow.active);
        let Ok(payer) = self.datagrams.crowd.pays(passenger, most) else { return false };
        let idlest = payer.and_then(|ids| ids.iter().min_by_key(active).copied());
        if let Some(idlest) = idlest {
            self.reset_datagrams(idlest, ResetCode::Limit);
        }
        true
    }

    fn datagram_flow(&mut self, id: u64, open: &OpenDatagrams, now: Duration) -> DatagramFlow {
        DatagramFlow {
            target: open.target.clone(),
            protocol: open.protocol,
            class: open.class,
            passenger: open.passenger,
            turn: self.scheduler.add(id, open.class, open.passenger),
            lifetime: self.terms.lifetimes.of(open.class),
            outgoing: DatagramQueue::new(),
            incoming: Unread::default(),
            keeps_order: false,
            opened: false,
            ended: None,
            released: false,
            active: now,
            control: Control::default(),
        }
    }

    /// The peer's opening came, of a flow that is neither here nor was.
    pub(super) fn take_datagram_flow(&mut self, id: u64, open: OpenDatagrams, now: Duration) {
        let mut flow = self.datagram_flow(id, &open, now);
        flow.opened = true;
        self.datagrams.crowd.enter(open.passenger, id);
        self.datagrams.flows.insert(id, flow);
        self.events.push_back(FlowEvent::OpenedDatagrams { flow: id, open });
        for payload in self.datagrams.early.take(id, now) {
            self.take_datagram(id, payload, now);
        }
    }

    /// From now on what comes for the flow is passed on in the order in which it left, as far as the
    /// link brings it back soon enough. Not in the classes of calls, which would rather lose it.
    pub fn keep_order(&mut self, id: u64) {
        if let Some(flow) = self.datagrams.flows.get_mut(&id) {
            flow.keeps_order = !matches!(flow.class, Class::Operator | Class::Network);
        }
    }

    /// Symbol `number` of the datagram lane is here for the first time: what it shows to be missing is
    /// waited for until `patience` from now.
    pub fn symbol_came(&mut self, number: u64, patience: Duration, now: Duration) {
        self.datagrams.order.came(number, patience, now);
    }

    /// Nothing below `number` of the datagram lane comes any more.
    pub fn gave_up_below(&mut self, number: u64, now: Duration) {
        self.datagrams.order.gave_up_below(number);
        self.release_ordered(now);
    }

    /// Datagrams that waited for others go on where they need not any more.
    pub fn release_ordered(&mut self, now: Duration) {
        for (id, payload) in self.datagrams.order.release(now) {
            self.take_datagram_within(MOST_UNREAD_BYTES + MOST_HELD_OF_A_FLOW, id, payload, now);
        }
    }

    /// Time at which [`Self::release_ordered`] should be called.
    pub fn order_due(&self) -> Option<Duration> {
        self.datagrams.order.due()
    }

    /// A datagram of a flow that is here. The oldest give way where the reader does not keep up.
    pub(super) fn take_datagram(&mut self, id: u64, payload: Bytes, now: Duration) {
        let in_order = self.datagrams.flows.get(&id).is_some_and(|flow| flow.keeps_order);
        // What was just released has not been read when the next comes.
        let room = MOST_UNREAD_BYTES + if in_order { MOST_HELD_OF_A_FLOW } else { 0 };
        self.take_datagram_within(room, id, payload, now);
    }

    /// The same where the flow may have `room` bytes unread: many that waited come at once.
    fn take_datagram_within(&mut self, room: usize, id: u64, payload: Bytes, now: Duration) {
        let most = self.terms.datagram_memory;
        let datagrams = &mut self.datagrams;
        let bytes = Unread::cost(&payload);
        datagrams.expire_unread(id, now);
        if datagrams.incoming_bytes + bytes as u64 > most {
            datagrams.sweep_unread(now);
        }
        let Some(flow) = datagrams.flows.get_mut(&id).filter(|flow| flow.ended.is_none()) else {
            datagrams.counts.unknown += 1;
            return;
        };
        flow.active = now;
        while flow.incoming.bytes() + bytes > room || datagrams.incoming_bytes + bytes as u64 > most
        {
            datagrams.counts.dropped += 1;
            // Where others hold all of the memory it is this one that finds no room.
            let Some(oldest) = flow.incoming.pop() else { return };
            datagrams.incoming_bytes -= Unread::cost(&oldest) as u64;
        }
        datagrams.counts.received += 1;
        datagrams.incoming_bytes += bytes as u64;
        flow.incoming.push(payload, now);
        if flow.incoming.len() == 1 {
            self.events.push_back(FlowEvent::Wake(id));
        }
    }

    /// Hands a datagram to its flow; `most` is the longest that fits into a packet.
    pub fn send_datagram(
        &mut self,
        id: u64,
        payload: &[u8],
        most: usize,
        now: Duration,
    ) -> Result<(), SendError> {
        let datagrams = &mut self.datagrams;
        let flow = datagrams.flows.get_mut(&id);
        let flow = flow.ok_or(SendError::Ended(ResetCode::Aborted))?;
        if let Some(code) = flow.ended {
            return Err(SendError::Ended(code));
        }
        if payload.len() > most {
            return Err(SendError::TooLarge { most });
        }
        let bytes = payload.len() + DATAGRAM_COST_BYTES;
        flow.outgoing.push(Bytes::copy_from_slice(payload), bytes, now);
        flow.active = now;
        datagrams.outgoing_bytes += bytes as u64;
        let (class, turn) = (flow.class, flow.turn);
        self.scheduler.queued(turn, bytes);
        self.drop_overflow(class, now);
        self.refresh_datagrams(id, now);
        Ok(())
    }

    /// While a class's datagrams take more than they may, the flow with most gives up its oldest.
    pub(super) fn drop_overflow(&mut self, class: Class, now: Duration) {
        while let Some(fattest) = self.scheduler.overflow(class)
            && let Some(flow) = self.datagrams.flows.get_mut(&fattest)
            && let Some(dropped) = flow.outgoing.drop_head()
        {
            let turn = flow.turn;
            self.datagrams.count(turn, &dropped, &mut self.scheduler);
            self.refresh_datagrams(fattest, now);
        }
    }

    /// The oldest datagram that came and is of use.
    pub fn receive_datagram(&mut self, id: u64, now: Duration) -> Receive {
        self.datagrams.expire_unread(id, now);
        let Some(flow) = self.datagrams.flows.get_mut(&id) else {
            return Receive::Reset(ResetCode::Aborted);
        };
        if let Some(code) = flow.ended {
            return Receive::Reset(code);
        }
        let Some(payload) = flow.incoming.pop() else { return Receive::Blocked };
        flow.active = now;
        self.datagrams.incoming_bytes -= Unread::cost(&payload) as u64;
        self.scheduler.carried(flow.turn, received(payload.len()));
        Receive::Taken(payload)
    }

    /// Turns of the scheduler follow what the flow could send.
    pub(super) fn refresh_datagrams(&mut self, id: u64, now: Duration) {
        let Some(flow) = self.datagrams.flows.get(&id) else { return };
        let sends = flow.control.open.is_some() || (flow.opened && !flow.outgoing.is_empty());
        if sends && flow.ended.is_none() {
            self.scheduler.activate(flow.turn, now);
        } else {
            self.scheduler.deactivate(flow.turn);
        }
    }

    /// The class of the datagram that the flow would send; `None` where it has none that is worth it.
    pub(super) fn datagram_class(&mut self, id: u64, now: Duration) -> Option<Class> {
        if self.datagrams.next_len(id, &mut self.scheduler, now).is_none() {
            self.refresh_datagrams(id, now);
            return None;
        }
        self.datagrams.flows.get(&id).map(|flow| flow.class)
    }

    /// Fills a symbol with up to `room` bytes of datagrams of one class. With a `whole` packet to
    /// fill, what does not fit even there is dropped: packets were larger when it was handed over.
    pub fn fill_datagrams(
        &mut self,
        room: usize,
        whole: bool,
        out: &mut Vec<u8>,
        now: Duration,
    ) -> Option<Filled> {
        let end = out.len() + room;
        let mut filled: Option<Filled> = None;
        // The last one needs no length, and which is the last shows when the next does not fit.
        let mut last: Option<(u64, Bytes)> = None;
        while let Some((id, Lane::Datagram)) = self.next_turn(now) {
            let Some(class) = self.datagram_class(id, now) else { continue };
            let next = self.datagrams.next_len(id, &mut self.scheduler, now);
            let Some(len) = next else { continue };
            let before = last.as_ref().map_or(0, |(id, payload)| frame_len(*id, payload.len()));
            let fits = out.len() + before + frame::datagram_head_len(id) + len <= end;
            let drops = !fits && whole && filled.is_none();
            if filled.is_some_and(|filled| filled.bill.class != class) || !(fits || drops) {
                break;
            }
            if drops {
                self.drop_oldest(id);
                self.refresh_datagrams(id, now);
                continue;
            }
            let popped = self.datagrams.pop(id, &mut self.scheduler, now);
            let Some((Popped { item, waited, .. }, expires)) = popped else { continue };
            self.datagrams.counts.sent += 1;
            self.led_bytes = 0;
            if let Some(flow) = self.datagrams.flows.get(&id) {
                self.scheduler.spent_datagram(flow.turn, frame_len(id, len), waited, now);
                self.scheduler.carried(flow.turn, sent(len));
            }
            self.refresh_datagrams(id, now);
            let mut so_far =
                filled.unwrap_or(Filled { datagrams: 0, bill: Bill::of(class), expires });
            so_far.datagrams += 1;
            so_far.bill.paid += frame_len(id, len);
            so_far.expires = so_far.expires.max(expires);
            filled = Some(so_far);
            if let Some((id, payload)) = last.replace((id, item)) {
                frame::put_datagram(out, id, &payload, false);
            }
        }
        if let Some((id, payload)) = last {
            frame::put_datagram(out, id, &payload, true);
        }
        filled
    }

    /// Returns `true` if the flow's opening waits for its turn.
    pub(super) fn opens_datagrams(&self, id: u64) -> bool {
        self.datagrams.flows.get(&id).is_some_and(|flow| flow.control.open.is_some())
    }

    /// Puts the flow's opening in its turn, with the first datagram where both fit.
    pub(super) fn fill_datagram_opening(
        &mut self,
        id: u64,
        end: usize,
        out: &mut Vec<u8>,
        paid: &mut PerClass<usize>,
        now: Duration,
    ) {
        let Some(flow) = self.datagrams.flows.get_mut(&id) else { return };
        let (class, turn, before) = (flow.class, flow.turn, out.len());
        if let Some(opening) = flow.control.open.take() {
            out.extend_from_slice(&opening);
            flow.opened = true;
        }
        paid[class] += out.len() - before;
        self.scheduler.spent(turn, out.len() - before, now);
        if let Some(len) = self.datagrams.next_len(id, &mut self.scheduler, now)
            && out.len() + frame_len(id, len) <= end
            && let Some((first, _)) = self.datagrams.pop(id, &mut self.scheduler, now)
        {
            frame::put_datagram(out, id, &first.item, false);
            paid[class] += frame_len(id, len);
            self.datagrams.counts.sent += 1;
            self.scheduler.spent_datagram(turn, frame_len(id, len), first.waited, now);
            self.scheduler.carried(turn, sent(len));
        }
        self.refresh_datagrams(id, now);
    }

    /// Puts the flow's end into an urgent symbol.
    pub(super) fn fill_datagram_control(
        &mut self,
        id: u64,
        out: &mut Vec<u8>,
        paid: &mut PerClass<usize>,
        now: Duration,
    ) {
        let Some(flow) = self.datagrams.flows.get_mut(&id) else { return };
        let (class, before) = (flow.class, out.len());
        if let Some(code) = std::mem::take(&mut flow.control).reset {
            frame::put_reset(out, id, code);
        }
        self.pay(class, out.len() - before, paid, now);
        self.remove_datagrams_if_over(id);
    }

    /// Returns `true` if the flow's control waits; only then it is in the queue.
    pub(super) fn has_datagram_control(&mut self, id: u64) -> bool {
        let Some(flow) = self.datagrams.flows.get_mut(&id) else { return false };
        flow.control.queued = flow.control.reset.is_some();
        flow.control.queued
    }

    /// Ends the flow at once and tells the peer why.
    pub(super) fn reset_datagrams(&mut self, id: u64, code: ResetCode) {
        if !self.stop_datagrams(id, code) {
            return;
        }
        if let Some(flow) = self.datagrams.flows.get_mut(&id) {
            // Even where the opening has not left: a number that never came would be waited for.
            flow.control.reset = Some(code);
            self.queue_control(id);
        }
        self.remove_datagrams_if_over(id);
    }

    /// Nobody holds the flow any more.
    pub(super) fn release_datagrams(&mut self, id: u64) {
        let Some(flow) = self.datagrams.flows.get_mut(&id) else { return };
        flow.released = true;
        self.reset_datagrams(id, ResetCode::Aborted);
        self.remove_datagrams_if_over(id);
    }

    /// The peer ended the flow, or is not there any more.
    pub(super) fn end_datagrams(&mut self, id: u64, code: ResetCode) {
        self.stop_datagrams(id, code);
        self.remove_datagrams_if_over(id);
    }

    /// The flow is over for us; `false` where it was before.
    fn stop_datagrams(&mut self, id: u64, code: ResetCode) -> bool {
        let flow = self.datagrams.flows.get_mut(&id);
        let Some(flow) = flow.filter(|flow| flow.ended.is_none()) else { return false };
        flow.ended = Some(code);
        flow.control = Control { queued: flow.control.queued, ..Control::default() };
        let (turn, unread, passenger) = (flow.turn, flow.incoming.len(), flow.passenger);
        while self.drop_oldest(id) {}
        self.datagrams.counts.dropped += unread as u64;
        self.scheduler.remove(turn);
        self.datagrams.forget(id);
        self.datagrams.crowd.leave(passenger, id);
        self.events.push_back(FlowEvent::Wake(id));
        true
    }

    /// Drops the oldest datagram that waits to be sent, if there is one.
    fn drop_oldest(&mut self, id: u64) -> bool {
        let Some(flow) = self.datagrams.flows.get_mut(&id) else { return false };
        let (turn, dropped) = (flow.turn, flow.outgoing.drop_head());
        if let Some(dropped) = &dropped {
            self.datagrams.count(turn, dropped, &mut self.scheduler);
        }
        dropped.is_some()
    }

    /// Ends every flow of datagrams, as when the peer is not the instance it was.
    pub(super) fn end_all_datagrams(&mut self, code: ResetCode) {
        let ids: Vec<_> = self.datagrams.flows.keys().copied().collect();
        for id in ids {
            self.end_datagrams(id, code);
        }
    }

    /// Resets flows in which no datagram went either way for too long.
    pub(super) fn reap_datagrams(&mut self, now: Duration) {
        self.datagrams.sweep_unread(now);
        let idle = |flow: &DatagramFlow| {
            flow.ended.is_none() && now.saturating_sub(flow.active) >= self.terms.datagram_idle
        };
        let flows = self.datagrams.flows.iter();
        let ids: Vec<_> = flows.filter(|(_, flow)| idle(flow)).map(|(&id, _)| id).collect();
        for id in ids {
            self.reset_datagrams(id, ResetCode::Idle);
        }
    }

    fn remove_datagrams_if_over(&mut self, id: u64) {
        let Some(flow) = self.datagrams.flows.get(&id) else { return };
        if flow.released && flow.ended.is_some() && flow.control.is_empty() {
            self.datagrams.flows.remove(&id);
            self.unhold(id);
        }
    }
}

/// Length of a datagram in a symbol with further frames after it.
fn frame_len(id: u64, len: usize) -> usize {
    frame::datagram_head_len(id) + varint_len(len as u64) + len
}
