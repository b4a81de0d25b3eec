//! Loss baseline: the channel's own loss, and alarms about more than that.
//!
//! Losses are counted in rounds. With a mean burst of `b` packets, the losses of a round of `n`
//! packets are approximately compound Poisson: `np/b` bursts of geometric length. Their tail beyond
//! `x` falls as exp(−(√(x/b) − √(np/b))²) (Chernoff's bound, exponential jumps). For many bursts
//! that is the Gaussian with the variance of the bursts. It also holds for few bursts, where a
//! Gaussian would take every second burst for an alarm. So "3 σ" is an exponent of 3²/2, in each of
//! [`ALARMS`] rounds.

use std::time::Duration;

/// Rounds in a row that must show too much loss. One in some hundred does so by chance.
const ALARMS: u32 = 3;
/// 3 σ.
const ALARM_EXPONENT: f64 = 4.5;
/// Exponent of the bound for a probe: 1.5 σ. A false alarm costs only the probe.
const PROBE_EXPONENT: f64 = 1.125;
/// Rounds after which an observation counts for 1/e.
const MEMORY_ROUNDS: f64 = 128.0;
/// Rounds to learn from before the first alarm.
const MIN_ROUNDS: u32 = 16;
/// Mean burst assumed before it is learned, and its weight in rounds.
const PRIOR_BURST: f64 = 4.0;
const PRIOR_ROUNDS: f64 = 4.0;
/// Losses that prove a loss of the channel: 500 packets at 1 %.
const PROVING_LOSSES: f64 = 5.0;
/// Loss of the channel below which a window takes every loss for congestion.
const MIN_PROVEN: f64 = 0.005;
/// Packets in a queue after which a channel that loses less than before is noticed …
const IN_QUEUE_PACKETS: u64 = 1000;
/// … and the standard deviations of chance.
const SIGMAS: f64 = 3.0;
/// Maximum packets of a round; losses are in proportion to a round's packets.
const MAX_ROUND_PACKETS: f64 = 4096.0;

/// The loss baseline, and the present round.
#[derive(Debug, Clone)]
pub struct Baseline {
    packets: f64,
    lost: f64,
    /// Squared deviation of the rounds' losses from the expectation, and the deviation that
    /// independent losses would have. Their quotient is the index of dispersion, 2b(1−p) − 1 for
    /// bursts of b.
    deviation: f64,
    independent: f64,
    rounds_left: u32,
    alarms: u32,
    round: Option<Round>,
    /// Packets that met a queue, and the lost ones among them.
    in_queue: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
struct Round {
    began: Duration,
    packets: u64,
    lost: u64,
    /// At least one packet found the queue empty.
    empty: bool,
}

impl Baseline {
    /// Creates a baseline that knows nothing.
    pub fn new() -> Self {
        Self {
            packets: 0.0,
            lost: 0.0,
            deviation: PRIOR_ROUNDS * (2.0 * PRIOR_BURST - 1.0),
            independent: PRIOR_ROUNDS,
            rounds_left: MIN_ROUNDS,
            alarms: 0,
            round: None,
            in_queue: (0, 0),
        }
    }

    /// Share of packets that the channel loses.
    pub fn loss(&self) -> f64 {
        if self.packets > 0.0 { (self.lost / self.packets).min(0.95) } else { 0.0 }
    }

    /// Upper limit of the loss, two standard deviations above: few packets say little.
    pub fn max_loss(&self) -> f64 {
        let (packets, loss) = (self.packets.max(1.0), self.loss());
        let deviation = (loss * (1.0 - loss) * self.burst() / packets).sqrt();
        (loss + 2.0 * deviation + 3.0 / packets).min(0.95)
    }

    /// Losses that the channel certainly causes, two standard deviations above the mean. Zero if few
    /// losses or fewer than `least` packets are known, or if the channel loses hardly anything: an error
    /// would be unfair to others.
    pub fn proven_loss(&self, least: f64) -> f64 {
        if self.rounds_left > 0 || self.lost < PROVING_LOSSES || self.packets < least {
            return 0.0;
        }
        let loss = self.loss();
        let most = loss + 2.0 * (loss * (1.0 - loss) * self.burst() / self.packets).sqrt();
        if most >= MIN_PROVEN { most.min(0.95) } else { 0.0 }
    }

    /// Counts packets that met a queue. A queue causes losses, so that they cannot raise the
    /// channel's. If fewer are lost than the channel's, the channel has changed, and its loss is
    /// unknown.
    pub fn judged_in_queue(&mut self, packets: u64, lost: u64) {
        let (packets, lost) = (self.in_queue.0 + packets, self.in_queue.1 + lost);
        self.in_queue = (packets, lost);
        if packets < IN_QUEUE_PACKETS {
            return;
        }
        self.in_queue = (0, 0);
        let expected = self.loss() * packets as f64;
        let chance = SIGMAS * (expected * self.burst()).sqrt();
        if (lost as f64) < expected - chance {
            self.restart();
        }
    }

    /// Mean length of a burst of losses, in packets.
    pub fn burst(&self) -> f64 {
        let dispersion = self.deviation / self.independent;
        ((dispersion + 1.0) / (2.0 * (1.0 - self.loss()))).max(1.0)
    }

    /// Counts the packets that a report judged. `empty` says that its newest packet found the queue
    /// empty. Returns `true` if more is lost than the channel explains.
    pub fn judged(
        &mut self,
        packets: u64,
        lost: u64,
        empty: bool,
        rtt: Duration,
        now: Duration,
    ) -> bool {
        let began = now;
        let round = self.round.get_or_insert(Round { began, packets: 0, lost: 0, empty: false });
        round.packets += packets;
        round.lost += lost;
        round.empty |= empty;
        let round = *round;
        if now.saturating_sub(round.began) < rtt || (round.packets as f64) < self.round_packets() {
            return false;
        }
        self.round = None;
        if self.rounds_left == 0 && self.exponent(round.packets, round.lost) > ALARM_EXPONENT {
            self.alarms += 1;
            return self.alarms >= ALARMS;
        }
        self.alarms = 0;
        if round.empty {
            self.learn(round);
        }
        false
    }

    /// Returns `true` if this number of losses exceeds chance, for a probe.
    pub fn fails_probe(&self, packets: u64, lost: u64) -> bool {
        self.exponent(packets, lost) > PROBE_EXPONENT
    }

    /// Returns `true` if the baseline is known.
    pub fn is_known(&self) -> bool {
        self.rounds_left == 0
    }

    /// Discards the present round, whose losses were not the channel's alone.
    pub fn skip_round(&mut self) {
        self.round = None;
        self.alarms = 0;
    }

    /// Restarts because the loss may have changed; the mean burst is kept. The baseline is known
    /// again after two rounds.
    pub fn restart(&mut self) {
        self.skip_round();
        (self.packets, self.lost) = (0.0, 0.0);
        self.rounds_left = 2;
    }

    fn learn(&mut self, round: Round) {
        let (packets, lost) = (round.packets as f64, round.lost as f64);
        let fade = 1.0 - 1.0 / MEMORY_ROUNDS;
        self.packets = self.packets * fade + packets;
        self.lost = self.lost * fade + lost;
        let loss = self.loss();
        let independent = packets * loss * (1.0 - loss);
        // A round with an expected loss of less than a tenth of a packet says nothing about bursts.
        if independent > 0.1 {
            let weight = 1.0 / independent;
            let deviation = (lost - packets * loss).powi(2);
            self.deviation = self.deviation * fade + deviation * weight;
            self.independent = self.independent * fade + 1.0;
        }
        self.rounds_left = self.rounds_left.saturating_sub(1);
    }

    /// Number of packets in which it shows that half of the expected packets do not arrive.
    fn round_packets(&self) -> f64 {
        let loss = self.loss();
        let contrast = (loss + (1.0 - loss) / 2.0).sqrt() - loss.sqrt();
        (ALARM_EXPONENT * self.burst() / (contrast * contrast)).min(MAX_ROUND_PACKETS)
    }

    /// Exponent of the bound on the probability that the channel alone loses this many.
    fn exponent(&self, packets: u64, lost: u64) -> f64 {
        let (burst, expected) = (self.burst(), packets as f64 * self.loss());
        let lost = lost as f64;
        if lost <= expected {
            return 0.0;
        }
        ((lost / burst).sqrt() - (expected / burst).sqrt()).powi(2)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A two-state channel with mean loss and burst, reported in groups of 15 packets.
    struct Channel {
        loss: f64,
        burst: f64,
        bad: bool,
        rng: ChaCha8Rng,
        now: Duration,
    }

    impl Channel {
        fn new(loss: f64, burst: f64, seed: u64) -> Self {
            let rng = ChaCha8Rng::seed_from_u64(seed);
            Self { loss, burst, bad: false, rng, now: Duration::ZERO }
        }

        fn report(&mut self, baseline: &mut Baseline, dropped: f64) -> bool {
            self.now += Duration::from_millis(95);
            let mut lost = 0;
            for _ in 0..15 {
                let recover = 1.0 / self.burst;
                let fail = recover * self.loss / (1.0 - self.loss);
                let change = if self.bad { recover } else { fail };
                self.bad ^= self.rng.random::<f64>() < change;
                lost += u64::from(self.bad || self.rng.random::<f64>() < dropped);
            }
            baseline.judged(15, lost, true, Duration::from_millis(761), self.now)
        }
    }

    #[test]
    fn loss_and_bursts_are_learned() {
        for (loss, burst) in [(0.06, 1.1), (0.033, 4.0), (0.06, 20.0), (0.4, 10.0)] {
            let mut baseline = Baseline::new();
            let mut channel = Channel::new(loss, burst, 5);
            for _ in 0..40_000 {
                channel.report(&mut baseline, 0.0);
            }
            let (seen, length) = (baseline.loss(), baseline.burst());
            assert!((seen / loss - 1.0).abs() < 0.4, "{loss}: {seen}");
            assert!((0.5..2.0).contains(&(length / burst)), "{burst}: {length}");
        }
    }

    #[test]
    fn chance_alone_almost_never_raises_the_alarm() {
        for (loss, burst) in [(0.0, 1.0), (0.06, 1.1), (0.033, 4.0), (0.06, 20.0), (0.2, 4.0)] {
            let mut alarms = 0;
            for seed in 0..5 {
                let mut baseline = Baseline::new();
                let mut channel = Channel::new(loss, burst, seed);
                // An hour each.
                alarms += (0..37_900).filter(|_| channel.report(&mut baseline, 0.0)).count();
            }
            assert!(alarms <= 1, "{alarms} in 5 hours at {loss} in bursts of {burst}");
        }
    }

    #[test]
    fn losses_beyond_the_channels_own_raise_the_alarm() {
        for (loss, burst, within) in [(0.0, 1.0, 40), (0.06, 1.1, 40), (0.06, 20.0, 200)] {
            let mut baseline = Baseline::new();
            let mut channel = Channel::new(loss, burst, 9);
            for _ in 0..3000 {
                channel.report(&mut baseline, 0.0);
            }
            let noticed = (0..within).find(|_| channel.report(&mut baseline, 0.6));
            assert!(noticed.is_some(), "{loss} in bursts of {burst}: not in {within} reports");
        }
    }
}
