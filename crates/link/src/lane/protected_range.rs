//! One protected range of a lane's symbols, and its repairs.
//!
//! A repair helps only the symbols that were sent before it. So the need is the largest need of all
//! suffixes of the range that begin where an earlier flush ended: repairs sent for older bursts do
//! not count for newer ones.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_schedule::Class;

use super::paced_source::AccruedRepairs;
use crate::redundancy::{BATCHES, Estimator, Loss, Need, Plan, at_once};
use crate::wire::header::PacketId;

/// Divisor of the delay for the time between parts of the second half: about a mean burst.
const DELAY_PER_PART: u32 = 3;
/// Maximum number of repairs for a paced source that fell silent.
const MAX_AFTER_SILENCE: u32 = 64;
/// Rounds of repairs without success after which the missing symbols themselves are retransmitted,
/// because the receiver may have no room to combine them.
const MAX_ROUNDS: u32 = 3;
/// Maximum number of suffixes considered in addition to the whole; beyond it, the oldest suffix is
/// merged with those before it.
const MAX_SUFFIXES: usize = 4;
/// Maximum number of repairs in flight for one range; beyond it, the oldest counts as lost.
const MAX_IN_FLIGHT: usize = 1024;

/// Inputs of the computation of repairs.
#[derive(Debug)]
pub struct RepairPolicy {
    /// `true` if repairs are sent at all.
    pub coded: bool,
    pub need: Need,
    /// Assumed loss, an estimate on the high side.
    pub loss: Loss,
    /// Measured loss.
    pub measured: Loss,
    /// Length of a burst of losses beyond that of independent losses.
    pub burst: Duration,
    /// Delay of the first part of a flush's second half.
    pub delay: Duration,
    /// Another path can carry repairs, so that the first half need not wait for the end of a burst.
    pub several_paths: bool,
}

impl Default for RepairPolicy {
    fn default() -> Self {
        let loss = Estimator::new().loss();
        let (burst, delay) = (Duration::ZERO, Duration::from_millis(25));
        let need = Need::default();
        Self { coded: true, need, loss, measured: loss, burst, delay, several_paths: false }
    }
}

/// Symbols of a range by outcome.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LossCounts {
    /// Reported missing, and not to be retransmitted.
    pub missing: u32,
    /// Sent, or waiting for retransmission: the outcome is unknown.
    pub in_flight: u32,
}

/// State of a sent symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In flight.
    InFlight,
    /// Reported missing, and left to repairs.
    Missing,
    /// Waiting for retransmission.
    Queued,
    /// Arrived.
    Reported,
}

impl LossCounts {
    /// Counts symbols by their states.
    pub fn of(states: impl Iterator<Item = State>) -> Self {
        let mut counts = Self::default();
        for state in states {
            match state {
                State::InFlight | State::Queued => counts.in_flight += 1,
                State::Missing => counts.missing += 1,
                State::Reported => {}
            }
        }
        counts
    }
}

/// A range protected by repairs.
#[derive(Debug)]
pub struct ProtectedRange {
    pub start: u64,
    pub end: u64,
    /// Class that last asked for repairs, and pays for them.
    pub class: Class,
    /// Ends of earlier flushes, ascending.
    bursts: VecDeque<u64>,
    /// Equations that the receiver holds, each as (lowest missing symbol, number).
    held: Vec<(u64, u64)>,
    /// Repairs whose outcome is unknown.
    repairs: VecDeque<RepairInFlight>,
    /// Number of repairs to send now.
    pub ready: u32,
    /// Time of the next part of the second half.
    pub due: Option<Duration>,
    /// Number of repairs left of the second half, and of the parts in which they are sent.
    later: u32,
    parts: u32,
    rounds: u32,
}

#[derive(Debug, Clone, Copy)]
struct RepairInFlight {
    packet: PacketId,
    /// End of its span, exclusive.
    end: u64,
}

impl ProtectedRange {
    pub fn new(start: u64, end: u64, class: Class) -> Self {
        Self {
            start,
            end,
            class,
            bursts: VecDeque::new(),
            held: Vec::new(),
            repairs: VecDeque::new(),
            ready: 0,
            due: None,
            later: 0,
            parts: 0,
            rounds: 0,
        }
    }

    /// Adds another burst, up to `end`.
    pub fn extend(&mut self, end: u64) {
        if end > self.end {
            self.end_burst();
            self.end = end;
        }
    }

    /// Ends the burst: later symbols belong to another.
    pub fn end_burst(&mut self) {
        if self.bursts.back() != Some(&self.end) {
            if self.bursts.len() == MAX_SUFFIXES {
                self.bursts.pop_front();
            }
            self.bursts.push_back(self.end);
        }
    }

    /// Number of further repairs needed now.
    pub fn need(
        &self,
        now: Duration,
        policy: &mut RepairPolicy,
        counts: &impl Fn(u64, u64) -> LossCounts,
    ) -> u32 {
        if !policy.coded {
            return 0;
        }
        let whole = std::iter::once(self.start);
        let suffixes = whole.chain(self.bursts.iter().copied().filter(|from| *from > self.start));
        let needs = suffixes.map(|from| {
            let plan = self.under_way(from, counts(from, self.end));
            policy.need.repairs(plan, policy.loss, now)
        });
        needs.max().unwrap_or(0)
    }

    pub fn under_way(&self, from: u64, counts: LossCounts) -> Plan {
        let held = self.held.iter().filter(|(first, _)| *first >= from);
        let held: u64 = held.fold(0, |sum, (_, equations)| sum.saturating_add(*equations));
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        Plan {
            deficit: counts.missing.saturating_sub(held),
            sources: counts.in_flight,
            repairs: self.repairs.iter().filter(|repair| repair.end > from).count() as u32,
        }
    }

    /// Plans some of `repairs` now, and the rest after the policy's delay or at the time planned
    /// before.
    pub fn plan(&mut self, repairs: u32, now: Duration, policy: &RepairPolicy) {
        self.ready = at_once(repairs, policy.loss);
        if policy.several_paths {
            let bursty = policy.loss.burstiness() / 2.0;
            self.ready = self.ready.max((f64::from(repairs) * (1.0 - bursty)).ceil() as u32);
        }
        self.later = repairs - self.ready;
        self.parts = BATCHES;
        self.due = (repairs > 0).then(|| self.due.unwrap_or(now + policy.delay));
    }

    /// Plans the next part of the second half as far as it is still needed.
    pub fn next_part(&mut self, needed: u32, now: Duration, policy: &RepairPolicy) {
        self.later = self.later.min(needed.saturating_sub(self.ready));
        let part = self.later.div_ceil(self.parts.max(1));
        self.ready += part;
        self.later -= part;
        self.parts = self.parts.saturating_sub(1);
        self.due = (self.later > 0).then(|| now + policy.delay / DELAY_PER_PART);
    }

    /// Plans some repairs now, and what is needed once the source falls silent.
    pub fn accrue(&mut self, accrued: &AccruedRepairs) {
        self.ready += accrued.repairs;
        self.due = Some(accrued.silent_at);
        self.later = MAX_AFTER_SILENCE;
        self.parts = BATCHES;
    }

    /// Notes that a repair was sent in `packet`.
    pub fn sent(&mut self, packet: PacketId) {
        self.ready = self.ready.saturating_sub(1);
        if self.repairs.len() == MAX_IN_FLIGHT {
            self.repairs.pop_front();
        }
        self.repairs.push_back(RepairInFlight { packet, end: self.end });
    }

    /// Stops counting the repairs in flight, because the peer is silent.
    pub fn forget_repairs(&mut self) {
        self.repairs.clear();
    }

    /// Stops counting the repairs in flight on `path`, because nothing arrives there.
    pub fn forget_repairs_on(&mut self, path: u8) {
        self.repairs.retain(|repair| repair.packet.path != path);
    }

    /// Returns `true` if a repair is in flight on `path`.
    pub fn is_on_path(&self, path: u8) -> bool {
        self.repairs.iter().any(|repair| repair.packet.path == path)
    }

    /// Notes a report that judged the packets of a path up to `largest`.
    pub fn take_report(&mut self, largest: PacketId, held: &[(u64, u64)]) {
        self.repairs.retain(|repair| {
            let PacketId { path, number } = repair.packet;
            path != largest.path || number > largest.number
        });
        let ours = held.iter().filter(|(first, _)| (self.start..self.end).contains(first));
        self.held = ours.copied().collect();
    }

    /// Returns `true` if symbols are still missing after several rounds of judged repairs.
    pub fn is_stuck(&mut self, counts: &impl Fn(u64, u64) -> LossCounts) -> bool {
        let plan = self.under_way(self.start, counts(self.start, self.end));
        if plan.deficit > 0 && plan.repairs == 0 {
            self.rounds += 1;
        }
        self.rounds > MAX_ROUNDS
    }
}
