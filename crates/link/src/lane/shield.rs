//! Repairs that the datagram lane owes, and their times.
//!
//! While datagrams follow one another, repairs accrue at the ratio of their class, each over all
//! that went before it and is still of use. So every datagram is protected by several repairs at
//! different times, none of which a burst of losses that took it need take as well. When the lane
//! falls silent, what the last of them still need follows: some at once and the rest later, as at
//! the end of any burst.

use std::time::Duration;

use bentpipe_schedule::Class;

use super::segment::{Census, Rule, Segment};
use super::steady::ratio;
use crate::redundancy::Steady;

/// A gap longer than this ends what went on.
const MOST_GAP: Duration = Duration::from_millis(250);
/// Symbols that are further apart on average are each the end of a burst: the repairs that accrue
/// would come too late for them.
const MOST_MEAN_GAP: Duration = Duration::from_millis(60);
/// So many symbols without a longer gap are a flow of them.
const LEAST_STREAK: u32 = 8;
/// Repairs accrue to no more than this.
const MOST_OWED: f64 = 4.0;
/// The gaps of this many symbols make the mean.
const GAPS_IN_MEAN: u32 = 8;
/// The lane is not waited for to go on for longer than this part of a datagram's lifetime.
const SILENCE_PART: u32 = 2;

/// Symbols that follow more closely count as this far apart.
const LEAST_GAP: Duration = Duration::from_millis(1);

/// The share of a class's datagrams that may be left lost.
fn residual(class: Class) -> f64 {
    match class {
        Class::Operator | Class::Network => 0.0025,
        Class::Assured => 0.005,
        Class::BestEffort => 0.01,
        Class::LowerEffort => 0.02,
    }
}

/// More repairs per symbol than this only where the loss is higher than what they mend by more than
/// the standard error of its estimate. A repair is as long as the longest symbol that it protects, in
/// calls about a tenth longer than the mean: so many are 28 % of the bytes, and 30 % in a call of two minutes
/// in which more is lost than usual.
const MOST_UNLESS_SURE: f64 = 0.26;

/// Repairs per symbol at most, whatever is lost.
fn most_ratio(class: Class) -> f64 {
    match class {
        Class::Operator | Class::Network => 1.5,
        Class::Assured => 1.0,
        Class::BestEffort => 0.75,
        Class::LowerEffort => 0.5,
    }
}

/// Repairs per symbol of a flow: what the measured loss calls for, but no more than
/// [`MOST_UNLESS_SURE`] where that may be an estimate that came out too high.
fn affordable(flow: &Steady, rule: &Rule) -> f64 {
    let (measured, cautious) = (rule.measured.rate, rule.loss.rate);
    let ratio = flow.ratio(measured);
    if ratio <= MOST_UNLESS_SURE {
        return ratio;
    }
    let error = (cautious - measured).max(0.0);
    ratio.min(flow.ratio((measured - error).max(0.0)).max(MOST_UNLESS_SURE))
}

/// The lane's one segment, from the oldest symbol that is of use to the newest.
#[derive(Debug)]
pub struct Shield {
    segment: Segment,
    owed: f64,
    last: Option<Duration>,
    mean_gap: Duration,
    deviation: Duration,
    streak: u32,
    /// Time at which the lane counts as silent if nothing more leaves.
    silent_at: Option<Duration>,
}

impl Default for Shield {
    fn default() -> Self {
        Self {
            segment: Segment::new(0, 0, Class::default()),
            owed: 0.0,
            last: None,
            mean_gap: Duration::ZERO,
            deviation: Duration::ZERO,
            streak: 0,
            silent_at: None,
        }
    }
}

impl Shield {
    /// A symbol of `class` left, of use for `lifetime` from now; `end` is the number behind it. Where
    /// it `comes_again` in time if it is lost, repairs only spare most of its kind that wait.
    pub fn pushed(
        &mut self,
        end: u64,
        class: Class,
        lifetime: Duration,
        comes_again: bool,
        now: Duration,
        rule: &Rule,
    ) {
        self.note_gap(now);
        self.segment.end = end;
        self.segment.class = class;
        let ratio = if !rule.coded {
            0.0
        } else if comes_again {
            ratio(class, rule.measured).min(most_ratio(class))
        } else {
            affordable(&self.flow(class, lifetime, rule), rule)
        };
        self.owed = (self.owed + ratio).min(MOST_OWED);
        if !self.flows() {
            return;
        }
        // What was owed before the flow began was flushed.
        self.segment.due = None;
        let whole = self.owed as u32;
        self.owed -= f64::from(whole);
        self.segment.ready += whole;
        let patience = (self.mean_gap * 2).max(self.mean_gap + self.deviation * 4);
        self.silent_at = Some(now + patience.min(lifetime / SILENCE_PART));
    }

    /// Nothing more waits behind the newest symbol.
    pub fn ended(&mut self, now: Duration) {
        if !self.flows() {
            self.silent_at = Some(now);
        }
    }

    /// Steady source as the repairs see it.
    fn flow(&self, class: Class, lifetime: Duration, rule: &Rule) -> Steady {
        let gap = self.mean_gap.max(LEAST_GAP);
        Steady {
            sources: lifetime.div_duration_f64(gap),
            in_burst: 1.0 + rule.burst.div_duration_f64(gap),
            residual: residual(class),
            most: most_ratio(class),
        }
    }

    fn flows(&self) -> bool {
        self.streak >= LEAST_STREAK && self.mean_gap <= MOST_MEAN_GAP
    }

    fn note_gap(&mut self, now: Duration) {
        let gap = self.last.replace(now).map(|last| now.saturating_sub(last));
        let Some(gap) = gap.filter(|gap| *gap <= MOST_GAP) else {
            (self.streak, self.mean_gap, self.deviation) = (0, Duration::ZERO, Duration::ZERO);
            return;
        };
        self.streak = self.streak.saturating_add(1);
        let weight = self.streak.min(GAPS_IN_MEAN);
        let off = self.mean_gap.abs_diff(gap);
        self.deviation = (self.deviation * (weight - 1) + off) / weight;
        self.mean_gap = (self.mean_gap * (weight - 1) + gap) / weight;
    }

    /// Time at which [`Self::flush`] should be called.
    pub fn due(&self) -> Option<Duration> {
        [self.silent_at, self.segment.due].into_iter().flatten().min()
    }

    /// Repairs due by `now`: `start` is the oldest useful symbol. While datagrams wait for the link
    /// the lane is not silent, however long it takes.
    pub fn flush(
        &mut self,
        start: u64,
        waiting: bool,
        now: Duration,
        rule: &mut Rule,
        census: impl Fn(u64, u64) -> Census,
    ) {
        self.segment.start = start.min(self.segment.end);
        if self.silent_at.is_some_and(|at| at <= now) {
            self.silent_at = None;
            if !waiting {
                self.owed = 0.0;
                let repairs = self.segment.need(rule, &census);
                self.segment.plan(repairs, now, rule);
                self.segment.end_burst();
            }
        }
        if self.segment.due.is_some_and(|due| due <= now) {
            let needed = self.segment.need(rule, &census);
            self.segment.next_part(needed, now, rule);
        }
    }

    /// A report judged packets up to `largest`. Returns how many symbols are missing beyond what
    /// repairs under way will likely bring back.
    pub fn review(
        &mut self,
        start: u64,
        largest: u64,
        held: &[(u64, u64)],
        rule: &mut Rule,
        census: impl Fn(u64, u64) -> Census,
    ) -> u32 {
        self.segment.start = start.min(self.segment.end);
        self.segment.take_report(largest, held);
        if self.silent_at.is_none() {
            let needed = self.segment.need(rule, &census);
            self.segment.ready = self.segment.ready.min(needed);
        }
        let plan = self.segment.under_way(start, census(start, self.segment.end));
        let coming = f64::from(plan.repairs) * (1.0 - rule.loss.rate);
        plan.deficit.saturating_sub(coming as u32)
    }

    /// The class of the repair that waits to be sent, if one does.
    pub fn ready(&self) -> Option<Class> {
        (self.segment.ready > 0).then_some(self.segment.class)
    }

    /// A repair left in `packet`.
    pub fn sent(&mut self, packet: u64) {
        self.segment.sent(packet);
        // It is of no help to what follows.
        self.segment.end_burst();
    }

    /// No repair can be made of what is left.
    pub fn give_up(&mut self) {
        self.segment.ready = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::Loss;

    #[test]
    fn three_tenths_of_the_bytes_are_passed_only_where_the_loss_is_surely_higher() {
        let call = Steady { sources: 12.5, in_burst: 1.0, residual: 0.0025, most: 1.5 };
        let of = |measured: f64, error: f64| {
            let loss = |rate| Loss { rate, correlation: 0.0 };
            let (measured, loss) = (loss(measured), loss(measured + error));
            affordable(&call, &Rule { loss, measured, ..Rule::default() })
        };
        assert_eq!(of(0.05, 0.01), call.ratio(0.05), "less is needed");
        assert!(call.ratio(0.065) > MOST_UNLESS_SURE);
        assert_eq!(of(0.065, 0.01), MOST_UNLESS_SURE);
        assert_eq!(of(0.10, 0.01), call.ratio(0.10 - 0.01));
        assert_eq!(of(0.10, 0.0), call.ratio(0.10));
    }
}
