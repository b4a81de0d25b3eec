//! Pacer: a token bucket that fills at the lease and decides when the next packet may be sent.
//!
//! The packet that empties the bucket may overdraw it. So the long-run rate is exact for any packet
//! sizes and timer delays, up to the burst that the bucket can save.
//!
//! Credit is saved only while something waits:
//!
//! - A pause saves nothing. The link was idle too, and a burst after the pause would stand in the
//!   link's queue, in front of every urgent packet, as long as packets keep arriving at exactly its
//!   rate.
//! - A late timer saves credit, which stands in the link's queue too. Like a jitter buffer, it
//!   keeps the link busy while later timers are late. It is given back gradually, so that a single
//!   delay does not stand forever.
//!
//! It is not a [`TokenBucket`](bentpipe_units::TokenBucket), because a part of its income pays for
//! what stands in the link's queue.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::settings::MIN_RATE;

/// Timer delay without a loss of rate. Tokio's clock rounds up to its tick and epoll to its own, so
/// that most packets at 20 Mbit/s are sent 0.5 to 2 ms late. On a busy machine one in twenty-five
/// is later; with a slack of 2 ms those cost 4 % of the rate. One in five hundred is later than
/// this.
const TIMER_SLACK: Duration = Duration::from_millis(5);
/// Divisor of the earned credit that is given back while more than a tick's worth stands in the
/// link's queue: 2 ms of it in a second, for at most 0.2 % of the rate.
const RETURNED_PART: i128 = 500;
/// Credit saved by a pause: a tick's worth, because the sender may learn late that the pause is
/// over.
const PAUSE_SLACK: Duration = Duration::from_millis(1);

/// Minimum rate that other parts compute with, so that packet times stay within minutes.
const MIN_COMPUTED_RATE: BitRate = MIN_RATE;

const NANOS: i128 = 1_000_000_000;

/// Pacer of IP bytes, plus a modem's framing of every packet if the lease counts it.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: BitRate,
    per_packet_overhead: u16,
    /// Credit in bits × 10⁻⁹, so that no fraction of a bit is lost between ticks.
    credit: i128,
    max: i128,
    /// Maximum credit at the time a packet was sent, less what was given back or not earned since.
    /// A packet sent on time finds this much in the link's queue.
    standing: i128,
    /// Credit that may be saved at any rate.
    min_burst: i128,
    /// Nothing has waited since the pacer last was open.
    pauses: bool,
    updated: Duration,
}

impl Pacer {
    /// Creates a pacer for `rate`. It saves at most the timer's slack, and nothing before the first
    /// packet.
    pub fn new(rate: BitRate) -> Self {
        Self {
            rate,
            per_packet_overhead: 0,
            credit: 1,
            max: max_credit(rate),
            standing: 0,
            min_burst: 0,
            pauses: true,
            updated: Duration::ZERO,
        }
    }

    /// Sets the rate from `now` on, which counts `per_packet_overhead` more for every packet. Credit
    /// earned or overdrawn until now stays.
    pub fn set_rate(&mut self, rate: BitRate, per_packet_overhead: u16, now: Duration) {
        self.per_packet_overhead = per_packet_overhead;
        if rate == self.rate {
            return;
        }
        self.refill(now);
        self.rate = rate;
        self.max = max_credit(rate).max(self.min_burst);
        self.standing = self.standing.min(self.max);
        self.save(self.credit);
    }

    /// Rate to compute with: at least 8 kbit/s.
    pub fn rate(&self) -> BitRate {
        self.rate.max(MIN_COMPUTED_RATE)
    }

    /// Permits a burst of `packets` × `packet_bytes` before the first packet and after a pause, if
    /// that is more. On a path without a lease, the queue is shared, and this flow competes for it
    /// as others do (RFC 9002, section 7.7).
    pub fn allow_burst(&mut self, packets: usize, packet_bytes: usize) {
        self.min_burst = packets as i128 * packet_bytes as i128 * 8 * NANOS;
        self.max = self.max.max(self.min_burst);
        self.credit = self.max;
        self.pauses = false;
    }

    /// Returns `true` if a packet may be sent now.
    pub fn is_open(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.credit > 0
    }

    /// Notes that the pacer is open and nothing waits.
    pub fn pause(&mut self) {
        self.pauses = true;
        self.save(self.credit);
    }

    /// Returns `true` if nothing has waited since the pacer last was open.
    pub fn is_paused(&self) -> bool {
        self.pauses
    }

    /// Accounts for a sent packet of `bytes`.
    pub fn spend(&mut self, bytes: usize) {
        self.pauses = false;
        self.standing = self.standing.max(self.credit);
        self.credit -= (bytes as i128 + i128::from(self.per_packet_overhead)) * 8 * NANOS;
    }

    /// Time at which the next packet may be sent; [`Duration::MAX`] if none may before the rate
    /// changes.
    pub fn opens_at(&self) -> Duration {
        if self.credit > 0 {
            return self.updated;
        }
        if self.rate.bps() == 0 {
            return Duration::MAX;
        }
        let wait = (1 - self.credit).div_euclid(i128::from(self.rate.bps())) + 1;
        self.updated + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.updated).as_nanos() as i128;
        let earned = passed * i128::from(self.rate.bps());
        let excess = (self.standing - self.tick().max(self.min_burst)).max(0);
        let returned = (earned / RETURNED_PART).min(excess);
        self.standing -= returned;
        self.save(self.credit + earned - returned);
        self.updated = self.updated.max(now);
    }

    /// Saves credit up to the maximum. The rest is lost, and the link's queue drains by as much.
    fn save(&mut self, credit: i128) {
        self.credit = credit.min(self.max_saved());
        self.standing = (self.standing - (credit - self.credit)).max(0);
    }

    fn tick(&self) -> i128 {
        i128::from(self.rate.bytes_in(PAUSE_SLACK)) * 8 * NANOS
    }

    fn max_saved(&self) -> i128 {
        if self.pauses { self.tick().max(self.min_burst).max(1) } else { self.max }
    }
}

fn max_credit(rate: BitRate) -> i128 {
    (i128::from(rate.bytes_in(TIMER_SLACK)) * 8 * NANOS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_rate_is_exact_for_any_packet_sizes_and_timer_delays(
            mbps in 1u64..1000, sizes in proptest::collection::vec(60usize..1500, 200..400), late_us in 0u64..1000,
        ) {
            let rate = BitRate::from_bps(mbps * 1_000_000);
            let mut pacer = Pacer::new(rate);
            let (mut now, mut sent) = (Duration::ZERO, 0);
            for size in &sizes {
                while !pacer.is_open(now) {
                    now = pacer.opens_at().max(now) + Duration::from_micros(late_us);
                }
                pacer.spend(*size);
                sent += *size as u64;
            }
            prop_assert!(sent <= rate.bytes_in(now + TIMER_SLACK) + 1500, "{sent} in {now:?}");
            // Credit beyond a tick is given back, and earned again if a timer is as late.
            let min = rate.bytes_in(now.saturating_sub(Duration::from_micros(late_us)));
            prop_assert!(sent + 1500 + min / 500 >= min, "{sent} in {now:?}");
        }
    }

    proptest! {
        #[test]
        fn every_rate_is_exact_while_it_lasts(
            steps in proptest::collection::vec((1u64..8, 1u64..3000), 1..30), framing in 0u16..100,
        ) {
            let mut pacer = Pacer::new(BitRate::from_bps(1_000_000));
            let (mut now, mut sent, mut allowed) = (Duration::ZERO, 0, 0);
            for (mbps, ms) in steps {
                let (rate, end) = (BitRate::from_bps(mbps * 1_000_000), now + Duration::from_millis(ms));
                pacer.set_rate(rate, framing, now);
                while now < end {
                    while pacer.is_open(now) {
                        pacer.spend(1500 - usize::from(framing));
                        sent += 1500u64;
                    }
                    now = pacer.opens_at().min(end);
                }
                allowed += rate.bytes_in(Duration::from_millis(ms));
            }
            // At most the burst saved at the start and the packet that overdraws it; at least all
            // that was permitted.
            prop_assert!((allowed - 30..=allowed + 4500).contains(&sent), "{sent} of {allowed}");
        }
    }

    #[test]
    fn a_new_rate_counts_from_then_on_and_a_pause_saves_only_the_burst() {
        let mut pacer = Pacer::new(BitRate::from_bps(1_200_000));
        pacer.allow_burst(10, 1500);
        let leave = |pacer: &mut Pacer, from: u64, until: u64| {
            let mut packets = 0;
            let mut now = Duration::from_secs(from);
            while now < Duration::from_secs(until) {
                while pacer.is_open(now) {
                    pacer.spend(1500);
                    packets += 1;
                }
                now = pacer.opens_at();
            }
            packets
        };
        assert_eq!(leave(&mut pacer, 0, 10), 1010);
        pacer.set_rate(BitRate::from_bps(12_000), 0, Duration::from_secs(10));
        assert_eq!(leave(&mut pacer, 10, 20), 10);
        pacer.set_rate(BitRate::from_bps(1_200_000), 0, Duration::from_secs(20));
        assert_eq!(leave(&mut pacer, 3600, 3610), 1010, "an hour saves no more than the burst");
    }

    #[test]
    fn credit_saved_by_a_late_timer_is_returned_gradually() {
        let mut pacer = Pacer::new(BitRate::from_bps(1_200_000));
        let (mut now, mut link_free_at) = (Duration::ZERO, Duration::ZERO);
        let mut longest_waits = [Duration::ZERO; 5];
        while now < Duration::from_secs(5) {
            while pacer.is_open(now) {
                pacer.spend(1500);
                let waits = &mut longest_waits[now.as_secs() as usize];
                *waits = link_free_at.saturating_sub(now).max(*waits);
                link_free_at = link_free_at.max(now) + Duration::from_millis(10);
            }
            let hiccup =
                now < Duration::from_millis(500) && pacer.opens_at() > Duration::from_millis(500);
            now = pacer.opens_at() + if hiccup { TIMER_SLACK } else { Duration::ZERO };
        }
        assert!(
            longest_waits[0] >= TIMER_SLACK * 9 / 10,
            "the hiccup is made up: {longest_waits:?}"
        );
        assert!(longest_waits.is_sorted_by(|before, after| before >= after), "{longest_waits:?}");
        assert!(longest_waits[4] <= PAUSE_SLACK * 2, "{longest_waits:?}");
    }

    #[test]
    fn the_rate_is_exact_to_the_packet() {
        let mut pacer = Pacer::new(BitRate::from_bps(1_890_000));
        let (mut now, mut packets) = (Duration::ZERO, 0u64);
        while now < Duration::from_secs(60) {
            while pacer.is_open(now) {
                pacer.spend(1500);
                packets += 1;
            }
            now = pacer.opens_at();
        }
        let exact = 60 * 1_890_000 / 12_000;
        assert!((exact..=exact + 3).contains(&packets), "{packets} packets, {exact} at the rate");
    }
}
