//! Which symbols of a lane repairs protect, and when the next repairs are due.
//!
//! A *segment* is a range of at most [`MAX_SPAN`] symbols that ended a flow's burst. While some of it
//! may still be missing, the segment asks for as many repairs as [`Need`] computes: half of them at
//! once, the rest in parts a little later, since losses come in bursts of time. Symbols outside every segment are
//! bulk under backlog, and are only sent again when they are reported missing.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::MAX_SPAN;

use super::steady::Accrued;
use crate::redundancy::{BATCHES, Estimator, Loss, Need, Plan, at_once};

/// Segments of a lane at once: 16 × 512 symbols.
const MAX_SEGMENTS: usize = 16;
/// Parts of the second half follow one another at this part of the delay: about a mean burst.
const DELAY_PER_PART: u32 = 3;
/// What a steady source that fell silent may ask for; what it needs is computed then.
const MOST_AFTER_SILENCE: u32 = 64;
/// When so many rounds of repairs have not helped, the missing symbols are sent again themselves:
/// the receiver may have no room to combine them.
const MAX_ROUNDS: u32 = 3;

/// What the rule of redundancy goes by.
#[derive(Debug)]
pub struct Rule {
    pub need: Need,
    pub loss: Loss,
    /// How long the first part of a flush's second half waits.
    pub delay: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        let loss = Estimator::new().loss();
        Self { need: Need::default(), loss, delay: Duration::from_millis(25) }
    }
}

/// What a range of symbols is made of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Reported missing, and not being sent again.
    pub missing: u32,
    /// Sent, or waiting to be sent again; nobody knows.
    pub in_flight: u32,
}

/// A range that is protected.
#[derive(Debug)]
pub struct Segment {
    pub start: u64,
    pub end: u64,
    /// Equations that the receiver holds for it.
    held: u64,
    /// Packets of repairs whose fate is unknown.
    repairs: VecDeque<u64>,
    ready: u32,
    /// Repairs of the second half that are left, when its next part follows, and how many parts are
    /// left with that one.
    later: u32,
    due: Option<Duration>,
    batches: u32,
    rounds: u32,
}

/// The segments of one lane, rising.
#[derive(Debug, Default)]
pub struct Guard {
    segments: VecDeque<Segment>,
}

impl Guard {
    /// Whether a symbol is left to repairs.
    pub fn covers(&self, number: u64) -> bool {
        let behind = self.segments.partition_point(|segment| segment.end <= number);
        self.segments.get(behind).is_some_and(|segment| segment.start <= number)
    }

    /// Extends protection over everything from `base` below `end`.
    pub fn extend(&mut self, base: u64, end: u64) {
        if let Some(last) = self.segments.back_mut() {
            last.start = last.start.max(base.min(last.end));
            if end - last.start <= MAX_SPAN as u64 {
                last.end = last.end.max(end);
                return;
            }
        }
        let mut start = self.segments.back().map_or(base, |last| last.end).max(base);
        // More than all segments can hold is left to reports; it is the older part.
        start = start.max(end.saturating_sub((MAX_SEGMENTS * MAX_SPAN) as u64));
        while start < end {
            let stop = end.min(start + MAX_SPAN as u64);
            if self.segments.len() == MAX_SEGMENTS {
                self.segments.pop_front();
            }
            self.segments.push_back(Segment::new(start, stop));
            start = stop;
        }
    }

    /// Asks for what the segments need now: half at once, half later.
    pub fn flush(&mut self, now: Duration, rule: &mut Rule, census: impl Fn(&Segment) -> Census) {
        for segment in &mut self.segments {
            let repairs = rule.need.repairs(segment.plan(census(segment)), rule.loss);
            let due = segment.due;
            segment.split(repairs, now, rule);
            segment.due = due.filter(|_| repairs > 0).or(segment.due);
        }
    }

    /// A steady sparse source goes on: some repairs for what is newest, and the flush later.
    pub fn accrue(&mut self, accrued: &Accrued) {
        if let Some(segment) = self.segments.back_mut() {
            segment.ready += accrued.repairs;
            segment.due = Some(accrued.silent_at);
            segment.batches = BATCHES;
            segment.later = MOST_AFTER_SILENCE;
        }
    }

    /// Nothing is heard of the repairs in flight: they count no more.
    pub fn forget_repairs(&mut self) {
        for segment in &mut self.segments {
            segment.repairs.clear();
        }
    }

    /// When [`Self::flush_rest`] should be called.
    pub fn due(&self) -> Option<Duration> {
        self.segments.iter().filter_map(|segment| segment.due).min()
    }

    /// The next parts of second halves are due.
    pub fn flush_rest(
        &mut self,
        now: Duration,
        rule: &mut Rule,
        census: impl Fn(&Segment) -> Census,
    ) {
        for segment in &mut self.segments {
            if segment.due.is_some_and(|due| due <= now) {
                // What was planned, unless a report has made it needless meanwhile.
                let needed = rule.need.repairs(segment.plan(census(segment)), rule.loss);
                segment.later = segment.later.min(needed.saturating_sub(segment.ready));
                let part = segment.later.div_ceil(segment.batches.max(1));
                segment.ready += part;
                segment.later -= part;
                segment.batches = segment.batches.saturating_sub(1);
                segment.due = (segment.later > 0).then(|| now + rule.delay / DELAY_PER_PART);
            }
        }
    }

    /// A report judged packets up to `largest`: counts anew. Returns ranges that are given up.
    pub fn review(
        &mut self,
        largest: u64,
        held: &[(u64, u64)],
        now: Duration,
        rule: &mut Rule,
        census: impl Fn(&Segment) -> Census,
    ) -> Vec<(u64, u64)> {
        let mut given_up = Vec::new();
        self.segments.retain_mut(|segment| {
            let found = census(segment);
            if found == Census::default() {
                return false;
            }
            segment.take_report(largest, held);
            let plan = segment.plan(found);
            let repairs = rule.need.repairs(plan, rule.loss);
            if segment.due.is_some() || repairs <= segment.ready {
                segment.ready = segment.ready.min(repairs);
                return true;
            }
            if plan.deficit > 0 && plan.repairs == 0 {
                segment.rounds += 1;
                if segment.rounds > MAX_ROUNDS {
                    given_up.push((segment.start, segment.end));
                    return false;
                }
            }
            segment.split(repairs, now, rule);
            true
        });
        given_up
    }

    /// The segment whose repair goes next.
    pub fn ready(&self) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.ready > 0)
    }

    /// The ready segment's repair left in `packet`.
    pub fn sent(&mut self, packet: u64) {
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.ready > 0) {
            segment.ready -= 1;
            segment.repairs.push_back(packet);
        }
    }

    /// The ready segment cannot be repaired: it is given up, as a range of symbols.
    pub fn give_up(&mut self) -> Option<(u64, u64)> {
        let at = self.segments.iter().position(|segment| segment.ready > 0)?;
        self.segments.remove(at).map(|segment| (segment.start, segment.end))
    }
}

impl Segment {
    fn new(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            held: 0,
            repairs: VecDeque::new(),
            ready: 0,
            later: 0,
            due: None,
            batches: 0,
            rounds: 0,
        }
    }

    /// Some of `repairs` now, and the rest after the rule's delay.
    fn split(&mut self, repairs: u32, now: Duration, rule: &Rule) {
        self.ready = at_once(repairs, rule.loss);
        self.later = repairs - self.ready;
        self.due = (repairs > 0).then_some(now + rule.delay);
        self.batches = BATCHES;
    }

    fn plan(&self, census: Census) -> Plan {
        let held = u32::try_from(self.held).unwrap_or(u32::MAX);
        Plan {
            deficit: census.missing.saturating_sub(held),
            sources: census.in_flight,
            repairs: self.repairs.len() as u32,
        }
    }

    fn take_report(&mut self, largest: u64, held: &[(u64, u64)]) {
        while self.repairs.front().is_some_and(|&packet| packet <= largest) {
            self.repairs.pop_front();
        }
        let ours = held.iter().filter(|(first, _)| (self.start..self.end).contains(first));
        self.held = ours.fold(0, |sum: u64, (_, equations)| sum.saturating_add(*equations));
    }
}
