//! Measurements of a path that pass from one session to the next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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
    /// Network over which the path begins: that of the aircraft's address, as the measuring end
    /// knows it. `None` if it does not know the address.
    pub network: Option<IpAddr>,
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

    /// Rate that may be assumed at `now`: it falls by half within [`REMEMBERED_LIFETIME`].
    pub fn rate_at(&self, now: Duration) -> BitRate {
        let age = now.saturating_sub(self.at).div_duration_f64(REMEMBERED_LIFETIME).min(1.0);
        BitRate::from_bps((self.rate.bps() as f64 * (1.0 - age / 2.0)) as u64)
    }

    /// Bytes in flight at that rate: the saved window of Careful Resume.
    pub fn window_bytes(&self) -> u64 {
        self.rate.bytes_in(self.rtt)
    }
}

/// Maximum number of attachments of one peer: 4 × 80 bytes.
const MAX_ATTACHMENTS: usize = 4;

/// Measurements of the paths to one peer, by the network over which they begin.
#[derive(Debug, Clone, Default)]
pub struct Attachments {
    /// The latest last.
    known: Vec<Remembered>,
}

impl Attachments {
    /// The latest measurements.
    pub fn latest(&self) -> Option<Remembered> {
        self.known.last().copied()
    }

    /// Measurements for a session of an aircraft at `address`. Those over another network count, but
    /// not their rate.
    pub fn at(&self, address: Option<IpAddr>) -> Option<Remembered> {
        let network = address.map(network_of);
        let known = self.known.iter().find(|it| it.network == network).copied();
        let others = || self.latest().map(|it| Remembered { rate: BitRate::from_bps(0), ..it });
        known.or_else(others)
    }

    /// Stores measurements of an aircraft at `address`.
    pub fn store(&mut self, address: Option<IpAddr>, remembered: Remembered) {
        self.add(Remembered { network: address.map(network_of), ..remembered });
    }

    /// Adds measurements, in place of the oldest if there are too many.
    pub fn add(&mut self, remembered: Remembered) {
        self.known.retain(|known| known.network != remembered.network);
        if self.known.len() == MAX_ATTACHMENTS {
            self.known.remove(0);
        }
        self.known.push(remembered);
    }
}

/// Network of an address: its first 24 bits, or 48 with IPv6. Attachments behind one gateway share
/// it.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 80 << 80).into(),
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
            network: None,
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

    #[test]
    fn a_rate_decays_and_counts_only_over_its_network() {
        let (rate, at) = (BitRate::from_bps(8_000_000), Duration::from_secs);
        let measured = |seconds| {
            let (at, network) = (at(seconds), None);
            Remembered { rtt: RTT, loss: 0.0, burst: 1.0, rate, at, network }
        };
        assert_eq!(measured(100).rate_at(at(100)), rate);
        assert_eq!(measured(100).rate_at(at(100) + REMEMBERED_LIFETIME / 2).bps(), 6_000_000);
        assert_eq!(measured(100).rate_at(at(5000)).bps(), 4_000_000);

        let mut attachments = Attachments::default();
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        assert_eq!(attachments.at(address("198.51.100.7")), None);
        attachments.store(address("198.51.100.7"), measured(1));
        attachments.store(address("2001:db8:1:2::3"), measured(2));
        let found = |attachments: &Attachments, text| {
            let found = attachments.at(address(text)).unwrap();
            (found.rate.bps() / 1_000_000, found.at.as_secs())
        };
        assert_eq!(found(&attachments, "::ffff:198.51.100.200"), (8, 1));
        assert_eq!(found(&attachments, "2001:db8:1:ff::1"), (8, 2));
        assert_eq!(found(&attachments, "203.0.113.1"), (0, 2), "another network");
        for number in 3..7 {
            attachments.store(address(&format!("203.0.{number}.1")), measured(number));
        }
        assert_eq!(attachments.known.len(), MAX_ATTACHMENTS);
        assert_eq!(found(&attachments, "198.51.100.7"), (0, 6), "forgotten");
    }
}
