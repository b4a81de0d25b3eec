//! Memory of datagram flows: the queues of each, and their sums.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_schedule::{
    Class, DatagramQueue, DropReason, Dropped, Handle, Params, Popped, Scheduler,
};
use bentpipe_units::BitRate;
use bytes::Bytes;

use super::crowd::Crowd;
use super::early::Early;
use super::order::Order;
use super::table::Control;
use super::unread::Unread;
use crate::code::ResetCode;
use crate::settings::MIN_MTU_BYTES;
use crate::target::Target;

/// Size that a datagram counts in addition to its payload, so that empty ones are bounded too.
pub const DATAGRAM_COST_BYTES: usize = 64;

/// All flows are looked through for what nobody read no more often than this.
const SWEEP_GAP: Duration = Duration::from_secs(1);

/// Datagrams counted since the session began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DatagramCounts {
    pub sent: u64,
    pub received: u64,
    pub expired: u64,
    pub dropped: u64,
    pub early: u64,
    pub unknown: u64,
}

/// One flow.
#[derive(Debug)]
pub struct DatagramFlow {
    /// Destination, and IP protocol.
    pub target: Target,
    pub protocol: u8,
    pub class: Class,
    pub passenger: u32,
    /// Its place in the scheduler.
    pub turn: Handle,
    pub lifetime: Duration,
    pub outgoing: DatagramQueue<Bytes>,
    pub incoming: Unread,
    /// Received datagrams wait for those that were sent before them.
    pub keeps_order: bool,
    /// Datagrams may be sent: our opening has left, or the peer's has come.
    pub opened: bool,
    pub ended: Option<ResetCode>,
    /// Nobody holds the flow any more.
    pub released: bool,
    pub active: Duration,
    pub control: Control,
}

/// State shared by all datagram flows.
#[derive(Debug)]
pub struct Datagrams {
    pub flows: BTreeMap<u64, DatagramFlow>,
    /// Owners of the flows that are not over.
    pub crowd: Crowd,
    /// Time of the last search for unread datagrams, over all flows.
    pub swept: Option<Duration>,
    pub early: Early,
    /// Datagrams that wait for those sent before them.
    pub order: Order,
    /// Held in the queues of all flows, to be sent and to be read.
    pub outgoing_bytes: u64,
    pub incoming_bytes: u64,
    pub round_trip: Duration,
    pub rate: Option<BitRate>,
    pub packet_bytes: usize,
    pub counts: DatagramCounts,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            crowd: Crowd::default(),
            swept: None,
            early: Early::default(),
            order: Order::default(),
            outgoing_bytes: 0,
            incoming_bytes: 0,
            round_trip: Duration::from_secs(1),
            rate: None,
            packet_bytes: MIN_MTU_BYTES,
            counts: DatagramCounts::default(),
        }
    }
}

impl Datagrams {
    /// The memory of all.
    pub fn held_bytes(&self) -> u64 {
        let waiting = self.early.held_bytes() + self.order.held_bytes();
        self.outgoing_bytes + self.incoming_bytes + waiting as u64
    }

    /// Returns `true` if the flow's datagrams wait for those sent before them.
    pub fn keeps_order(&self, id: u64) -> bool {
        self.flows.get(&id).is_some_and(|flow| flow.keeps_order)
    }

    /// The length of the flow's next datagram; those that are not worth sending any more go.
    pub fn next_len(&mut self, id: u64, scheduler: &mut Scheduler, now: Duration) -> Option<usize> {
        let (flow, params) = self.judged(id)?;
        let turn = flow.turn;
        let mut gone = Vec::new();
        let bytes = flow.outgoing.ready(now, &params, |dropped| gone.push(dropped));
        gone.iter().for_each(|dropped| self.count(turn, dropped, scheduler));
        bytes.map(|bytes| bytes - DATAGRAM_COST_BYTES)
    }

    /// Takes the flow's next datagram, and when it is of no use any more.
    pub fn pop(
        &mut self,
        id: u64,
        scheduler: &mut Scheduler,
        now: Duration,
    ) -> Option<(Popped<Bytes>, Duration)> {
        let (flow, params) = self.judged(id)?;
        let (turn, lifetime) = (flow.turn, flow.lifetime);
        let mut gone = Vec::new();
        let popped = flow.outgoing.pop(now, &params, |dropped| gone.push(dropped));
        gone.iter().for_each(|dropped| self.count(turn, dropped, scheduler));
        let popped = popped?;
        self.outgoing_bytes -= popped.bytes as u64;
        scheduler.unqueued(turn, popped.bytes);
        let expires = now + lifetime.saturating_sub(popped.waited);
        Some((popped, expires))
    }

    /// The flow, and how its queue is judged.
    fn judged(&mut self, id: u64) -> Option<(&mut DatagramFlow, Params)> {
        let flow = self.flows.get_mut(&id)?;
        let params = Params::new(self.round_trip, self.rate, self.packet_bytes, flow.lifetime);
        Some((flow, params))
    }

    /// A datagram left its queue without being sent.
    pub fn count(&mut self, turn: Handle, dropped: &Dropped<Bytes>, scheduler: &mut Scheduler) {
        self.outgoing_bytes -= dropped.bytes as u64;
        scheduler.dropped(turn, dropped.bytes);
        match dropped.reason {
            DropReason::Expired => self.counts.expired += 1,
            DropReason::Standing | DropReason::Overflow => self.counts.dropped += 1,
        }
    }

    /// Drops what came for the flow and was not read while it was of use.
    pub fn expire_unread(&mut self, id: u64, now: Duration) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let before = flow.incoming.bytes();
        self.counts.dropped += flow.incoming.expire(flow.lifetime, now);
        self.incoming_bytes -= (before - flow.incoming.bytes()) as u64;
    }

    /// The same of all flows, but not again within [`SWEEP_GAP`].
    pub fn sweep_unread(&mut self, now: Duration) {
        if self.swept.is_some_and(|swept| now < swept + SWEEP_GAP) {
            return;
        }
        self.swept = Some(now);
        let ids: Vec<u64> = self.flows.keys().copied().collect();
        for id in ids {
            self.expire_unread(id, now);
        }
    }

    /// Drops all that the flow holds.
    pub fn forget(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        self.outgoing_bytes -= flow.outgoing.bytes();
        self.incoming_bytes -= flow.incoming.bytes() as u64;
        (flow.outgoing, flow.incoming) = (DatagramQueue::new(), Unread::default());
    }
}
