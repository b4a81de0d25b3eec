//! Links that grant capacity on request, as VSAT networks do (DAMA).
//!
//! A packet asks for slots and waits for them for at least a round trip. The wait looks like a
//! queue, but it stays the same at every rate up to the link's. A sender that
//! drains it requests nothing, and is granted nothing.
//!
//! The sign is a row of drains that each find a long queue gone at once, while nobody else is there.
//! Then more than the capacity is sent for longer than a request takes, whatever the queue. If all
//! of it arrives in the end, and the delay stays the same, that delay is the wait for grants. It is
//! not a queue from then on.

use std::time::Duration;

use super::arrivals::{Arrivals, Passage};
use super::flight;
use super::queue::Found;
use crate::lease::Observation;

/// Drains in a row that show grants …
const DRAINS: u32 = 4;
/// … of a queue of at least this part of a round trip …
pub const MIN_QUEUE: f64 = 0.25;
/// … with at most this many round trips between two of them.
const DRAINS_WITHIN: u32 = 20;
/// Rate of a test, relative to the capacity.
const GAIN: f64 = 1.25;
/// Length of a test, in round trips: a request to the network control centre takes one. It goes on …
const TEST: u32 = 4;
/// … while more than the capacity arrives …
const RISING: f64 = 1.1;
/// … for at most this many. A queue as long as a request has to form first.
const MAX_TEST: u32 = 8;
/// Part of a test, at its end, over which it is judged, in round trips.
const JUDGED: f64 = 1.0;
/// Share of what was sent that arrives in time if slots are granted.
pub const GRANTED: f64 = 0.96;
/// Share of the rate that has to be used for a judgement.
const USED: f64 = 0.85;
/// Round trips between two tests. A failure doubles the wait …
const WAIT_ROUND_TRIPS: u32 = 20;
/// … up to this.
const MAX_WAIT: Duration = Duration::from_secs(240);
/// Round trips in flight during a test: the path, the wait for grants, and the reports.
const IN_FLIGHT: f64 = 2.5;

/// Knowledge about grants.
#[derive(Debug, Default)]
pub struct Grants {
    drains: u32,
    drained_at: Duration,
    test: Option<Test>,
    wait: Duration,
    next_at: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Test {
    from: Duration,
    until: Duration,
    /// Capacity before it.
    capacity_bps: f64,
    bps: f64,
}

impl Grants {
    /// Forgets drains, because something else explains them.
    pub fn explained(&mut self) {
        self.drains = 0;
    }

    /// Notes a drain of a queue that was gone after it. Returns `true` if a test is due.
    pub fn drained(&mut self, found: Found, rtt: Duration, now: Duration) -> bool {
        if found.before < rtt.mul_f64(MIN_QUEUE) {
            return false;
        }
        let is_row = now < self.drained_at + rtt * DRAINS_WITHIN;
        self.drains = if is_row { self.drains + 1 } else { 1 };
        self.drained_at = now;
        self.drains >= DRAINS && now >= self.next_at
    }

    /// Begins a test of at most `max_bps`.
    pub fn begin(&mut self, capacity_bps: f64, max_bps: f64, rtt: Duration, now: Duration) {
        let (until, bps) = (now + rtt * TEST, (GAIN * capacity_bps).min(max_bps));
        self.test = Some(Test { from: now, until, capacity_bps, bps });
    }

    /// Returns `true` while a test is sent or awaits its reports.
    pub fn are_tested(&self) -> bool {
        self.test.is_some()
    }

    /// Sending rate of a test.
    pub fn rate_bps(&self, now: Duration) -> Option<f64> {
        self.test.filter(|test| now < test.until).map(|test| test.bps)
    }

    /// Bytes that may be in flight in a test.
    pub fn window_bytes(&self, rtt: Duration) -> Option<u64> {
        self.test.map(|test| flight::window(Some(test.bps), rtt.mul_f64(IN_FLIGHT)))
    }

    /// Ends a test without a result.
    pub fn interrupt(&mut self, rtt: Duration, now: Duration) {
        if self.test.take().is_some() {
            self.fail(rtt, now);
        }
    }

    /// Ends a test without grants.
    pub fn fail(&mut self, rtt: Duration, now: Duration) {
        self.drains = 0;
        self.wait = (2 * self.wait).max(rtt * WAIT_ROUND_TRIPS).min(MAX_WAIT);
        self.next_at = now + self.wait;
    }

    /// Passage of the end of a test that is reported. The test is over, or it goes on.
    pub fn end(&mut self, arrivals: &Arrivals, seen: &Observation, rtt: Duration) -> Option<Ended> {
        let mut test = self.test.filter(|test| seen.sent_at >= test.until)?;
        let from = test.until.saturating_sub(rtt.mul_f64(JUDGED));
        let passage = arrivals.between(from, test.until);
        let used = passage.filter(|passage| passage.sent_bps >= USED * test.bps);
        if let Some(passage) = used
            && passage.arrived_bps < GRANTED * passage.sent_bps
            && passage.arrived_bps >= RISING * test.capacity_bps
            && test.until < test.from + rtt * MAX_TEST
        {
            test.until = seen.now + rtt / 2;
            self.test = Some(test);
            return None;
        }
        self.test = None;
        Some(used.map_or(Ended::Unused, |passage| Ended::Measured(passage, from)))
    }
}

/// Result of a test.
pub enum Ended {
    /// Too little was sent.
    Unused,
    /// The passage of its end, and the beginning of that.
    Measured(Passage, Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn drained(grants: &mut Grants, at_s: u64, before_ms: u64) -> bool {
        let found = Found { before: Duration::from_millis(before_ms), least: Duration::ZERO };
        grants.drained(found, RTT, Duration::from_secs(at_s))
    }

    #[test]
    fn several_long_queues_in_a_row_are_tested_and_a_failure_postpones_the_next_test() {
        let mut grants = Grants::default();
        let long = |grants: &mut Grants, at_s: u64| drained(grants, at_s, 200);
        assert_eq!([1, 3, 5, 7].map(|at_s| long(&mut grants, at_s)), [false, false, false, true]);
        grants.begin(1e6, 20e6, RTT, Duration::from_secs(7));
        assert_eq!(grants.rate_bps(Duration::from_secs(8)), Some(1.25e6));
        assert_eq!(grants.rate_bps(Duration::from_secs(10)), None, "reports are awaited");
        grants.interrupt(RTT, Duration::from_secs(11));
        assert!(!grants.are_tested());
        // Twenty round trips later.
        assert_eq!([12, 13, 14, 15, 22].map(|at_s| long(&mut grants, at_s)), [false; 5]);
        assert!(long(&mut grants, 23));
    }

    #[test]
    fn short_queues_and_those_that_something_else_explains_are_not_tested() {
        let mut grants = Grants::default();
        assert!((1..20).all(|at_s| !drained(&mut grants, at_s, 40)));
        assert!((20..23).all(|at_s| !drained(&mut grants, at_s, 200)));
        grants.explained();
        assert!((23..26).all(|at_s| !drained(&mut grants, at_s, 200)));
        assert!(!drained(&mut grants, 60, 200), "long after the last one");
    }
}
