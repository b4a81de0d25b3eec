//! Losses that the channel itself causes. They are not congestion.

/// Standard deviations of the channel's losses that are saved for a run of bad luck …
const SIGMAS: f64 = 2.0;
/// … and the minimum, because few losses are not distributed evenly.
const FEW: f64 = 3.0;

/// Number of losses that the channel may still cause before they are congestion.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowance {
    losses: f64,
}

impl Allowance {
    /// Counts packets with an outcome. `channel` is the channel's loss, `window` the number of packets
    /// in a round trip. Returns `true` if more were lost than the channel explains. Without a loss of
    /// the channel, that is every loss.
    pub fn exceeds(&mut self, judged: u64, lost: u64, channel: f64, window: f64) -> bool {
        let most = if channel > 0.0 { (SIGMAS * (channel * window).sqrt()).max(FEW) } else { 0.0 };
        self.losses = (self.losses + channel * judged as f64).min(most);
        if lost == 0 {
            return false;
        }
        self.losses -= lost as f64;
        let exceeds = self.losses < 0.0;
        self.losses = self.losses.max(0.0);
        exceeds
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn without_a_loss_of_the_channel_every_loss_exceeds() {
        let mut allowance = Allowance::default();
        assert!(!allowance.exceeds(1000, 0, 0.0, 100.0));
        assert!(allowance.exceeds(10, 1, 0.0, 100.0));
    }

    #[test]
    fn chance_seldom_exceeds_and_congestion_always_does() {
        for (channel, window, trips) in [(0.01, 800.0, 2), (0.06, 120.0, 2), (0.06, 16.0, 8)] {
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            let mut allowance = Allowance::default();
            // The bound of the loss is a little above the loss.
            let mut round = |loss: f64| {
                let judged = window as u64 / 8;
                let lost = (0..judged).filter(|_| rng.random_bool(loss)).count() as u64;
                allowance.exceeds(judged, lost, channel * 1.3, window)
            };
            let events = (0..8000).filter(|_| round(channel)).count();
            assert!(events < 200, "{events} in 1,000 round trips at {channel}");
            let noticed = (0..8 * trips).any(|_| round(channel + 0.1));
            assert!(noticed, "not within {trips} round trips at {channel}");
        }
    }
}
