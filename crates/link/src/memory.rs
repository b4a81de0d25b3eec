//! Measurements of a path that pass from one session to the next.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::redundancy::Loss;

/// Maximum age of usable measurements. On an aircraft, the users of a beam and the beam itself
/// change within minutes (RFC 9959, section 3: stored values need a limited lifetime).
pub const REMEMBERED_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Measurements of a path by one session. The next session begins with them instead of its
/// settings' defaults: they are a prior, not a promise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remembered {
    /// The smallest round trip.
    pub rtt: Duration,
    /// Share of our packets that the path lost, 0 to 1.
    pub loss: f64,
    /// Mean length of a burst of losses, in closely spaced packets; at least 1.
    pub burst: f64,
    /// Rate that the path was shown to carry from us; zero if unknown.
    pub rate: BitRate,
    /// Time of the measurements, on the endpoint's clock.
    pub at: Duration,
}

impl Remembered {
    /// Returns `true` if the measurements may be used at `now`.
    pub fn is_fresh(&self, now: Duration) -> bool {
        self.at <= now && now <= self.expires()
    }

    /// Time until which the measurements may be used.
    pub fn expires(&self) -> Duration {
        self.at.saturating_add(REMEMBERED_LIFETIME)
    }

    /// Bytes in flight at that rate: the saved window of Careful Resume.
    pub fn window_bytes(&self) -> u64 {
        self.rate.bytes_in(self.rtt)
    }
}

/// Observations during a session, to be remembered after it.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    min_rtt: Option<Duration>,
    /// Bytes delivered in the present round trip, its beginning, and the best rate of recent round
    /// trips.
    round_bytes: u64,
    round_began: Duration,
    best_bps: u64,
    best_at: Duration,
    reported_at: Duration,
}

impl Observed {
    /// Handles a report.
    pub fn reported(&mut self, seen: &Reported) {
        self.min_rtt = [self.min_rtt, seen.sample].into_iter().flatten().min();
        self.reported_at = seen.now;
        let passed = seen.now.saturating_sub(self.round_began);
        if passed < seen.srtt {
            self.round_bytes += seen.delivered_bytes;
            return;
        }
        // A round trip with a pause in it says nothing about the path.
        if passed < seen.srtt * 2 {
            let bits = u128::from(self.round_bytes) * 8 * 1_000_000_000;
            let round = bits / passed.as_nanos().max(1);
            // A better round trip counts at once, a worse one by an eighth. So the best survives
            // pauses between bursts, and is forgotten over a few dozen round trips.
            let best = u128::from(self.best_bps);
            let kept = if round >= best { round } else { best - (best - round) / 8 };
            self.best_bps = u64::try_from(kept).unwrap_or(u64::MAX);
            self.best_at = seen.now;
        }
        self.round_bytes = seen.delivered_bytes;
        self.round_began = seen.now;
    }

    /// Returns the measurements of a path with losses `loss`; `None` before the first round trip.
    pub fn remembered(&self, loss: Loss) -> Option<Remembered> {
        // A session that only keeps its path open learns the round trip, but not the rate.
        let known = self.reported_at.saturating_sub(self.best_at) <= REMEMBERED_LIFETIME;
        Some(Remembered {
            rtt: self.min_rtt?,
            loss: loss.rate,
            burst: loss.burst_packets(),
            rate: BitRate::from_bps(if known { self.best_bps } else { 0 }),
            at: self.reported_at,
        })
    }
}

/// A report, as far as [`Observed`] uses it.
#[derive(Debug, Clone, Copy)]
pub struct Reported {
    pub now: Duration,
    pub sample: Option<Duration>,
    pub srtt: Duration,
    /// Newly reported delivered bytes.
    pub delivered_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const LOSS: Loss = Loss { rate: 0.02, correlation: 0.5 };

    /// Reports every eighth of a round trip for `span`, at `bytes` a round trip.
    fn observe(observed: &mut Observed, from: Duration, span: Duration, bytes: u64) -> Duration {
        let mut now = from;
        while now < from + span {
            now += RTT / 8;
            let (sample, delivered_bytes) = (Some(RTT), bytes / 8);
            observed.reported(&Reported { now, sample, srtt: RTT, delivered_bytes });
        }
        now
    }

    #[test]
    fn the_smallest_round_trip_the_loss_and_the_rate_are_remembered() {
        let mut observed = Observed::default();
        assert_eq!(observed.remembered(LOSS), None);
        observe(&mut observed, Duration::ZERO, Duration::from_secs(60), 600_000);
        let remembered = observed.remembered(LOSS).unwrap();
        assert_eq!(remembered.rtt, RTT);
        // The next session's estimator begins with this session's loss.
        let loss = Loss::in_bursts(remembered.loss, remembered.burst);
        assert!((loss.rate - LOSS.rate).abs() < 1e-9, "{loss:?}");
        assert!((loss.correlation - LOSS.correlation).abs() < 1e-9, "{loss:?}");
        let mbps = remembered.rate.bps() as f64 / 1e6;
        assert!((7.0..8.2).contains(&mbps), "{mbps} Mbit/s");
        assert!((525_000..620_000).contains(&remembered.window_bytes()));
    }

    #[test]
    fn an_unused_rate_fades() {
        let mut observed = Observed::default();
        let now = observe(&mut observed, Duration::ZERO, Duration::from_secs(60), 600_000);
        observe(&mut observed, now, Duration::from_secs(60), 6_000);
        assert!(observed.remembered(LOSS).unwrap().rate.bps() < 100_000);
    }

    #[test]
    fn measurements_are_fresh_for_their_lifetime_and_not_before_it() {
        let mut observed = Observed::default();
        let now = observe(&mut observed, Duration::ZERO, Duration::from_secs(2), 1000);
        let remembered = observed.remembered(LOSS).unwrap();
        assert!(remembered.is_fresh(now));
        assert!(remembered.is_fresh(now + REMEMBERED_LIFETIME));
        assert!(!remembered.is_fresh(now + REMEMBERED_LIFETIME + Duration::from_secs(1)));
        assert!(!remembered.is_fresh(now - Duration::from_millis(1)));
    }
}
