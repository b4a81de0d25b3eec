//! What each passenger's streams could send, lane by lane.
//!
//! A page is many short streams, each with an end. Repairs for every one of them would take from the
//! page itself the link that it waits for: while a round trip of a passenger's bytes follows, reports
//! tell in time what was lost of those before, and nothing is protected yet.

use std::collections::BTreeMap;

use super::FlowTable;
use super::send::URGENT_BYTES;
use super::table::Flow;
use crate::Class;
use crate::lane::Lane;

/// Bytes within their credit, by reliable lane.
pub(super) type Ready = [u64; Lane::RELIABLE.len()];

/// Bytes that could leave, by passenger: no more entries than streams that have some.
#[derive(Debug, Default)]
pub(super) struct Backlog(BTreeMap<u32, Ready>);

impl Backlog {
    /// What a stream of the passenger's could send is no longer `before` but `after`.
    fn settle(&mut self, passenger: u32, before: Ready, after: Ready) {
        if before == after {
            return;
        }
        let of = self.0.entry(passenger).or_default();
        for (of, (before, after)) in of.iter_mut().zip(before.into_iter().zip(after)) {
            *of = *of - before + after;
        }
        if *of == Ready::default() {
            self.0.remove(&passenger);
        }
    }

    fn of(&self, passenger: u32, lane: Lane) -> u64 {
        self.0.get(&passenger).and_then(|ready| ready.get(lane as usize)).copied().unwrap_or(0)
    }
}

impl FlowTable {
    /// Whether so much of the passenger's follows in `lane` that reports tell in time what was lost of what
    /// left before it.
    pub(super) fn backlogged(&self, passenger: u32, lane: Lane) -> bool {
        self.backlog.of(passenger, lane) >= self.in_flight_bytes
    }

    /// Counts what the flow could send now.
    pub(super) fn count_ready(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let ready = flow.ready();
        let before = std::mem::replace(&mut flow.waiting, ready);
        self.backlog.settle(flow.passenger, before, ready);
    }

    /// The flow is over.
    pub(super) fn count_none(&mut self, passenger: u32, ready: Ready) {
        self.backlog.settle(passenger, ready, Ready::default());
    }
}

impl Flow {
    /// What could leave, by lane. A stream that was quiet counts as bulk until it goes on: that errs
    /// towards repairs.
    fn ready(&self) -> Ready {
        if !self.opened || self.ended.is_some() {
            return Ready::default();
        }
        let all = self.send.next_len(usize::MAX).0 as u64;
        let urgent = match self.class <= Class::Network {
            true => all,
            false => all.min(URGENT_BYTES.saturating_sub(self.send.burst_bytes())),
        };
        [urgent, all - urgent]
    }
}
