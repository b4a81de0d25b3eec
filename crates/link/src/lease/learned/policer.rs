//! Policers: limits without a queue, which show as losses whenever more than their rate is sent.

use std::time::Duration;

/// Round trips within which losses beyond the channel's come again if there is a policer.
const AGAIN_ROUND_TRIPS: u32 = 20;
/// Trains in a row with losses beyond the channel's that show a policer.
const LOSSY_TRAINS: u32 = 2;
/// Wait after a policer was found, in round trips; each further one doubles it …
const WAIT_ROUND_TRIPS: u32 = 8;
/// … up to this.
const MAX_WAIT: Duration = Duration::from_secs(240);

/// Minimum wait once losses have shown the same rate twice.
const KNOWN_WAIT: Duration = Duration::from_secs(30);
/// Maximum difference of two rates that are the same.
const SAME: f64 = 1.0 / 8.0;

/// Suspicion of a policer.
#[derive(Debug, Default)]
pub struct Policer {
    /// Wait before the next train.
    wait: Duration,
    /// Time after losses in which a single train proves little.
    careful: Duration,
    /// Time at which losses lowered the capacity.
    cut_at: Option<Duration>,
    /// Rate that arrived then.
    cut_bps: f64,
    /// Trains in a row that lost more than the channel.
    lossy_trains: u32,
}

impl Policer {
    /// Returns `true` if losses have answered higher rates lately.
    pub fn is_suspected(&self, now: Duration) -> bool {
        let lately = (self.wait * 2).max(self.careful);
        self.cut_at.is_some_and(|at| now < at + lately)
    }

    /// Notes that losses lowered the capacity to `bps`. Returns the time of the next train. The wait
    /// grows if losses come again: once may be chance, or somebody else's burst.
    pub fn cut(&mut self, bps: f64, rtt: Duration, now: Duration) -> Duration {
        self.careful = rtt * AGAIN_ROUND_TRIPS;
        let again = self.careful + self.wait * 2;
        if self.cut_at.is_some_and(|at| now < at + again) {
            return self.back_off(bps, rtt, now);
        }
        (self.cut_at, self.cut_bps) = (Some(now), bps);
        now + rtt * WAIT_ROUND_TRIPS
    }

    /// Notes a train that lost more than the channel. Returns the time of the next train if a
    /// policer is the likely reason.
    pub fn train_lost(&mut self, bps: f64, rtt: Duration, now: Duration) -> Option<Duration> {
        self.lossy_trains += 1;
        (self.lossy_trains >= LOSSY_TRAINS).then(|| self.back_off(bps, rtt, now))
    }

    /// Notes a train without such losses.
    pub fn train_passed(&mut self) {
        self.lossy_trains = 0;
    }

    /// Wait after a train that the path carried.
    pub fn wait_after_success(&self, rtt: Duration, now: Duration) -> Duration {
        if self.is_suspected(now) { rtt * WAIT_ROUND_TRIPS } else { Duration::ZERO }
    }

    /// Doubles the wait. Returns its end.
    fn back_off(&mut self, bps: f64, rtt: Duration, now: Duration) -> Duration {
        let is_same = (bps - self.cut_bps).abs() <= SAME * self.cut_bps;
        if !self.is_suspected(now) {
            self.wait = Duration::ZERO;
        }
        let least = rtt * WAIT_ROUND_TRIPS;
        let least = if is_same { least.max(KNOWN_WAIT) } else { least };
        self.wait = (self.wait * 2).clamp(least, MAX_WAIT.max(least));
        (self.cut_at, self.cut_bps) = (Some(now), bps);
        now + self.wait
    }
}
