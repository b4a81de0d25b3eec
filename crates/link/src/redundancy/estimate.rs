//! Loss of a direction, estimated from the outcomes of packets.

use super::Loss;

/// Number of packets after which an observation counts for 1/e. That is about 17 round trips of a
/// full 1.89 Mbit/s link at 761 ms; at 6 % loss the rate is then known to within a tenth.
const MEMORY_PACKETS: f64 = 2048.0;
/// Loss rate assumed before any observation …
const FIRST_RATE: f64 = 0.02;
/// … with the weight of this many packets.
const FIRST_PACKETS: f64 = 64.0;
/// Number of packets after which the assumption counts for 1/e. It fades faster than observations;
/// otherwise a clean link would not be recognized as clean. It does not fade much faster, because
/// bursts of losses are rare: at 6 % loss in bursts of four packets, one stretch of 290 packets in
/// eighty shows none.
const ASSUMED_PACKETS: f64 = 1024.0;
/// Weight of the assumed bursts, as a number of losses.
const FIRST_LOSSES: f64 = 6.0;
/// Number of losses, each followed closely by another packet, after which an observation counts for
/// 1/e.
const MEMORY_LOSSES: f64 = 128.0;
/// Maximum loss rate of a direction; anything beyond is an outage.
const MAX_LOSS: f64 = 0.7;
/// Maximum correlation, a mean burst of 50 packets; anything beyond is an outage.
const MAX_CORRELATION: f64 = 0.98;

/// Outcome of one packet, in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub lost: bool,
    /// The packet was sent directly after the previous one, so that one burst may take both.
    pub follows: bool,
}

/// Sums that fade with every packet.
#[derive(Debug, Clone)]
pub struct Estimator {
    packets: f64,
    losses: f64,
    assumed: Loss,
    assumed_packets: f64,
    /// `true` if the assumption comes from earlier measurements of this direction.
    remembers: bool,
    /// Number of losses that another packet followed closely, and how many of those packets were
    /// lost.
    followed: f64,
    followed_by_loss: f64,
    last_lost: Option<bool>,
}

impl Estimator {
    /// Creates an estimator with nothing but an assumption.
    pub fn new() -> Self {
        let assumed = Loss { rate: FIRST_RATE, correlation: 0.0 };
        Self { remembers: false, ..Self::remembering(assumed) }
    }

    /// Creates an estimator with the loss that an earlier session measured in this direction. The
    /// weight is equally small: 64 judged packets outweigh it.
    pub fn remembering(loss: Loss) -> Self {
        Self {
            packets: 0.0,
            losses: 0.0,
            assumed: loss,
            assumed_packets: FIRST_PACKETS,
            remembers: true,
            followed: 0.0,
            followed_by_loss: 0.0,
            last_lost: None,
        }
    }

    /// Sets the assumption. `loss` is measured in the other direction, over the same radio; an end
    /// that sends little knows that direction better than its own. Earlier measurements of this
    /// direction take precedence until new ones outweigh them.
    pub fn assume(&mut self, loss: Loss) {
        if !self.remembers {
            self.assumed = loss;
        }
    }

    /// Adds the outcome of one packet.
    pub fn add(&mut self, outcome: Outcome) {
        let fade = 1.0 - 1.0 / MEMORY_PACKETS;
        self.packets = self.packets * fade + 1.0;
        self.losses = self.losses * fade + f64::from(u8::from(outcome.lost));
        self.assumed_packets *= 1.0 - 1.0 / ASSUMED_PACKETS;
        if outcome.follows && self.last_lost == Some(true) {
            // Losses fade by losses, because there are so few of them.
            let fade = 1.0 - 1.0 / MEMORY_LOSSES;
            self.followed = self.followed * fade + 1.0;
            self.followed_by_loss =
                self.followed_by_loss * fade + f64::from(u8::from(outcome.lost));
        }
        self.last_lost = Some(outcome.lost);
    }

    /// Notes that the outcomes of some packets are unknown, so that the next packet follows none.
    pub fn skip(&mut self) {
        self.last_lost = None;
    }

    /// Loss to assume if too few repairs cost a round trip: one standard error above the estimate.
    /// The number of bursts is Poisson-distributed; their lengths, if geometric, double its
    /// variance.
    pub fn cautious(&self) -> Loss {
        let loss = self.loss();
        let losses = self.losses + self.assumed_packets * self.assumed.rate;
        let bursts = (losses / loss.burst_packets()).max(1.0);
        let rate = loss.rate * (1.0 + ((1.0 + loss.burstiness()) / bursts).sqrt());
        Loss { rate: rate.min(MAX_LOSS), ..loss }
    }

    /// The present estimate.
    pub fn loss(&self) -> Loss {
        let rate = self.loss_rate();
        let followed_by_loss = self.followed_by_loss + FIRST_LOSSES * self.assumed.after_loss();
        let after_loss = followed_by_loss / (self.followed + FIRST_LOSSES);
        let correlation = ((after_loss - rate) / (1.0 - rate)).clamp(0.0, MAX_CORRELATION);
        Loss { rate, correlation }
    }

    /// The rate alone.
    pub fn loss_rate(&self) -> f64 {
        let losses = self.losses + self.assumed_packets * self.assumed.rate;
        (losses / (self.packets + self.assumed_packets)).min(MAX_LOSS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn learned(loss: Loss, packets: usize, seed: u64) -> Loss {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut estimator, mut bad) = (Estimator::new(), false);
        for _ in 0..packets {
            bad = rng.random_bool(if bad { loss.after_loss() } else { loss.after_arrival() });
            estimator.add(Outcome { lost: bad, follows: true });
        }
        estimator.loss()
    }

    #[test]
    fn rate_and_bursts_are_estimated() {
        for seed in 0..8 {
            for (rate, burst) in [(0.06, 1.0), (0.06, 4.0), (0.2, 1.0), (0.4, 10.0)] {
                let after_loss = f64::max(1.0 - 1.0 / burst, rate);
                let truth = Loss { rate, correlation: (after_loss - rate) / (1.0 - rate) };
                let found = learned(truth, 20_000, seed);
                assert!((found.rate / rate - 1.0).abs() < 0.45, "{rate}: {found:?}");
                let bursts = found.burst_packets() / truth.burst_packets();
                assert!((0.6..1.6).contains(&bursts), "{burst}: {found:?}");
            }
        }
    }

    #[test]
    fn a_clean_direction_is_soon_recognized() {
        let clean = learned(Loss { rate: 0.0, correlation: 0.0 }, 20_000, 1);
        assert!(clean.rate < 1e-5, "{clean:?}");
    }

    #[test]
    fn packets_far_apart_say_nothing_about_bursts() {
        let mut estimator = Estimator::new();
        let before = estimator.loss().burst_packets();
        for number in 0..4000 {
            estimator.add(Outcome { lost: number % 10 < 2, follows: false });
        }
        assert!((estimator.loss().rate - 0.2).abs() < 0.02);
        assert!(estimator.loss().burst_packets() <= before.max(1.0 / 0.8) + 0.05);
    }

    #[test]
    fn an_end_that_sends_little_uses_the_other_direction() {
        let mut estimator = Estimator::new();
        estimator.assume(Loss { rate: 0.2, correlation: 0.5 });
        for _ in 0..30 {
            estimator.add(Outcome { lost: false, follows: false });
        }
        let loss = estimator.loss();
        assert!((0.12..0.15).contains(&loss.rate) && loss.correlation > 0.45, "{loss:?}");
    }

    #[test]
    fn earlier_measurements_count_until_new_ones_outweigh_them() {
        let mut estimator = Estimator::remembering(Loss { rate: 0.4, correlation: 0.0 });
        let mut rates = Vec::new();
        for number in 0..=512 {
            estimator.assume(Loss { rate: 0.02, correlation: 0.0 });
            if [0, 64, 512].contains(&number) {
                rates.push(estimator.loss().rate);
            }
            estimator.add(Outcome { lost: false, follows: true });
        }
        assert_eq!(rates[0], 0.4);
        assert!((0.18..0.21).contains(&rates[1]) && rates[2] < 0.04, "{rates:?}");
    }

    #[test]
    fn the_margin_is_larger_the_fewer_losses_were_observed() {
        let mut estimator = Estimator::new();
        let mut excess = Vec::new();
        for number in 1..=2000 {
            estimator.add(Outcome { lost: number % 20 == 0, follows: true });
            if number == 100 || number == 2000 {
                excess.push(estimator.cautious().rate / estimator.loss().rate - 1.0);
            }
        }
        assert!(excess[0] > 0.3 && (0.05..0.15).contains(&excess[1]), "{excess:?}");
    }
}
