//! Unsent bytes of each passenger's streams in a class, lane by lane.
//!
//! A page is many short streams, each with an end. Repairs for every one of them would take from the
//! page itself the link that it waits for: while a round trip of a passenger's bytes follows, reports
//! tell in time what was lost of those before, and nothing is protected yet. Bytes of another class
//! do not count, as that may wait at its ceiling.

use std::collections::BTreeMap;
use std::time::Duration;

use super::FlowTable;
use super::send::URGENT_BYTES;
use super::table::Flow;
use crate::Class;
use crate::lane::Lane;

/// Bytes within their credit, by reliable lane.
pub(super) type Ready = [u64; Lane::RELIABLE.len()];

/// Owner of bytes that are counted together: a passenger in a class.
pub(super) type Owner = (u32, Class);

/// Owner of the last deferred burst end, in each lane. One is enough: when it counts, everything of
/// the lane that is unreported is protected.
pub(super) type PutOff = [Option<Owner>; Lane::RELIABLE.len()];

/// Bytes that could leave: no more entries than streams that have some.
#[derive(Debug, Default)]
pub(super) struct Backlog(BTreeMap<Owner, Ready>);

impl Backlog {
    fn add(&mut self, owner: Owner, ready: Ready) {
        if ready != Ready::default() {
            let of = self.0.entry(owner).or_default();
            of.iter_mut().zip(ready).for_each(|(of, ready)| *of += ready);
        }
    }

    /// Takes away what was added before.
    fn take(&mut self, owner: Owner, ready: Ready) {
        let Some(of) = self.0.get_mut(&owner) else { return };
        of.iter_mut().zip(ready).for_each(|(of, ready)| *of -= ready);
        if *of == Ready::default() {
            self.0.remove(&owner);
        }
    }

    fn of(&self, owner: Owner, lane: Lane) -> u64 {
        self.0.get(&owner).and_then(|ready| ready.get(lane as usize)).copied().unwrap_or(0)
    }
}

impl FlowTable {
    /// A burst of the owner's ended in `lane`: of which class, unless that is put off.
    pub(super) fn end_burst(&mut self, owner: Owner, lane: Lane) -> Option<Class> {
        if !self.backlogged(owner, lane) {
            return Some(owner.1);
        }
        if let Some(put_off) = self.put_off.get_mut(lane as usize) {
            *put_off = Some(owner);
        }
        None
    }

    /// Class whose deferred burst end in `lane` is now due, because no further round trip of its
    /// owner's data follows: that data was sent, or will never be.
    pub fn ended_since(&mut self, lane: Lane) -> Option<Class> {
        let owner = self.put_off.get(lane as usize).copied().flatten()?;
        if self.backlogged(owner, lane) {
            return None;
        }
        self.put_off[lane as usize] = None;
        Some(owner.1)
    }

    /// Returns `true` if so much of the owner's data follows in `lane` that reports reveal losses
    /// of the earlier packets in time.
    fn backlogged(&self, owner: Owner, lane: Lane) -> bool {
        self.backlog.of(owner, lane) >= self.in_flight_bytes.max(1)
    }

    /// Counts what the flow could send now, no longer what it could before.
    pub(super) fn count_ready(&mut self, id: u64, now: Duration) {
        let quiet = self.quiet;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let counted = ((flow.passenger, flow.class), flow.ready(now, quiet));
        if counted != flow.waiting {
            let (before, was) = std::mem::replace(&mut flow.waiting, counted);
            self.backlog.take(before, was);
            self.backlog.add(counted.0, counted.1);
        }
    }

    /// The flow goes: what it could send counts no more.
    pub(super) fn count_none(&mut self, (owner, ready): (Owner, Ready)) {
        self.backlog.take(owner, ready);
    }
}

impl Flow {
    /// Bytes that could leave, by lane.
    fn ready(&self, now: Duration, quiet: Duration) -> Ready {
        if !self.opened || self.ended.is_some() {
            return Ready::default();
        }
        let all = self.send.next_len(usize::MAX).0 as u64;
        let urgent = match self.class <= Class::Network {
            true => all,
            false => all.min(URGENT_BYTES.saturating_sub(self.send.burst_bytes(now, quiet))),
        };
        [urgent, all - urgent]
    }
}
