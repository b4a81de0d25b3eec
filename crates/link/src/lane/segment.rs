//! One protected range of a lane's symbols, and its repairs.
//!
//! A repair helps only the symbols that left before it. So the need is the largest over the suffixes
//! of the segment that begin where an earlier flush ended: what was sent for older bursts does not
//! count for newer ones.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_schedule::Class;

use super::steady::Accrued;
use crate::redundancy::{BATCHES, Estimator, Loss, Need, Plan, at_once};

/// Parts of the second half follow one another at this part of the delay: about a mean burst.
const DELAY_PER_PART: u32 = 3;
/// Maximum need for repairs of a steady source that fell silent, as computed then.
const MOST_AFTER_SILENCE: u32 = 64;
/// Rounds of repairs without success after which the missing symbols themselves are sent again: the
/// receiver may have no room to combine them.
const MAX_ROUNDS: u32 = 3;
/// Suffixes looked at beside the whole; of more, the oldest count with those before them.
const MAX_SUFFIXES: usize = 4;
/// Repairs in flight for one segment; the oldest of more count as lost.
const MAX_IN_FLIGHT: usize = 1024;

/// Inputs of the redundancy rule.
#[derive(Debug)]
pub struct Rule {
    /// `true` if there are repairs at all.
    pub coded: bool,
    pub need: Need,
    /// Assumed loss: rather too much than too little.
    pub loss: Loss,
    /// Measured loss.
    pub measured: Loss,
    /// Length of a burst of losses beyond that of independent losses.
    pub burst: Duration,
    /// Delay of the first part of a flush's second half.
    pub delay: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        let loss = Estimator::new().loss();
        let (burst, delay) = (Duration::ZERO, Duration::from_millis(25));
        Self { coded: true, need: Need::default(), loss, measured: loss, burst, delay }
    }
}

/// Composition of a range of symbols.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Reported missing, and not being sent again.
    pub missing: u32,
    /// Sent, or waiting to be sent again; nobody knows.
    pub in_flight: u32,
}

/// State of a symbol that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Under way.
    InFlight,
    /// Reported missing, and left to repairs.
    Missing,
    /// Waiting to be sent again.
    Queued,
    /// It has come.
    Reported,
}

impl Census {
    /// Counts symbols by their states.
    pub fn of(states: impl Iterator<Item = State>) -> Self {
        let mut census = Self::default();
        for state in states {
            match state {
                State::InFlight | State::Queued => census.in_flight += 1,
                State::Missing => census.missing += 1,
                State::Reported => {}
            }
        }
        census
    }
}

/// A range that is protected.
#[derive(Debug)]
pub struct Segment {
    pub start: u64,
    pub end: u64,
    /// Class that asked for its repairs last, and pays for them.
    pub class: Class,
    /// Ends of earlier flushes, rising.
    bursts: VecDeque<u64>,
    /// Equations that the receiver holds: (lowest missing symbol, how many).
    held: Vec<(u64, u64)>,
    /// Repairs whose fate is unknown.
    repairs: VecDeque<InFlight>,
    /// Repairs to send now.
    pub ready: u32,
    /// Time of the next part of the second half.
    pub due: Option<Duration>,
    /// Repairs of the second half that are left, and in how many parts.
    later: u32,
    parts: u32,
    rounds: u32,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    packet: u64,
    /// The symbol behind its span.
    end: u64,
}

impl Segment {
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

    /// Another burst, up to `end`.
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
    pub fn need(&self, rule: &mut Rule, census: &impl Fn(u64, u64) -> Census) -> u32 {
        if !rule.coded {
            return 0;
        }
        let whole = std::iter::once(self.start);
        let suffixes = whole.chain(self.bursts.iter().copied().filter(|from| *from > self.start));
        let needs = suffixes.map(|from| {
            let plan = self.under_way(from, census(from, self.end));
            rule.need.repairs(plan, rule.loss)
        });
        needs.max().unwrap_or(0)
    }

    pub fn under_way(&self, from: u64, census: Census) -> Plan {
        let held = self.held.iter().filter(|(first, _)| *first >= from);
        let held: u64 = held.fold(0, |sum, (_, equations)| sum.saturating_add(*equations));
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        Plan {
            deficit: census.missing.saturating_sub(held),
            sources: census.in_flight,
            repairs: self.repairs.iter().filter(|repair| repair.end > from).count() as u32,
        }
    }

    /// Some of `repairs` now, and the rest from the rule's delay on, or as planned before.
    pub fn plan(&mut self, repairs: u32, now: Duration, rule: &Rule) {
        self.ready = at_once(repairs, rule.loss);
        self.later = repairs - self.ready;
        self.parts = BATCHES;
        self.due = (repairs > 0).then(|| self.due.unwrap_or(now + rule.delay));
    }

    /// The next part of the second half: what was planned, unless it has become needless.
    pub fn next_part(&mut self, needed: u32, now: Duration, rule: &Rule) {
        self.later = self.later.min(needed.saturating_sub(self.ready));
        let part = self.later.div_ceil(self.parts.max(1));
        self.ready += part;
        self.later -= part;
        self.parts = self.parts.saturating_sub(1);
        self.due = (self.later > 0).then(|| now + rule.delay / DELAY_PER_PART);
    }

    /// Some repairs now, and what is needed once the source has fallen silent.
    pub fn accrue(&mut self, accrued: &Accrued) {
        self.ready += accrued.repairs;
        self.due = Some(accrued.silent_at);
        self.later = MOST_AFTER_SILENCE;
        self.parts = BATCHES;
    }

    /// A repair left in `packet`.
    pub fn sent(&mut self, packet: u64) {
        self.ready = self.ready.saturating_sub(1);
        if self.repairs.len() == MAX_IN_FLIGHT {
            self.repairs.pop_front();
        }
        self.repairs.push_back(InFlight { packet, end: self.end });
    }

    /// Nothing is heard of the repairs in flight: they count no more.
    pub fn forget_repairs(&mut self) {
        self.repairs.clear();
    }

    /// A report judged packets up to `largest`.
    pub fn take_report(&mut self, largest: u64, held: &[(u64, u64)]) {
        while self.repairs.front().is_some_and(|repair| repair.packet <= largest) {
            self.repairs.pop_front();
        }
        let ours = held.iter().filter(|(first, _)| (self.start..self.end).contains(first));
        self.held = ours.copied().collect();
    }

    /// Symbols are missing although round after round of repairs has been judged.
    pub fn is_stuck(&mut self, census: &impl Fn(u64, u64) -> Census) -> bool {
        let plan = self.under_way(self.start, census(self.start, self.end));
        if plan.deficit > 0 && plan.repairs == 0 {
            self.rounds += 1;
        }
        self.rounds > MAX_ROUNDS
    }
}
