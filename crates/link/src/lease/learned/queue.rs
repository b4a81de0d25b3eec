//! The queue that our packets find, and the jitter of the path.

use std::time::Duration;

use super::arrivals::{ArrivalSample, Arrivals};
use super::jump;
use super::packets::PACKET_BYTES;
use super::trace::Trace;
use crate::lease::Observation;
use crate::lease::delay::Delay;

/// Queue that is tolerated, in time …
const MIN_BUDGET: Duration = Duration::from_millis(15);
/// … in packet times …
const BUDGET_PACKETS: f64 = 2.5;
/// … and in mean differences between the delays of two arrivals.
const BUDGET_JITTERS: f64 = 4.0;
/// Weight of a new difference in the mean …
const JITTER_WEIGHT: f64 = 1.0 / 32.0;
/// … and its maximum: a pause, or an outage, is not jitter.
const MAX_JITTER_S: f64 = 0.1;

/// Maximum wait for grants, in round trips.
const MAX_GRANT_DELAY: u32 = 4;
/// Arrivals in a row without a wait for grants after which the path grants nothing.
const MAX_UNGRANTED: u32 = 1000;

/// Measurement of the queue.
#[derive(Debug, Default)]
pub struct Queue {
    delay: Delay,
    newest: Duration,
    jitter_s: f64,
    drained: Option<Drained>,
    trace: Trace,
    /// Wait for grants, which is not a queue …
    grant_delay: Duration,
    /// … and the arrivals in a row that did not wait for any.
    ungranted: u32,
}

/// A drain, until the packets of a round trip after it are reported.
#[derive(Debug, Clone, Copy)]
struct Drained {
    /// Packets sent from then on find no queue of ours.
    at: Duration,
    /// Queue before.
    before: Duration,
    /// Shortest queue since.
    least: Option<Duration>,
    is_reported: bool,
}

/// Queues before and after a drain.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub before: Duration,
    pub least: Duration,
}

/// Progress of the measurement after a drain.
#[derive(Debug, Clone, Copy)]
pub enum AfterDrain {
    /// There was no drain lately.
    None,
    /// The first packets after it are reported.
    First(Found),
    /// Some packets of the round trip after it are reported.
    Some,
    /// All of them are.
    All(Found),
}

impl Queue {
    /// Minimum round trip.
    pub fn rtt(&self) -> Option<Duration> {
        self.delay.rtt()
    }

    /// Queueing delay in the newest report.
    pub fn newest(&self) -> Duration {
        self.newest
    }

    /// Wait for grants of a packet that is sent among others; zero if nothing is granted.
    pub fn grant_delay(&self) -> Duration {
        self.grant_delay
    }

    /// Takes a part of the present queue for a wait for grants.
    pub fn add_grant_delay(&mut self, wait: Duration, rtt: Duration) {
        self.grant_delay = (self.grant_delay + wait).min(rtt * MAX_GRANT_DELAY);
        self.ungranted = 0;
    }

    /// Shortest and longest queue of the packets sent since then, by bins of the trace.
    pub fn range_since(&self, from: Duration) -> (Duration, Duration) {
        self.trace.range_since(from)
    }

    /// Queue over the time of sending.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Mean difference between the delays of two arrivals, in seconds.
    pub fn jitter_s(&self) -> f64 {
        self.jitter_s
    }

    /// Queue that is tolerated at this capacity.
    pub fn budget(&self, capacity_bps: Option<f64>) -> Duration {
        let packet_s = capacity_bps.map_or(0.0, |bps| 8.0 * PACKET_BYTES as f64 / bps);
        let others = (BUDGET_PACKETS * packet_s).max(BUDGET_JITTERS * self.jitter_s);
        MIN_BUDGET.max(Duration::from_secs_f64(others.min(1.0)))
    }

    /// Notes that packets sent from `at` on find no queue of ours.
    pub fn drained(&mut self, at: Duration) {
        self.drained = Some(Drained { at, before: self.newest, least: None, is_reported: false });
    }

    /// Notes the jitter of new arrivals, and a path that became longer at once.
    pub fn note_path(
        &mut self,
        new: &[ArrivalSample],
        arrivals: &Arrivals,
        capacity_bps: Option<f64>,
    ) {
        for pair in new.windows(2) {
            let sent = pair[1].sent.saturating_sub(pair[0].sent).as_secs_f64();
            let arrived = pair[1].arrived.saturating_sub(pair[0].arrived).as_secs_f64();
            let difference = (arrived - sent).abs().min(MAX_JITTER_S);
            self.jitter_s += JITTER_WEIGHT * (difference - self.jitter_s);
        }
        // The first packet that waits for grants looks like a jump.
        if self.grant_delay.is_zero() && jump::is_jump(arrivals, self.budget(capacity_bps)) {
            self.delay.restart();
        }
    }

    /// Notes the queue that new arrivals found. Returns the shortest that a packet sent from
    /// `settled_at` on found, without the queue that `own` expects from a train.
    pub fn note(
        &mut self,
        new: &[ArrivalSample],
        seen: &Observation,
        settled_at: Duration,
        own: impl Fn(Duration) -> Duration,
    ) -> Option<Duration> {
        let mut least: Option<Duration> = None;
        for sample in new.iter().skip(usize::from(new.len() > 1)) {
            let queue = self.sample(sample, seen);
            self.newest = queue;
            self.trace.note(sample.sent, queue);
            if sample.sent >= settled_at {
                let rest = queue.saturating_sub(own(sample.sent));
                least = Some(least.map_or(rest, |least| least.min(rest)));
            }
            if let Some(drained) = self.drained.as_mut().filter(|it| sample.sent >= it.at) {
                drained.least = Some(drained.least.map_or(queue, |least| least.min(queue)));
            }
        }
        least
    }

    /// Queue that a packet met, beside its wait for grants.
    fn sample(&mut self, sample: &ArrivalSample, seen: &Observation) -> Duration {
        if self.grant_delay.is_zero() {
            return self.delay.sample(sample.sent, sample.arrived, seen.rtt, seen.now);
        }
        let wait = self.delay.excess(sample.sent, sample.arrived).min(self.grant_delay);
        self.ungranted = if wait < self.grant_delay / 2 { self.ungranted + 1 } else { 0 };
        if self.ungranted > MAX_UNGRANTED {
            self.grant_delay = Duration::ZERO;
        }
        let arrived = sample.arrived.saturating_sub(wait);
        self.delay.sample(sample.sent, arrived, seen.rtt.saturating_sub(wait), seen.now)
    }

    /// Follows the measurement of a drain in a report, over `span` after the drain.
    pub fn after_drain(&mut self, seen: &Observation, span: Duration) -> AfterDrain {
        let Some(drained) = &mut self.drained else { return AfterDrain::None };
        let Some(least) = drained.least.filter(|_| seen.sent_at >= drained.at) else {
            return AfterDrain::None;
        };
        let found = Found { before: drained.before, least };
        if seen.sent_at >= drained.at + span {
            self.drained = None;
            return AfterDrain::All(found);
        }
        if std::mem::replace(&mut drained.is_reported, true) {
            AfterDrain::Some
        } else {
            AfterDrain::First(found)
        }
    }

    /// Measures the queue from these arrivals on: the path is longer, or others keep a queue.
    pub fn restart(&mut self, new: &[ArrivalSample], seen: &Observation) {
        self.delay.restart();
        for sample in new {
            self.newest = self.delay.sample(sample.sent, sample.arrived, seen.rtt, seen.now);
        }
    }
}
