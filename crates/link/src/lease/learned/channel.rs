//! The channel's own loss, for a sender whose rate a congestion window decides.
//!
//! A full queue, an active queue and a policer lose packets too. They lose them when more is sent, so
//! that some packets say nothing about the channel:
//!
//! - Packets that met a queue. They can only show that the channel loses less than it did.
//! - Packets of a round trip in which nearly as much was sent as in any of those before, or much more
//!   than in those after it.
//! - Packets of a round trip with many losses, unless as many are lost in the next ones.

use std::collections::VecDeque;
use std::time::Duration;

use super::arrivals::{ArrivalSample, Arrivals};
use super::queue::Queue;
use crate::lease::Observation;
use crate::lease::baseline::Baseline;

/// Divisor of the round trip for the longest queue in which a loss may be the channel's …
const SHORT_PART: u32 = 40;
/// … its minimum …
const MIN_SHORT: Duration = Duration::from_millis(5);
/// … and its minimum in mean differences of delay, if jitter hides such a queue.
const SHORT_JITTERS: f64 = 4.0;
/// Ratio of a queue that discards a round to a short one.
const LONG: u32 = 3;
/// Divisor of the round trip for a queue that is long for a window, whatever the channel loses.
const FULL_PART: u32 = 2;
/// Minimum number of packets in a round.
const MIN_PACKETS: u64 = 8;
/// Rounds before a round with which it is compared …
const BEFORE: usize = 4;
/// … and after it.
const AFTER: usize = 3;
/// Share of the highest rate before up to which a round is judged.
const BELOW_PEAK: f64 = 0.9;
/// Share of a round's rate that the median of the later ones has at least, if its window was not far
/// too large. A single loss lowers a window to 0.7.
const SETTLED: f64 = 0.6;
/// Losses beyond those known that are the channel's only if they persist …
const SEVERE: f64 = 0.10;
/// … for as many rounds.
const PERSISTENT_ROUNDS: u32 = 4;
/// Rounds with losses that prove a loss of the channel. One may be a burst of congestion.
const PROVING_ROUNDS: u32 = 4;

/// Measurement of the channel's loss.
#[derive(Debug)]
pub struct Channel {
    arrivals: Arrivals,
    queue: Queue,
    baseline: Baseline,
    round: Option<Round>,
    /// The last rounds, oldest first. The fifth is judged next.
    rounds: VecDeque<Round>,
    /// Rounds in a row with many losses.
    severe_rounds: u32,
    /// Rounds with losses that were learned from.
    lossy_rounds: u32,
    /// The last report found a queue.
    had_queue: bool,
    /// The packets of the last report met no queue.
    is_clear: bool,
    /// The last report found a long queue.
    is_full: bool,
}

/// Packets of a round trip.
#[derive(Debug, Clone, Copy)]
struct Round {
    began: Duration,
    packets: u64,
    lost: u64,
    bytes: u64,
    /// Sending rate, once the round is over.
    bps: f64,
}

impl Channel {
    /// Creates a measurement that knows nothing.
    pub fn new() -> Self {
        let mut baseline = Baseline::new();
        baseline.restart(); // known after two rounds
        Self {
            arrivals: Arrivals::default(),
            queue: Queue::default(),
            baseline,
            round: None,
            rounds: VecDeque::new(),
            severe_rounds: 0,
            lossy_rounds: 0,
            had_queue: false,
            is_clear: false,
            is_full: false,
        }
    }

    /// Handles a report and the arrival of its newest packet.
    pub fn observe(&mut self, seen: &Observation, newest: ArrivalSample) {
        let new = self.arrivals.add(&[newest]);
        self.queue.note_path(&new, &self.arrivals, None);
        self.queue.note(&new, seen, Duration::ZERO, |_| Duration::ZERO);
        let jitter = Duration::from_secs_f64(SHORT_JITTERS * self.queue.jitter_s());
        let rtt = self.queue.rtt().unwrap_or(seen.rtt);
        let (queue, short) = (self.queue.newest(), (rtt / SHORT_PART).max(MIN_SHORT).max(jitter));
        let has_queue = queue > short;
        self.is_full = queue > (rtt / FULL_PART).max(short * LONG);
        let had_queue = std::mem::replace(&mut self.had_queue, has_queue);
        if has_queue {
            self.baseline.judged_in_queue(seen.judged, seen.lost);
        }
        self.is_clear = !has_queue && !had_queue;
        if queue > short * LONG {
            self.round = None;
        } else {
            self.count(seen, rtt);
        }
    }

    /// Loss that is certainly the channel's.
    pub fn loss(&self) -> f64 {
        if self.lossy_rounds >= PROVING_ROUNDS { self.baseline.proven_loss(0.0) } else { 0.0 }
    }

    /// Returns `true` if the last report found a queue of half a round trip or more.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns `true` if the packets of the last report met no queue.
    pub fn is_clear(&self) -> bool {
        self.is_clear
    }

    /// Counts a report, with its losses unless it may have met a queue.
    fn count(&mut self, seen: &Observation, rtt: Duration) {
        let round = self.round.get_or_insert(Round::beginning(seen.now));
        // The first report of a round only marks its beginning.
        if seen.now == round.began {
            return;
        }
        round.bytes += seen.judged_bytes;
        if self.is_clear {
            round.packets += seen.judged;
            round.lost += seen.lost;
        }
        let span = seen.now.saturating_sub(round.began);
        if span < rtt || round.packets < MIN_PACKETS {
            return;
        }
        let bps = 8.0 * round.bytes as f64 / span.as_secs_f64();
        self.rounds.push_back(Round { bps, ..*round });
        self.round = Some(Round::beginning(seen.now));
        if self.rounds.len() > BEFORE + AFTER {
            self.judge(seen.now);
            self.rounds.pop_front();
        }
    }

    /// Learns from the fifth round, if its losses are the channel's.
    fn judge(&mut self, now: Duration) {
        let round = self.rounds[BEFORE];
        let rates = |round: &Round| round.bps;
        let peak = self.rounds.range(..BEFORE).map(rates).fold(0.0, f64::max);
        let mut after: Vec<f64> = self.rounds.range(BEFORE + 1..).map(rates).collect();
        after.sort_unstable_by(f64::total_cmp);
        if round.bps > BELOW_PEAK * peak || after[AFTER / 2] < SETTLED * round.bps {
            return;
        }
        tracing::debug!(
            ?round,
            channel = self.baseline.proven_loss(0.0),
            "a round without a queue"
        );
        let loss = round.lost as f64 / round.packets as f64;
        let is_severe = loss > self.baseline.loss() + SEVERE && round.lost > 2;
        self.severe_rounds = if is_severe { self.severe_rounds + 1 } else { 0 };
        if is_severe && self.severe_rounds < PERSISTENT_ROUNDS {
            return;
        }
        if self.baseline.judged(round.packets, round.lost, true, Duration::ZERO, now) {
            self.baseline.restart();
            self.lossy_rounds = 0;
        }
        self.lossy_rounds = self.lossy_rounds.saturating_add(u32::from(round.lost > 0));
    }
}

impl Round {
    fn beginning(began: Duration) -> Self {
        Self { began, packets: 0, lost: 0, bytes: 0, bps: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    /// Reports in a round trip.
    const REPORTS: u64 = 8;

    /// A path, and the reports about it so far.
    struct Rig {
        channel: Channel,
        reports: u64,
        total_bytes: u64,
        queue_ms: u64,
    }

    impl Rig {
        fn new() -> Self {
            Self { channel: Channel::new(), reports: 0, total_bytes: 0, queue_ms: 0 }
        }

        /// Reports `rounds` round trips of `packets` each, of which `lost` are lost, without a queue
        /// or with one that grows up to 60 ms. Returns the channel's loss.
        fn observe(&mut self, rounds: u64, packets: u64, lost: u64, has_queue: bool) -> f64 {
            let mut loss = 0.0;
            for report in 0..rounds * REPORTS {
                let queue = Duration::from_millis(self.queue_ms);
                self.queue_ms = if has_queue { (self.queue_ms + 4).min(60) } else { 0 };
                let now = Duration::from_secs(1) + RTT / REPORTS as u32 * self.reports as u32;
                let (sent_at, arrived) = (now - RTT - queue, now - RTT / 2);
                let judged = packets / REPORTS;
                let bytes = 1500 * judged;
                (self.reports, self.total_bytes) = (self.reports + 1, self.total_bytes + bytes);
                let seen = Observation {
                    now,
                    rtt: RTT + queue,
                    sent_at,
                    arrived,
                    judged,
                    lost: if report % REPORTS == 3 { lost } else { 0 },
                    judged_bytes: bytes,
                    in_flight_bytes: 0,
                    longest_loss: 1,
                };
                let newest =
                    ArrivalSample { sent: sent_at, arrived, total_bytes: self.total_bytes };
                self.channel.observe(&seen, newest);
                loss = self.channel.loss();
            }
            loss
        }
    }

    /// Lets the rate vary by a fifth, as a window does.
    fn vary(rig: &mut Rig, times: u64, lost: u64, has_queue: bool) -> f64 {
        (0..times).fold(0.0, |_, _| {
            rig.observe(1, 160, lost, has_queue);
            rig.observe(3, 128, lost, has_queue)
        })
    }

    #[test]
    fn losses_without_a_queue_at_all_rates_are_the_channels() {
        let mut rig = Rig::new();
        assert_eq!(vary(&mut rig, 3, 2, false), 0.0, "too few");
        let loss = vary(&mut rig, 20, 2, false);
        assert!((0.0156..0.04).contains(&loss), "{loss}");
    }

    #[test]
    fn losses_in_a_queue_are_congestion_and_few_of_them_show_a_better_channel() {
        let mut rig = Rig::new();
        vary(&mut rig, 2, 0, false);
        assert_eq!(vary(&mut rig, 20, 6, true), 0.0);
        assert!(vary(&mut rig, 20, 2, false) > 0.0);
        assert!(vary(&mut rig, 10, 2, true) > 0.0, "as much is lost");
        assert_eq!(vary(&mut rig, 10, 0, true), 0.0, "nothing is lost any more");
    }

    #[test]
    fn losses_at_high_rates_only_are_a_policers() {
        let mut rig = Rig::new();
        // Slow start beyond its rate, and a window that comes back to it again and again.
        for packets in [800, 560, 392, 272] {
            assert_eq!(rig.observe(1, packets, packets - 200, false), 0.0);
        }
        for _ in 0..40 {
            for packets in [144, 168, 184, 192, 200] {
                rig.observe(1, packets, 0, false);
            }
            assert_eq!(rig.observe(1, 208, 4, false), 0.0);
        }
    }
}
