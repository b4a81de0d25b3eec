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

/// Suspicion of a policer.
#[derive(Debug, Default)]
pub struct Policer {
    /// Wait before the next train.
    wait: Duration,
    /// Time at which losses lowered the capacity.
    cut_at: Option<Duration>,
    /// Trains in a row that lost more than the channel.
    lossy_trains: u32,
}

impl Policer {
    /// Returns `true` if losses have answered higher rates lately.
    pub fn is_suspected(&self, now: Duration) -> bool {
        let lately = self.wait * 2;
        self.cut_at.is_some_and(|at| now < at + lately)
    }

    /// Notes that losses lowered the capacity. Returns the time of the next train if a policer is
    /// the likely reason. Once may be chance, or somebody else's burst.
    pub fn cut(&mut self, rtt: Duration, now: Duration) -> Option<Duration> {
        let again = rtt * AGAIN_ROUND_TRIPS + self.wait * 2;
        let is_again = self.cut_at.is_some_and(|at| now < at + again);
        let next = is_again.then(|| self.back_off(rtt, now));
        self.cut_at = Some(now);
        next
    }

    /// Notes a train that lost more than the channel. Returns the time of the next train if a
    /// policer is the likely reason.
    pub fn train_lost(&mut self, rtt: Duration, now: Duration) -> Option<Duration> {
        self.lossy_trains += 1;
        (self.lossy_trains >= LOSSY_TRAINS).then(|| self.back_off(rtt, now))
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
    fn back_off(&mut self, rtt: Duration, now: Duration) -> Duration {
        if !self.is_suspected(now) {
            self.wait = Duration::ZERO;
        }
        let least = rtt * WAIT_ROUND_TRIPS;
        self.wait = (self.wait * 2).clamp(least, MAX_WAIT.max(least));
        self.cut_at = Some(now);
        now + self.wait
    }
}
