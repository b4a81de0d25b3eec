//! Other senders that keep a queue. Among them a CUBIC window decides, as it does for them.
//!
//! A sender that avoids queues is left with little beside one that fills them. A queue is others' if
//! a good part of it stays after ours has drained, twice in a row: other learned rates drain at the
//! same time, and the next drain finds nothing.
//!
//! Losses within the channel's own do not lower the window. From time to time this side pauses for
//! a moment. The part of the pause by which the queue becomes shorter is our share of the
//! arrivals. If it is nearly all, the others are gone.

use std::time::Duration;

use super::packets::{PACKET_BYTES, bytes_in};
use super::queue::Found;
use crate::congestion::{Allowance, Cubic};
use crate::lease::Observation;

/// Part of a queue that stays after a drain if it is others'.
const OTHERS: f64 = 0.3;
/// Minimum part of the budget that is a queue at all …
const MIN_PART: u32 = 3;
/// … and its minimum.
const MIN_QUEUE: Duration = Duration::from_millis(5);
/// Drains in a row that show others.
const DRAINS: u32 = 2;
/// Time after a competition in which one drain is enough.
const LATELY: Duration = Duration::from_secs(60);
/// Share of the capacity before others came, with which the competition begins.
const FAIR: f64 = 0.5;
/// Share of that capacity that is never given up. Any number of others keep the rest.
const FLOOR: f64 = 0.3;
/// Loss at which that capacity is too high: the path carries less now …
const TOO_MUCH: f64 = 0.1;
/// … the same for the mean loss in a queue that was always shorter than this many round trips. A sender
/// that answers no losses, as BBR, keeps such a queue full …
const TOO_MUCH_IN_SHORT: f64 = 0.2;
const SHORT_ROUND_TRIPS: f64 = 1.5;
/// … the weight of a window in that mean …
const LOSS_WEIGHT: f64 = 1.0 / 8.0;
/// … and its decrease then.
const FORGETTING: f64 = 0.9;
/// Share of that capacity from which on nobody else is there …
const ALONE: f64 = 0.92;
/// … if it arrives for this many round trips.
const ALONE_ROUND_TRIPS: u32 = 10;
/// Share of the arrivals in the queue from which on they are all ours.
const ALL_OURS: f64 = 0.85;
/// Pacing rate relative to a window per round trip, so that the window is used.
const PACING: f64 = 1.25;
/// Time for which the highest capacity is remembered.
const MEMORY: Duration = Duration::from_secs(30);
/// Time without a queue after which nobody competes, and the same in round trips.
const EMPTY: Duration = Duration::from_secs(20);
const EMPTY_ROUND_TRIPS: u32 = 40;
/// Interval of pauses that measure our share, and the same in round trips.
const TEST_EVERY: Duration = Duration::from_secs(20);
const TEST_ROUND_TRIPS: u32 = 30;
/// Tests in a row that show that the others are gone.
const TESTS: u32 = 2;
/// Interval of these tests, in round trips.
const NEXT_TEST_ROUND_TRIPS: u32 = 6;
/// Minimum queue of a test, in budgets.
const TEST_BUDGETS: u32 = 2;
/// Longest pause, as a part of the queue.
const PAUSE_PART: u32 = 2;
/// Maximum length of a pause.
const MAX_PAUSE: Duration = Duration::from_millis(80);
/// Weight of a new round trip in its mean.
const RTT_WEIGHT: f64 = 1.0 / 8.0;

/// Knowledge of other senders.
#[derive(Debug, Default)]
pub struct CrossTraffic {
    /// Drains in a row after which part of the queue stayed, and that part.
    drains: u32,
    stayed: Duration,
    /// End of the last competition, and its window.
    left: Option<(Duration, Window)>,
    peak: Peak,
    /// Longest queue beside others.
    longest_queue: Duration,
    /// `Some` while others are there.
    window: Option<Window>,
}

/// Highest capacity of the last [`MEMORY`] to twice that.
#[derive(Debug, Default)]
struct Peak {
    since: Duration,
    bps: f64,
    before_bps: f64,
}

/// The window of the competition.
#[derive(Debug)]
struct Window {
    cubic: Cubic,
    /// Capacity before others came.
    before_bps: f64,
    /// Packets sent before this met congestion that is answered already.
    recovery: Duration,
    /// Time at which the window last delayed a packet.
    limited_at: Duration,
    previous_sent_at: Duration,
    rtt_s: f64,
    /// Mean loss.
    loss: f64,
    allowance: Allowance,
    /// Time since which there is no queue.
    empty_since: Option<Duration>,
    /// Time since which nearly everything that the path carries is ours.
    alone_since: Option<Duration>,
    /// Tests in a row that showed nobody else.
    tests: u32,
    test_at: Duration,
    /// Length of the pause that measures our share.
    pause: Option<Duration>,
}

/// Reason for a queue that is left after a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is none, or it is ours.
    Ours,
    /// It may be others'.
    Unclear,
    /// The path has become longer.
    LongerPath,
    /// It is others'.
    Others,
}

/// Difference of two queues that is chance: twice the mean difference of delays, but at least this.
pub const MIN_NOISE: Duration = Duration::from_millis(3);
/// Length up to which a queue may be jitter, if that is more than [`MIN_NOISE`].
const JITTER_NOISES: u32 = 4;
/// Difference of two queues from which on the second is shorter.
const FALLING_NOISES: u32 = 2;

impl CrossTraffic {
    /// Judges the shortest queue in the round trip after a drain, which found `before`.
    pub fn judge(
        &mut self,
        found: Found,
        budget: Duration,
        noise: Duration,
        now: Duration,
    ) -> Verdict {
        let Found { before, least } = found;
        // Jitter that keeps the order looks like a queue.
        let jitter = if noise > MIN_NOISE { noise * JITTER_NOISES } else { Duration::ZERO };
        let shortest = (budget / MIN_PART).max(MIN_QUEUE).max(jitter);
        let stays = least > shortest && least > before.mul_f64(OTHERS);
        if !stays {
            self.drains = 0;
            return Verdict::Ours;
        }
        self.drains += 1;
        let previous = std::mem::replace(&mut self.stayed, least);
        if self.left.as_ref().is_some_and(|(at, _)| now < *at + LATELY) {
            return Verdict::Others;
        }
        // With jitter, a queue of ours needs several drains. It becomes shorter with each.
        let falls = noise > MIN_NOISE && least + noise * FALLING_NOISES < previous;
        if self.drains < DRAINS || falls {
            return Verdict::Unclear;
        }
        self.drains = 0;
        if previous.abs_diff(least) <= noise { Verdict::LongerPath } else { Verdict::Others }
    }

    /// Highest capacity lately, if one is known.
    pub fn peak_bps(&self) -> Option<f64> {
        Some(self.peak.bps.max(self.peak.before_bps)).filter(|bps| *bps > 0.0)
    }

    /// Notes the capacity at `now`.
    pub fn note_capacity(&mut self, bps: f64, now: Duration) {
        let peak = &mut self.peak;
        if now.saturating_sub(peak.since) > MEMORY {
            *peak = Peak { since: now, bps: 0.0, before_bps: peak.bps };
        }
        peak.bps = peak.bps.max(bps);
    }

    /// Begins to compete at the arrival rate `arrived_bps`, or at half of the capacity before. Soon
    /// after the last competition, its window decides again.
    pub fn compete(&mut self, arrived_bps: f64, seen: &Observation, rtt: Duration) {
        self.drains = 0;
        let left = self.left.take().filter(|(at, _)| seen.now < *at + LATELY);
        let (cubic, before_bps, allowance) = match left {
            Some((_, Window { cubic, before_bps, allowance, .. })) => {
                (cubic, before_bps, allowance)
            }
            None => {
                let before_bps = self.peak_bps().unwrap_or(arrived_bps).max(arrived_bps);
                let mut cubic = Cubic::new(PACKET_BYTES as usize);
                cubic.set_window(bytes_in(arrived_bps.max(FAIR * before_bps), seen.rtt));
                cubic.leave_slow_start();
                (cubic, before_bps, Allowance::default())
            }
        };
        self.window = Some(Window {
            cubic,
            before_bps,
            recovery: seen.now,
            limited_at: seen.now,
            previous_sent_at: seen.sent_at,
            rtt_s: seen.rtt.as_secs_f64(),
            loss: 0.0,
            allowance,
            empty_since: None,
            alone_since: None,
            tests: 0,
            test_at: seen.now + test_interval(rtt),
            pause: None,
        });
    }

    /// Ends the competition.
    pub fn leave(&mut self, now: Duration) {
        if let Some(window) = self.window.take() {
            self.left = Some((now, window));
        }
        self.drains = 0;
    }

    /// Returns `true` while a window decides.
    pub fn is_present(&self) -> bool {
        self.window.is_some()
    }

    /// Returns `true` if others were there lately.
    pub fn was_present(&self, now: Duration) -> bool {
        self.is_present() || self.left.as_ref().is_some_and(|(at, _)| now < *at + LATELY)
    }

    /// Bytes that may be in flight.
    pub fn window_bytes(&self) -> Option<u64> {
        self.window.as_ref().map(|window| window.cubic.window_bytes())
    }

    /// Pacing rate of the window.
    pub fn rate_bps(&self) -> Option<f64> {
        let window = self.window.as_ref()?;
        Some(PACING * 8.0 * window.cubic.window_bytes() as f64 / window.rtt_s.max(1e-3))
    }

    /// Notes that the window delays data.
    pub fn limited(&mut self, now: Duration) {
        if let Some(window) = &mut self.window {
            window.limited_at = now;
        }
    }

    /// Follows a report, whose newest packet found a `queue`, on a path with a round trip of `rtt`
    /// without it. `channel` is the channel's own loss.
    pub fn observe(&mut self, seen: &Observation, channel: f64, queue: Duration, rtt: Duration) {
        self.longest_queue = self.longest_queue.max(queue);
        let is_short = self.longest_queue < rtt.mul_f64(SHORT_ROUND_TRIPS);
        let Some(window) = &mut self.window else { return };
        window.rtt_s += RTT_WEIGHT * (seen.rtt.as_secs_f64() - window.rtt_s);
        let is_new = window.previous_sent_at >= window.recovery;
        window.previous_sent_at = window.previous_sent_at.max(seen.sent_at);
        let arrived_bytes = seen.judged_bytes.saturating_sub(seen.lost * PACKET_BYTES);
        let packets = window.cubic.window_bytes() as f64 / PACKET_BYTES as f64;
        let loss = seen.lost as f64 / seen.judged.max(1) as f64;
        window.loss += (LOSS_WEIGHT * seen.judged as f64 / packets).min(1.0) * (loss - window.loss);
        let congested = window.allowance.exceeds(seen.judged, seen.lost, channel, packets);
        if !is_new {
            return;
        }
        let rtt = Duration::from_secs_f64(window.rtt_s);
        if congested {
            window.cubic.reduce(seen.in_flight_bytes + seen.judged_bytes / 2);
            window.recovery = seen.now;
            let is_too_much =
                if is_short { window.loss > TOO_MUCH_IN_SHORT } else { loss > TOO_MUCH };
            window.keep_floor(is_too_much);
            tracing::debug!(window = window.cubic.window_bytes(), "congestion");
        } else if seen.now.saturating_sub(window.limited_at) <= rtt {
            window.cubic.avoid(arrived_bytes, rtt, seen.now);
        }
    }

    /// Returns `true` if the others are gone: nearly everything that the path carried arrives, or
    /// there has been no queue for long.
    pub fn has_gone(
        &mut self,
        arrived_bps: f64,
        queue: Duration,
        budget: Duration,
        rtt: Duration,
        now: Duration,
    ) -> bool {
        let Some(window) = &mut self.window else { return false };
        if queue > budget {
            window.empty_since = None;
        }
        if arrived_bps < ALONE * window.before_bps {
            window.alone_since = None;
        }
        let empty_since = *window.empty_since.get_or_insert(now);
        let alone_since = *window.alone_since.get_or_insert(now);
        now.saturating_sub(empty_since) > EMPTY.max(rtt * EMPTY_ROUND_TRIPS)
            || now.saturating_sub(alone_since) > rtt * ALONE_ROUND_TRIPS
    }

    /// Length of the pause that measures our share of a queue, if it is time for one.
    pub fn pause(
        &mut self,
        queue: Duration,
        budget: Duration,
        rtt: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let window = self.window.as_mut()?;
        if now < window.test_at || queue < budget * TEST_BUDGETS {
            return None;
        }
        window.test_at = now + rtt * NEXT_TEST_ROUND_TRIPS;
        window.pause = Some((queue / PAUSE_PART).min(MAX_PAUSE));
        window.pause
    }

    /// Judges a pause that began with a queue of `before`. Returns `true` if pauses in a row have made
    /// it so much shorter that all of it was ours.
    pub fn was_all_ours(&mut self, found: Found, rtt: Duration, now: Duration) -> bool {
        let Some(window) = &mut self.window else { return false };
        let Some(pause) = window.pause.take() else { return false };
        let drained = found.before.saturating_sub(found.least);
        window.tests = if drained >= pause.mul_f64(ALL_OURS) { window.tests + 1 } else { 0 };
        if window.tests == 0 {
            window.test_at = now + test_interval(rtt);
        }
        window.tests >= TESTS
    }
}

fn test_interval(rtt: Duration) -> Duration {
    TEST_EVERY.max(rtt * TEST_ROUND_TRIPS)
}

impl Window {
    /// Keeps a part of the capacity before others came, unless the path carries less now.
    fn keep_floor(&mut self, carries_less: bool) {
        let floor = bytes_in(FLOOR * self.before_bps, Duration::from_secs_f64(self.rtt_s));
        if self.cubic.window_bytes() >= floor {
            return;
        }
        if carries_less {
            self.before_bps *= FORGETTING;
        }
        self.cubic.set_window(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn judge(cross_traffic: &mut CrossTraffic, before: u64, least: u64) -> Verdict {
        let found = Found { before: ms(before), least: ms(least) };
        cross_traffic.judge(found, ms(15), ms(3), Duration::ZERO)
    }

    #[test]
    fn a_queue_that_stays_twice_and_varies_is_others() {
        let mut cross_traffic = CrossTraffic::default();
        assert_eq!(judge(&mut cross_traffic, 40, 2), Verdict::Ours);
        assert_eq!(judge(&mut cross_traffic, 40, 25), Verdict::Unclear);
        assert_eq!(judge(&mut cross_traffic, 40, 2), Verdict::Ours);
        assert_eq!(judge(&mut cross_traffic, 40, 25), Verdict::Unclear);
        assert_eq!(judge(&mut cross_traffic, 60, 35), Verdict::Others);
        assert_eq!(judge(&mut cross_traffic, 40, 40), Verdict::Unclear);
        assert_eq!(judge(&mut cross_traffic, 41, 41), Verdict::LongerPath);
        assert_eq!(judge(&mut cross_traffic, 900, 200), Verdict::Ours, "the rate has fallen again");
    }

    fn report(now: Duration, lost: u64) -> Observation {
        Observation {
            now,
            rtt: ms(100),
            sent_at: now - ms(100),
            arrived: now,
            judged: 10,
            lost,
            judged_bytes: 10 * PACKET_BYTES,
            in_flight_bytes: 60_000,
            longest_loss: lost,
        }
    }

    #[test]
    fn losses_lower_the_window_to_a_part_of_the_capacity_before() {
        let mut cross_traffic = CrossTraffic::default();
        cross_traffic.note_capacity(10e6, Duration::ZERO);
        cross_traffic.compete(1e6, &report(ms(1000), 0), ms(100));
        let window = |cross_traffic: &CrossTraffic| cross_traffic.window_bytes().unwrap();
        assert_eq!(window(&cross_traffic), 62_500, "half of 10 Mbit/s × 100 ms");
        for at in 1..200 {
            cross_traffic.observe(&report(ms(1000 + 100 * at), 1), 0.0, ms(200), ms(100));
        }
        assert_eq!(window(&cross_traffic), 37_500);
        // The path carries less than that.
        for at in 200..260 {
            cross_traffic.observe(&report(ms(1000 + 100 * at), 5), 0.0, ms(200), ms(100));
        }
        assert!(window(&cross_traffic) < 10_000, "{}", window(&cross_traffic));
    }

    #[test]
    fn in_a_short_queue_losses_that_others_do_not_answer_lower_that_part_only_if_they_are_many() {
        let mut cross_traffic = CrossTraffic::default();
        cross_traffic.note_capacity(10e6, Duration::ZERO);
        cross_traffic.compete(1e6, &report(ms(1000), 0), ms(100));
        let mut window_after = |from: u64, to: u64, lost: fn(u64) -> u64| {
            for at in from..to {
                let report = report(ms(1000 + 100 * at), lost(at));
                cross_traffic.observe(&report, 0.0, ms(100), ms(100));
            }
            cross_traffic.window_bytes().unwrap()
        };
        // 15 %, and more than a tenth in half of the reports.
        assert_eq!(window_after(1, 400, |at| 1 + at % 2), 37_500);
        let window = window_after(400, 460, |_| 5);
        assert!(window < 10_000, "{window}");
    }

    #[test]
    fn pauses_in_a_row_show_that_others_are_gone() {
        let mut cross_traffic = CrossTraffic::default();
        cross_traffic.compete(5e6, &report(ms(1000), 0), ms(100));
        let mut now = ms(1000) + TEST_EVERY;
        let mut test = |cross_traffic: &mut CrossTraffic, drained: u64| {
            now += ms(1000);
            assert_eq!(cross_traffic.pause(ms(100), ms(15), ms(100), now), Some(ms(50)));
            let found = Found { before: ms(100), least: ms(100 - drained) };
            cross_traffic.was_all_ours(found, ms(100), now)
        };
        assert!(!test(&mut cross_traffic, 48));
        assert!(test(&mut cross_traffic, 47));
    }
}
