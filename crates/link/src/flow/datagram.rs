//! Flows of datagrams: bounded queues in both directions, and no retransmission by the flow.

use std::time::Duration;

use bentpipe_flow::{OpenDatagrams, ResetCode, TargetError};
use bentpipe_schedule::{Class, Popped};
use bentpipe_units::BitRate;
use bytes::Bytes;

use super::datagrams::{DatagramCounts, Datagrams};
use super::recv_queue::MAX_UNREAD_BYTES;
use super::reorder::MAX_FLOW_BYTES;
use super::scheduling::{received, sent};
use super::state::{DatagramFlow, Flow};
use super::{FlowEvent, FlowTable, PacketCharge};
use crate::lane::Lane;
use crate::wire::frame;

/// Divisor of the open flows for the largest number of datagram flows. DNS clients use a new port
/// for each query, each flow stays open for its idle time, and streams must still find room.
const PART_OF_FLOWS: usize = 2;

/// Reason for which a datagram was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It is longer than one packet carries.
    #[error("the datagram is too large: the path carries {max} bytes of payload at most now")]
    TooLarge {
        /// Largest size that is accepted now.
        max: usize,
    },
    /// The flow is over.
    #[error("the flow is over: {}", .0.name())]
    Ended(ResetCode),
}

/// Result of a request for a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receive {
    /// The oldest datagram that waits.
    Taken(Bytes),
    /// No datagram waits; the owner is woken when one arrives.
    Blocked,
    /// The flow is over.
    Reset(ResetCode),
}

/// Description of a filled symbol of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Number of datagrams in it.
    pub datagrams: u32,
    /// Charge of its packet: all datagrams are of one class and have paid for themselves.
    pub charge: PacketCharge,
    /// Time after which the last datagram is useless.
    pub expires: Duration,
}

impl FlowTable {
    /// Sets the path's properties, by which queues are judged.
    pub fn set_path(&mut self, round_trip: Duration, rate: BitRate, packet_bytes: usize) {
        self.datagrams.set_path(round_trip, rate, packet_bytes);
    }

    pub fn datagram_counts(&self) -> DatagramCounts {
        self.datagrams.counts()
    }

    /// Returns `true` if datagrams wait to be sent.
    pub fn has_datagrams(&self) -> bool {
        self.datagrams.has_outgoing()
    }

    /// Maximum number of open datagram flows.
    pub fn max_datagram_flows(&self) -> usize {
        self.limits.max_flows / PART_OF_FLOWS
    }

    // Opening.

    /// Opens a flow of datagrams, for which another may have to end; `None` at the limit.
    pub fn open_datagrams(
        &mut self,
        open: &OpenDatagrams,
        now: Duration,
    ) -> Result<Option<u64>, TargetError> {
        let mut opening = Vec::new();
        // Checks the target before a number is taken.
        open.target.encode(&mut opening)?;
        if !self.has_room() {
            self.refuse(open.passenger);
            return Ok(None);
        }
        if !self.make_room(open.passenger) {
            return Ok(None);
        }
        let id = self.next_number();
        opening.clear();
        crate::wire::open::put(open, id, &mut opening)?;
        let mut flow = self.datagram_flow(id, open, now);
        flow.state.control.open = Some(opening);
        self.datagrams.quota.enter(open.passenger, id);
        self.flows.insert(id, Flow::Datagrams(flow));
        self.refresh(id, now);
        Ok(Some(id))
    }

    /// Accepts the peer's opening of a flow that never existed here.
    pub(super) fn accept_datagrams(&mut self, id: u64, open: OpenDatagrams, now: Duration) {
        let mut flow = self.datagram_flow(id, &open, now);
        flow.state.opened = true;
        self.datagrams.quota.enter(open.passenger, id);
        self.flows.insert(id, Flow::Datagrams(flow));
        self.events.push_back(FlowEvent::OpenedDatagrams { flow: id, open });
        for payload in self.datagrams.pre_open.take(id, now) {
            self.take_datagram(id, payload, now);
        }
    }

    /// Makes room for another flow of `passenger`, if necessary by ending the longest idle flow of a
    /// passenger with more than its share. Returns `false` if there is no room.
    fn make_room(&mut self, passenger: u32) -> bool {
        let max = self.max_datagram_flows();
        let flows = &self.flows;
        let active = |id: &&u64| flows.get(**id).map(|flow| flow.state().active);
        let held = self.datagrams.quota.count();
        let Ok(victims) = self.datagrams.quota.victims(passenger, max) else {
            self.refusals.count(true, passenger, held, max);
            return false;
        };
        let idlest = victims.and_then(|ids| ids.iter().min_by_key(active).copied());
        if let Some(idlest) = idlest {
            self.refusals.count(false, passenger, held, max);
            self.reset(idlest, ResetCode::Limit);
        }
        true
    }

    fn datagram_flow(&mut self, id: u64, open: &OpenDatagrams, now: Duration) -> DatagramFlow {
        let turn = self.turns.scheduler_mut().add(id, open.class, open.passenger);
        DatagramFlow::new(open, turn, self.limits.lifetimes.of(open.class), now)
    }

    /// Delivers received datagrams of the flow in the order in which they were sent, as far as the
    /// link repairs losses in time. The operator's and the network's classes ignore this, because
    /// calls prefer a loss to a delay.
    pub fn keep_order(&mut self, id: u64) {
        if let Some(flow) = self.flows.datagrams_mut(id) {
            flow.keeps_order = !matches!(flow.state.class, Class::Operator | Class::Network);
        }
    }

    // Receiving.

    /// Notes the first arrival of symbol `number` of the datagram lane. Datagrams wait for the
    /// symbols that it shows to be missing for up to `patience` from now.
    pub fn on_datagram_symbol(&mut self, number: u64, patience: Duration, now: Duration) {
        self.datagrams.reorder.on_symbol(number, patience, now);
    }

    /// Notes that the sender gave up all missing symbols of the datagram lane below `number`.
    pub fn on_datagram_slide(&mut self, number: u64, now: Duration) {
        self.datagrams.reorder.abandon_below(number);
        self.release_ordered(now);
    }

    /// Delivers datagrams that no longer wait for earlier ones.
    pub fn release_ordered(&mut self, now: Duration) {
        for (id, payload) in self.datagrams.reorder.release(now) {
            // Many datagrams may be released at once.
            self.store_datagram(id, payload, MAX_UNREAD_BYTES + MAX_FLOW_BYTES, now);
        }
    }

    /// Time at which [`Self::release_ordered`] should be called.
    pub fn order_due(&self) -> Option<Duration> {
        self.datagrams.reorder.due()
    }

    /// Stores a received datagram for its reader.
    pub(super) fn take_datagram(&mut self, id: u64, payload: Bytes, now: Duration) {
        let room = self.flows.datagrams(id).map_or(MAX_UNREAD_BYTES, Datagrams::unread_room);
        self.store_datagram(id, payload, room, now);
    }

    fn store_datagram(&mut self, id: u64, payload: Bytes, room: usize, now: Duration) {
        let memory = self.limits.datagram_memory;
        if self.datagrams.receive(&mut self.flows, id, payload, room, memory, now) {
            self.wake(id);
        }
    }

    /// Takes the oldest received datagram that has not expired.
    pub fn receive_datagram(&mut self, id: u64, now: Duration) -> Receive {
        let Some(flow) = self.flows.datagrams_mut(id) else {
            return Receive::Reset(ResetCode::Aborted);
        };
        if let Some(code) = flow.state.ended {
            return Receive::Reset(code);
        }
        let Some(payload) = self.datagrams.read(flow, now) else { return Receive::Blocked };
        self.turns.record_payload(id, &mut flow.state, received(payload.len()));
        Receive::Taken(payload)
    }

    // Sending.

    /// Queues a datagram; `max` is the largest payload that fits into a packet.
    pub fn send_datagram(
        &mut self,
        id: u64,
        payload: &[u8],
        max: usize,
        now: Duration,
    ) -> Result<(), SendError> {
        let flow = self.flows.datagrams_mut(id).ok_or(SendError::Ended(ResetCode::Aborted))?;
        if let Some(code) = flow.state.ended {
            return Err(SendError::Ended(code));
        }
        if payload.len() > max {
            return Err(SendError::TooLarge { max });
        }
        let class = flow.state.class;
        self.datagrams.push(flow, payload, self.turns.scheduler_mut(), now);
        self.drop_overflow(class, now);
        self.refresh(id, now);
        Ok(())
    }

    /// Drops datagrams of the class until they fit into its memory, each time the oldest of the flow
    /// with the most.
    pub(super) fn drop_overflow(&mut self, class: Class, now: Duration) {
        while let Some(largest) = self.turns.scheduler().drop_victim(class)
            && let Some(flow) = self.flows.datagrams_mut(largest)
            && self.datagrams.drop_oldest(flow, self.turns.scheduler_mut())
        {
            self.refresh(largest, now);
        }
    }

    /// Length of the flow's next datagram. A flow whose datagrams have all expired gives its turn up.
    pub(super) fn next_datagram_len(&mut self, id: u64, now: Duration) -> Option<usize> {
        let flow = self.flows.datagrams_mut(id)?;
        let len = self.datagrams.next_len(flow, self.turns.scheduler_mut(), now);
        if len.is_none() {
            self.refresh(id, now);
        }
        len
    }

    /// Fills a symbol with up to `room` bytes of datagrams of one class. If a `whole` packet is to
    /// be filled, a datagram that does not fit is dropped, because packets were larger when it was
    /// queued.
    pub fn fill_datagrams(
        &mut self,
        room: usize,
        whole: bool,
        out: &mut Vec<u8>,
        now: Duration,
    ) -> Option<Filled> {
        let end = out.len() + room;
        let mut filled: Option<Filled> = None;
        // The last datagram needs no length. Which one is last shows when the next does not fit.
        let mut last: Option<(u64, Bytes)> = None;
        while let Some((id, Lane::Datagram)) = self.next_turn(now) {
            let Some(len) = self.next_datagram_len(id, now) else { continue };
            let Some(class) = self.flows.get(id).map(|flow| flow.state().class) else { continue };
            let before =
                last.as_ref().map_or(0, |(id, payload)| frame::datagram_len(*id, payload.len()));
            let fits = out.len() + before + frame::datagram_head_len(id) + len <= end;
            let drops = !fits && whole && filled.is_none();
            if filled.is_some_and(|filled| filled.charge.class != class) || !(fits || drops) {
                break;
            }
            if drops {
                if let Some(flow) = self.flows.datagrams_mut(id) {
                    self.datagrams.drop_oldest(flow, self.turns.scheduler_mut());
                }
                self.refresh(id, now);
                continue;
            }
            let Some((payload, expires)) = self.pop_datagram(id, now) else { continue };
            let mut so_far =
                filled.unwrap_or(Filled { datagrams: 0, charge: PacketCharge::of(class), expires });
            so_far.datagrams += 1;
            so_far.charge.paid += frame::datagram_len(id, len);
            so_far.expires = so_far.expires.max(expires);
            filled = Some(so_far);
            if let Some((id, payload)) = last.replace((id, payload)) {
                frame::put_datagram(out, id, &payload, false);
            }
        }
        if let Some((id, payload)) = last {
            frame::put_datagram(out, id, &payload, true);
        }
        filled
    }

    /// Takes the flow's next datagram to be sent, and the time at which it expires.
    fn pop_datagram(&mut self, id: u64, now: Duration) -> Option<(Bytes, Duration)> {
        let flow = self.flows.datagrams_mut(id)?;
        let scheduler = self.turns.scheduler_mut();
        let (Popped { item, waited, .. }, expires) = self.datagrams.pop(flow, scheduler, now)?;
        self.datagrams.counts.sent += 1;
        if let Some(turn) = flow.state.turn {
            scheduler.spent_datagram(turn, frame::datagram_len(id, item.len()), waited, now);
            scheduler.record_payload(turn, sent(item.len()));
        }
        self.control.had_turn();
        self.refresh(id, now);
        Some((item, expires))
    }
}
