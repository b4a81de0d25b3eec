//! Memory that all datagram flows share, and the path by which their queues are judged.

use std::time::Duration;

use bentpipe_schedule::{DatagramQueue, DropReason, Dropped, Handle, Params, Popped, Scheduler};
use bentpipe_units::BitRate;
use bytes::Bytes;

use super::limits::DATAGRAM_COST_BYTES;
use super::pre_open::PreOpenBuffer;
use super::quota::DatagramQuota;
use super::recv_queue::{MAX_UNREAD_BYTES, RecvQueue};
use super::reorder::{MAX_FLOW_BYTES, ReorderBuffer};
use super::state::{DatagramFlow, FlowMap};
use crate::settings::MIN_MTU_BYTES;

/// Minimum interval between searches of all flows for expired unread datagrams.
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

/// State that all datagram flows share.
#[derive(Debug)]
pub struct Datagrams {
    /// Open flows by passenger.
    pub quota: DatagramQuota,
    /// Datagrams whose flow has not been opened yet.
    pub pre_open: PreOpenBuffer,
    /// Datagrams that wait for those sent before them.
    pub reorder: ReorderBuffer,
    pub counts: DatagramCounts,
    /// Time of the last search of all flows for expired unread datagrams.
    swept: Option<Duration>,
    /// Bytes that wait to be sent, over all flows.
    outgoing_bytes: u64,
    /// Bytes that wait to be read, over all flows.
    incoming_bytes: u64,
    round_trip: Duration,
    rate: Option<BitRate>,
    packet_bytes: usize,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self {
            quota: DatagramQuota::default(),
            pre_open: PreOpenBuffer::default(),
            reorder: ReorderBuffer::default(),
            counts: DatagramCounts::default(),
            swept: None,
            outgoing_bytes: 0,
            incoming_bytes: 0,
            round_trip: Duration::from_secs(1),
            rate: None,
            packet_bytes: MIN_MTU_BYTES,
        }
    }
}

impl Datagrams {
    /// Sets the path's properties, by which queues are judged.
    pub fn set_path(&mut self, round_trip: Duration, rate: BitRate, packet_bytes: usize) {
        (self.round_trip, self.packet_bytes) = (round_trip, packet_bytes);
        self.rate = Some(rate).filter(|rate| rate.bps() > 0);
    }

    /// Datagrams counted so far.
    pub fn counts(&self) -> DatagramCounts {
        let dropped = self.counts.dropped + self.pre_open.dropped();
        DatagramCounts { dropped, ..self.counts }
    }

    /// Memory of all datagrams.
    pub fn held_bytes(&self) -> u64 {
        let waiting = self.pre_open.held_bytes() + self.reorder.held_bytes();
        self.outgoing_bytes + self.incoming_bytes + waiting as u64
    }

    /// Returns `true` if datagrams wait to be sent.
    pub fn has_outgoing(&self) -> bool {
        self.outgoing_bytes > 0
    }

    #[cfg(test)]
    pub fn incoming_bytes(&self) -> u64 {
        self.incoming_bytes
    }

    // To be sent.

    /// Queues a datagram to be sent.
    pub fn push(
        &mut self,
        flow: &mut DatagramFlow,
        payload: &[u8],
        scheduler: &mut Scheduler,
        now: Duration,
    ) {
        let bytes = payload.len() + DATAGRAM_COST_BYTES;
        flow.outgoing.push(Bytes::copy_from_slice(payload), bytes, now);
        flow.state.active = now;
        self.outgoing_bytes += bytes as u64;
        if let Some(turn) = flow.state.turn {
            scheduler.queued(turn, bytes);
        }
    }

    /// Length of the flow's next datagram, after the removal of datagrams that are no longer useful.
    pub fn next_len(
        &mut self,
        flow: &mut DatagramFlow,
        scheduler: &mut Scheduler,
        now: Duration,
    ) -> Option<usize> {
        let (turn, params) = (flow.state.turn, self.params(flow));
        let mut dropped = Vec::new();
        let bytes = flow.outgoing.ready(now, &params, |datagram| dropped.push(datagram));
        dropped.iter().for_each(|datagram| self.count_drop(turn, datagram, scheduler));
        bytes.map(|bytes| bytes - DATAGRAM_COST_BYTES)
    }

    /// Takes the flow's next datagram, and the time at which it expires.
    pub fn pop(
        &mut self,
        flow: &mut DatagramFlow,
        scheduler: &mut Scheduler,
        now: Duration,
    ) -> Option<(Popped<Bytes>, Duration)> {
        let (turn, params) = (flow.state.turn, self.params(flow));
        let mut dropped = Vec::new();
        let popped = flow.outgoing.pop(now, &params, |datagram| dropped.push(datagram));
        dropped.iter().for_each(|datagram| self.count_drop(turn, datagram, scheduler));
        let popped = popped?;
        self.outgoing_bytes -= popped.bytes as u64;
        if let Some(turn) = turn {
            scheduler.unqueued(turn, popped.bytes);
        }
        let expires = now + flow.lifetime.saturating_sub(popped.waited);
        Some((popped, expires))
    }

    /// Drops the oldest datagram that waits to be sent. Returns `false` if there is none.
    pub fn drop_oldest(&mut self, flow: &mut DatagramFlow, scheduler: &mut Scheduler) -> bool {
        let dropped = flow.outgoing.drop_head();
        if let Some(dropped) = &dropped {
            self.count_drop(flow.state.turn, dropped, scheduler);
        }
        dropped.is_some()
    }

    fn params(&self, flow: &DatagramFlow) -> Params {
        Params::new(self.round_trip, self.rate, self.packet_bytes, flow.lifetime)
    }

    /// Accounts for a datagram that left its queue without being sent.
    fn count_drop(
        &mut self,
        turn: Option<Handle>,
        dropped: &Dropped<Bytes>,
        scheduler: &mut Scheduler,
    ) {
        self.outgoing_bytes -= dropped.bytes as u64;
        if let Some(turn) = turn {
            scheduler.dropped(turn, dropped.bytes);
        }
        match dropped.reason {
            DropReason::Expired => self.counts.expired += 1,
            DropReason::Standing | DropReason::Overflow => self.counts.dropped += 1,
        }
    }

    // Received.

    /// Unread bytes that the flow may hold when a datagram arrives.
    pub fn unread_room(flow: &DatagramFlow) -> usize {
        // What was just released in order has not been read when the next datagram arrives.
        MAX_UNREAD_BYTES + if flow.keeps_order { MAX_FLOW_BYTES } else { 0 }
    }

    /// Stores a received datagram of flow `id`, which may hold `room` unread bytes; all flows
    /// together may hold `memory`. If the reader does not keep up, the flow's oldest datagrams are
    /// dropped. Returns `true` if the reader should be woken.
    pub fn receive(
        &mut self,
        flows: &mut FlowMap,
        id: u64,
        payload: Bytes,
        room: usize,
        memory: u64,
        now: Duration,
    ) -> bool {
        let bytes = RecvQueue::cost(&payload);
        if let Some(flow) = flows.datagrams_mut(id) {
            self.expire_unread(flow, now);
        }
        if self.incoming_bytes + bytes as u64 > memory {
            self.sweep_unread(flows, now);
        }
        let flow = flows.datagrams_mut(id).filter(|flow| flow.state.ended.is_none());
        let Some(flow) = flow else {
            self.counts.unknown += 1;
            return false;
        };
        flow.state.active = now;
        while flow.incoming.bytes() + bytes > room || self.incoming_bytes + bytes as u64 > memory {
            self.counts.dropped += 1;
            // If other flows occupy all of the memory, the new datagram is the one to go.
            let Some(oldest) = flow.incoming.pop() else { return false };
            self.incoming_bytes -= RecvQueue::cost(&oldest) as u64;
        }
        self.counts.received += 1;
        self.incoming_bytes += bytes as u64;
        flow.incoming.push(payload, now);
        flow.incoming.len() == 1
    }

    /// Takes the flow's oldest unread datagram that has not expired.
    pub fn read(&mut self, flow: &mut DatagramFlow, now: Duration) -> Option<Bytes> {
        self.expire_unread(flow, now);
        let payload = flow.incoming.pop()?;
        flow.state.active = now;
        self.incoming_bytes -= RecvQueue::cost(&payload) as u64;
        Some(payload)
    }

    /// Drops expired unread datagrams of all flows, at most once within [`SWEEP_GAP`].
    pub fn sweep_unread(&mut self, flows: &mut FlowMap, now: Duration) {
        if self.swept.is_some_and(|swept| now < swept + SWEEP_GAP) {
            return;
        }
        self.swept = Some(now);
        for flow in flows.all_datagrams_mut() {
            self.expire_unread(flow, now);
        }
    }

    fn expire_unread(&mut self, flow: &mut DatagramFlow, now: Duration) {
        let before = flow.incoming.bytes();
        self.counts.dropped += flow.incoming.expire(flow.lifetime, now);
        self.incoming_bytes -= (before - flow.incoming.bytes()) as u64;
    }

    /// Drops all datagrams of a flow that ended, and frees its place in the quota.
    pub fn end(&mut self, id: u64, flow: &mut DatagramFlow, scheduler: &mut Scheduler) {
        while self.drop_oldest(flow, scheduler) {}
        self.counts.dropped += flow.incoming.len() as u64;
        self.outgoing_bytes -= flow.outgoing.bytes();
        self.incoming_bytes -= flow.incoming.bytes() as u64;
        (flow.outgoing, flow.incoming) = (DatagramQueue::new(), RecvQueue::default());
        self.quota.leave(flow.state.passenger, id);
    }
}
