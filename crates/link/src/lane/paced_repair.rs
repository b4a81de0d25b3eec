//! Repairs of the datagram lane, and their times.
//!
//! While datagrams follow one another, repairs accrue at the ratio of their class, each over all
//! earlier symbols that are still useful. So several repairs protect every datagram at different
//! times, and a burst of losses that takes the datagram need not take all of them. When the lane
//! falls silent, the repairs that the last symbols still need follow: some at once and the rest
//! later, as at the end of any burst.

use std::time::Duration;

use bentpipe_schedule::Class;

use super::paced_source::ratio;
use super::protected_range::{LossCounts, ProtectedRange, RepairPolicy};
use crate::redundancy::PacedFlow;
use crate::wire::header::PacketId;

/// Maximum gap between symbols of a paced source.
const MAX_GAP: Duration = Duration::from_millis(250);
/// Maximum mean gap of a paced source. Symbols further apart are each the end of a burst, because
/// accrued repairs would be too late for them.
const MAX_MEAN_GAP: Duration = Duration::from_millis(60);
/// Number of symbols without a longer gap that make a paced source.
const MIN_STREAK: u32 = 8;
/// Maximum of accrued repairs.
const MAX_OWED: f64 = 4.0;
/// Number of gaps in the mean.
const GAPS_IN_MEAN: u32 = 8;
/// Divisor of a datagram's lifetime for the longest wait until the lane counts as silent.
const SILENCE_PART: u32 = 2;

/// Minimum gap between symbols; closer ones count as this far apart.
const MIN_GAP: Duration = Duration::from_millis(1);

/// Share of a class's datagrams that may stay lost.
fn residual(class: Class) -> f64 {
    match class {
        Class::Operator | Class::Network => 0.0025,
        Class::Assured => 0.005,
        Class::BestEffort => 0.01,
        Class::LowerEffort => 0.02,
    }
}

/// Maximum number of repairs per symbol, unless the loss exceeds what they recover by more than the
/// standard error of its estimate. A repair is as long as the longest symbol it protects; in calls
/// that is about a tenth above the mean. So this ratio is 28 % of the bytes, and 30 % in a call of
/// two minutes with more losses than usual.
const MAX_UNLESS_SURE: f64 = 0.26;

/// Maximum number of repairs per symbol at any loss.
fn max_ratio(class: Class) -> f64 {
    match class {
        Class::Operator | Class::Network => 1.5,
        Class::Assured => 1.0,
        Class::BestEffort => 0.75,
        Class::LowerEffort => 0.5,
    }
}

/// Repairs per symbol of a source: as many as the measured loss requires, but no more than
/// [`MAX_UNLESS_SURE`] if the estimate may be too high.
fn affordable(flow: &PacedFlow, policy: &RepairPolicy) -> f64 {
    let (measured, cautious) = (policy.measured.rate, policy.loss.rate);
    let ratio = flow.ratio(measured);
    if ratio <= MAX_UNLESS_SURE {
        return ratio;
    }
    let error = (cautious - measured).max(0.0);
    ratio.min(flow.ratio((measured - error).max(0.0)).max(MAX_UNLESS_SURE))
}

/// Repairs of the lane's one range, from the oldest useful symbol to the newest.
#[derive(Debug)]
pub struct PacedRepair {
    range: ProtectedRange,
    owed: f64,
    last: Option<Duration>,
    mean_gap: Duration,
    deviation: Duration,
    streak: u32,
    /// Time at which the lane counts as silent if nothing more is sent.
    silent_at: Option<Duration>,
}

impl Default for PacedRepair {
    fn default() -> Self {
        Self {
            range: ProtectedRange::new(0, 0, Class::default()),
            owed: 0.0,
            last: None,
            mean_gap: Duration::ZERO,
            deviation: Duration::ZERO,
            streak: 0,
            silent_at: None,
        }
    }
}

impl PacedRepair {
    /// Notes that a symbol of `class` was sent, useful for `lifetime` from now; `end` is the next
    /// number. If a loss `is_retransmitted` in time, repairs serve only to spare most symbols that
    /// wait.
    pub fn pushed(
        &mut self,
        end: u64,
        class: Class,
        lifetime: Duration,
        is_retransmitted: bool,
        now: Duration,
        policy: &RepairPolicy,
    ) {
        self.note_gap(now);
        self.range.end = end;
        self.range.class = class;
        let ratio = if !policy.coded {
            0.0
        } else if is_retransmitted {
            ratio(class, policy.measured).min(max_ratio(class))
        } else {
            affordable(&self.flow(class, lifetime, policy), policy)
        };
        self.owed = (self.owed + ratio).min(MAX_OWED);
        if !self.is_paced() {
            return;
        }
        // Repairs owed before the source became paced were flushed.
        self.range.due = None;
        let whole = self.owed as u32;
        self.owed -= f64::from(whole);
        self.range.ready += whole;
        let patience = (self.mean_gap * 2).max(self.mean_gap + self.deviation * 4);
        self.silent_at = Some(now + patience.min(lifetime / SILENCE_PART));
    }

    /// Notes that no datagram waits after the newest symbol.
    pub fn ended(&mut self, now: Duration) {
        if !self.is_paced() {
            self.silent_at = Some(now);
        }
    }

    /// The source as the computation of repairs sees it.
    fn flow(&self, class: Class, lifetime: Duration, policy: &RepairPolicy) -> PacedFlow {
        let gap = self.mean_gap.max(MIN_GAP);
        PacedFlow {
            sources: lifetime.div_duration_f64(gap),
            in_burst: 1.0 + policy.burst.div_duration_f64(gap),
            residual: residual(class),
            max: max_ratio(class),
        }
    }

    fn is_paced(&self) -> bool {
        self.streak >= MIN_STREAK && self.mean_gap <= MAX_MEAN_GAP
    }

    fn note_gap(&mut self, now: Duration) {
        let gap = self.last.replace(now).map(|last| now.saturating_sub(last));
        let Some(gap) = gap.filter(|gap| *gap <= MAX_GAP) else {
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
        [self.silent_at, self.range.due].into_iter().flatten().min()
    }

    /// Prepares the repairs due by `now`; `start` is the oldest useful symbol. The lane is not
    /// silent while datagrams wait for the link, however long that takes.
    pub fn flush(
        &mut self,
        start: u64,
        waiting: bool,
        now: Duration,
        policy: &mut RepairPolicy,
        counts: impl Fn(u64, u64) -> LossCounts,
    ) {
        self.range.start = start.min(self.range.end);
        if self.silent_at.is_some_and(|at| at <= now) {
            self.silent_at = None;
            if !waiting {
                self.owed = 0.0;
                let repairs = self.range.need(now, policy, &counts);
                self.range.plan(repairs, now, policy);
                self.range.end_burst();
            }
        }
        if self.range.due.is_some_and(|due| due <= now) {
            let needed = self.range.need(now, policy, &counts);
            self.range.next_part(needed, now, policy);
        }
    }

    /// Handles a report that judged packets up to `largest`. Returns the number of missing symbols
    /// that the repairs in flight will probably not recover.
    pub fn review(
        &mut self,
        start: u64,
        largest: PacketId,
        held: &[(u64, u64)],
        now: Duration,
        policy: &mut RepairPolicy,
        counts: impl Fn(u64, u64) -> LossCounts,
    ) -> u32 {
        self.range.start = start.min(self.range.end);
        self.range.take_report(largest, held);
        if self.silent_at.is_none() {
            let needed = self.range.need(now, policy, &counts);
            self.range.ready = self.range.ready.min(needed);
        }
        let plan = self.range.under_way(start, counts(start, self.range.end));
        let coming = f64::from(plan.repairs) * (1.0 - policy.loss.rate);
        plan.deficit.saturating_sub(coming as u32)
    }

    /// Class of the waiting repair, if there is one.
    pub fn ready(&self) -> Option<Class> {
        (self.range.ready > 0).then_some(self.range.class)
    }

    /// Notes that a repair was sent in `packet`.
    pub fn sent(&mut self, packet: PacketId) {
        self.range.sent(packet);
        // The repair does not help later symbols.
        self.range.end_burst();
    }

    /// Gives up the waiting repairs, because nothing is left to repair.
    pub fn give_up(&mut self) {
        self.range.ready = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::Loss;

    #[test]
    fn repairs_exceed_three_tenths_of_the_bytes_only_if_the_loss_is_surely_higher() {
        let call = PacedFlow { sources: 12.5, in_burst: 1.0, residual: 0.0025, max: 1.5 };
        let of = |measured: f64, error: f64| {
            let loss = |rate| Loss { rate, correlation: 0.0 };
            let (measured, loss) = (loss(measured), loss(measured + error));
            affordable(&call, &RepairPolicy { loss, measured, ..RepairPolicy::default() })
        };
        assert_eq!(of(0.05, 0.01), call.ratio(0.05), "less is needed");
        assert!(call.ratio(0.065) > MAX_UNLESS_SURE);
        assert_eq!(of(0.065, 0.01), MAX_UNLESS_SURE);
        assert_eq!(of(0.10, 0.01), call.ratio(0.10 - 0.01));
        assert_eq!(of(0.10, 0.0), call.ratio(0.10));
    }
}
