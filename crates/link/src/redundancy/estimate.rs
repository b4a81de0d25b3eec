//! Loss of a direction, learned from the fates of packets.

use super::Loss;

/// Packets after which what was seen counts for 1/e: about 17 round trips of a full 1.89 Mbit/s
/// link at 761 ms, and the rate is then known to within a tenth of itself at 6 %.
const MEMORY_PACKETS: f64 = 2048.0;
/// Before anything is seen, this much loss is assumed …
const FIRST_RATE: f64 = 0.02;
/// … with the weight of so many packets.
const FIRST_PACKETS: f64 = 64.0;
/// The assumption fades faster than what is seen, or it would stand in the way of knowing a clean
/// link as clean; but not much faster, since losses in bursts are rare events: at 6 % in bursts of
/// four packets one stretch of 290 packets in eighty shows none.
const ASSUMED_PACKETS: f64 = 1024.0;
/// Weight of the assumed bursts, as a number of losses.
const FIRST_LOSSES: f64 = 6.0;
/// So many losses that others followed are remembered.
const MEMORY_LOSSES: f64 = 128.0;
/// Maximum believed loss of a direction: beyond it is an outage.
const MOST_LOSS: f64 = 0.7;
/// Correlations beyond this are outages too: bursts of 50 packets.
const MOST_CORRELATION: f64 = 0.98;

/// Fate of one packet, in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    pub lost: bool,
    /// It left right behind the one before, so that one burst may take both.
    pub follows: bool,
}

/// Sums that fade with every packet.
#[derive(Debug, Clone)]
pub struct Estimator {
    packets: f64,
    losses: f64,
    assumed: Loss,
    assumed_packets: f64,
    /// `true` if the assumption was learned of this direction itself.
    remembers: bool,
    /// Losses that another packet followed closely, and how many of those were lost too.
    followed: f64,
    followed_by_loss: f64,
    last_lost: Option<bool>,
}

impl Estimator {
    /// Knows nothing but what to assume.
    pub fn new() -> Self {
        let assumed = Loss { rate: FIRST_RATE, correlation: 0.0 };
        Self { remembers: false, ..Self::remembering(assumed) }
    }

    /// Starts from what an earlier session has learned of this direction, with the same small
    /// weight: 64 packets that are judged outweigh it.
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

    /// Sets the assumption until enough is seen. `loss` is of the other direction, which the same
    /// radio carries; an end that sends little knows that one better than its own. Knowledge of
    /// this direction itself says more, until new observations outweigh it.
    pub fn assume(&mut self, loss: Loss) {
        if !self.remembers {
            self.assumed = loss;
        }
    }

    /// Takes one fate in.
    pub fn saw(&mut self, fate: Fate) {
        let fade = 1.0 - 1.0 / MEMORY_PACKETS;
        self.packets = self.packets * fade + 1.0;
        self.losses = self.losses * fade + f64::from(u8::from(fate.lost));
        self.assumed_packets *= 1.0 - 1.0 / ASSUMED_PACKETS;
        if fate.follows && self.last_lost == Some(true) {
            // Fades by losses, since there are so few of them.
            let fade = 1.0 - 1.0 / MEMORY_LOSSES;
            self.followed = self.followed * fade + 1.0;
            self.followed_by_loss = self.followed_by_loss * fade + f64::from(u8::from(fate.lost));
        }
        self.last_lost = Some(fate.lost);
    }

    /// The fates of some packets are unknown: the next follows none.
    pub fn skip(&mut self) {
        self.last_lost = None;
    }

    /// Loss to assume if too few repairs cost a round trip. Losses are rare events, so their rate
    /// is known from few of them; it is taken one standard error higher. The count of bursts is
    /// Poisson's; their lengths, if geometric, double its variance.
    pub fn cautious(&self) -> Loss {
        let loss = self.loss();
        let losses = self.losses + self.assumed_packets * self.assumed.rate;
        let bursts = (losses / loss.burst_packets()).max(1.0);
        let rate = loss.rate * (1.0 + ((1.0 + loss.burstiness()) / bursts).sqrt());
        Loss { rate: rate.min(MOST_LOSS), ..loss }
    }

    /// Present estimate.
    pub fn loss(&self) -> Loss {
        let losses = self.losses + self.assumed_packets * self.assumed.rate;
        let rate = (losses / (self.packets + self.assumed_packets)).min(MOST_LOSS);
        let followed_by_loss = self.followed_by_loss + FIRST_LOSSES * self.assumed.after_loss();
        let after_loss = followed_by_loss / (self.followed + FIRST_LOSSES);
        let correlation = ((after_loss - rate) / (1.0 - rate)).clamp(0.0, MOST_CORRELATION);
        Loss { rate, correlation }
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
            estimator.saw(Fate { lost: bad, follows: true });
        }
        estimator.loss()
    }

    #[test]
    fn it_finds_rate_and_bursts() {
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
    fn a_clean_direction_is_soon_known_to_be_clean() {
        let clean = learned(Loss { rate: 0.0, correlation: 0.0 }, 20_000, 1);
        assert!(clean.rate < 1e-5, "{clean:?}");
    }

    #[test]
    fn what_is_far_apart_says_nothing_of_bursts() {
        let mut estimator = Estimator::new();
        let before = estimator.loss().burst_packets();
        for number in 0..4000 {
            estimator.saw(Fate { lost: number % 10 < 2, follows: false });
        }
        assert!((estimator.loss().rate - 0.2).abs() < 0.02);
        assert!(estimator.loss().burst_packets() <= before.max(1.0 / 0.8) + 0.05);
    }

    #[test]
    fn who_sends_little_goes_by_the_other_direction() {
        let mut estimator = Estimator::new();
        estimator.assume(Loss { rate: 0.2, correlation: 0.5 });
        for _ in 0..30 {
            estimator.saw(Fate { lost: false, follows: false });
        }
        let loss = estimator.loss();
        assert!((0.12..0.15).contains(&loss.rate) && loss.correlation > 0.45, "{loss:?}");
    }

    #[test]
    fn what_is_remembered_counts_until_what_is_seen_outweighs_it() {
        let mut estimator = Estimator::remembering(Loss { rate: 0.4, correlation: 0.0 });
        let mut rates = Vec::new();
        for number in 0..=512 {
            estimator.assume(Loss { rate: 0.02, correlation: 0.0 });
            if [0, 64, 512].contains(&number) {
                rates.push(estimator.loss().rate);
            }
            estimator.saw(Fate { lost: false, follows: true });
        }
        assert_eq!(rates[0], 0.4);
        assert!((0.18..0.21).contains(&rates[1]) && rates[2] < 0.04, "{rates:?}");
    }

    #[test]
    fn the_fewer_losses_are_seen_the_more_is_reckoned_with() {
        let mut estimator = Estimator::new();
        let mut excess = Vec::new();
        for number in 1..=2000 {
            estimator.saw(Fate { lost: number % 20 == 0, follows: true });
            if number == 100 || number == 2000 {
                excess.push(estimator.cautious().rate / estimator.loss().rate - 1.0);
            }
        }
        assert!(excess[0] > 0.3 && (0.05..0.15).contains(&excess[1]), "{excess:?}");
    }
}
