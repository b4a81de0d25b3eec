//! Pacer: a token bucket that fills at the lease and says when the next packet may leave.
//!
//! The bucket may be overdrawn by the packet that empties it, so the long-run rate is exact
//! whatever the packet sizes and however late the timer fires, up to the burst it can save.
//!
//! Only who had something to send and was not let go saves up. What a pause would save up is not the
//! link's: it was idle meanwhile too, and what leaves in a burst after it stands in the link's queue
//! for as long as packets keep coming at exactly its rate, in front of every packet that is urgent.
//! What a late timer saved up stands there too: it keeps the link busy while later timers are late, as
//! a jitter buffer does, and is given back little by little so that no single hiccup stands for ever.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::settings::MIN_RATE;

/// Lateness of a timer without a loss of rate. Tokio's clock rounds up to its tick and epoll to its
/// own, so that most packets at 20 Mbit/s leave 0.5 to 2 ms late. On a busy machine one in
/// twenty-five is later than that: those cost 4 % of the rate with a slack of 2 ms. One in five
/// hundred is later than this.
const TIMER_SLACK: Duration = Duration::from_millis(5);
/// Part of the earned credit that is given back while more than a tick's worth stands in the link's
/// queue: 2 ms of it in a second, for at most 0.2 % of the rate.
const GIVEN_BACK_PART: i128 = 500;
/// Credit that a pause saves: a tick's worth, because the sender may learn late that it is over.
const PAUSE_SLACK: Duration = Duration::from_millis(1);

/// Rate that others assume if less may be sent: packet times stay within minutes.
const LEAST_RECKONED: BitRate = MIN_RATE;

const NANOS: i128 = 1_000_000_000;

/// Paces IP bytes, and what a modem adds to every packet where the lease counts that.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: BitRate,
    framing_bytes: u16,
    /// In bits × 10⁻⁹, so that no fraction of a bit is lost between ticks.
    credit: i128,
    most: i128,
    /// The most that was saved up when a packet left, less what was given back or not earned since:
    /// a packet that leaves on time finds so much in the link's queue.
    standing: i128,
    /// Credit that may be saved at any rate.
    least_burst: i128,
    /// Nothing has wanted to leave since it last was open.
    pauses: bool,
    updated: Duration,
}

impl Pacer {
    /// Paces at `rate`; saves up at most what the timer's slack is worth, and nothing before the
    /// first packet.
    pub fn new(rate: BitRate) -> Self {
        Self {
            rate,
            framing_bytes: 0,
            credit: 1,
            most: most_credit(rate),
            standing: 0,
            least_burst: 0,
            pauses: true,
            updated: Duration::ZERO,
        }
    }

    /// From `now` on `rate` holds, which counts `framing_bytes` more for every packet. What was
    /// earned until now was earned at the rate before, and what was overdrawn stays so.
    pub fn set_rate(&mut self, rate: BitRate, framing_bytes: u16, now: Duration) {
        self.framing_bytes = framing_bytes;
        if rate == self.rate {
            return;
        }
        self.refill(now);
        self.rate = rate;
        self.most = most_credit(rate).max(self.least_burst);
        self.standing = self.standing.min(self.most);
        self.save(self.credit);
    }

    /// The rate to reckon with: 8 kbit/s where less may be sent.
    pub fn rate(&self) -> BitRate {
        self.rate.max(LEAST_RECKONED)
    }

    /// Saves up as many as `packets` of `packet_bytes` before the first packet and after a pause,
    /// where that is more: a path that nobody leased us has a queue that is not ours alone, and
    /// competes for it as others do (RFC 9002, section 7.7).
    pub fn allow_burst(&mut self, packets: usize, packet_bytes: usize) {
        self.least_burst = packets as i128 * packet_bytes as i128 * 8 * NANOS;
        self.most = self.most.max(self.least_burst);
        self.credit = self.most;
        self.pauses = false;
    }

    /// Returns `true` if a packet may leave now.
    pub fn is_open(&mut self, now: Duration) -> bool {
        self.refill(now);
        self.credit > 0
    }

    /// It is open, and nothing wants to leave.
    pub fn pause(&mut self) {
        self.pauses = true;
        self.save(self.credit);
    }

    /// Returns whether nothing has wanted to leave since it last was open.
    pub fn is_paused(&self) -> bool {
        self.pauses
    }

    /// Accounts for a packet of `bytes` that left.
    pub fn spend(&mut self, bytes: usize) {
        self.pauses = false;
        self.standing = self.standing.max(self.credit);
        self.credit -= (bytes as i128 + i128::from(self.framing_bytes)) * 8 * NANOS;
    }

    /// Time at which the next packet may leave; [`Duration::MAX`] if none may until the rate
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
        let excess = (self.standing - self.tick().max(self.least_burst)).max(0);
        let given_back = (earned / GIVEN_BACK_PART).min(excess);
        self.standing -= given_back;
        self.save(self.credit + earned - given_back);
        self.updated = self.updated.max(now);
    }

    /// Saves credit up to the bound; the rest is not sent, and the link's queue drains by so much.
    fn save(&mut self, credit: i128) {
        self.credit = credit.min(self.most_saved());
        self.standing = (self.standing - (credit - self.credit)).max(0);
    }

    fn tick(&self) -> i128 {
        i128::from(self.rate.bytes_in(PAUSE_SLACK)) * 8 * NANOS
    }

    fn most_saved(&self) -> i128 {
        if self.pauses { self.tick().max(self.least_burst).max(1) } else { self.most }
    }
}

fn most_credit(rate: BitRate) -> i128 {
    (i128::from(rate.bytes_in(TIMER_SLACK)) * 8 * NANOS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_rate_holds_whatever_the_sizes_and_the_timers_lateness(
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
            // What is later than a tick is given back, and taken again when a timer is as late.
            let least = rate.bytes_in(now.saturating_sub(Duration::from_micros(late_us)));
            prop_assert!(sent + 1500 + least / 500 >= least, "{sent} in {now:?}");
        }
    }

    proptest! {
        #[test]
        fn every_rate_holds_while_it_lasts(
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
            // No more than the burst saved at the start and the packet that overdraws it; no less
            // than all that was allowed.
            prop_assert!((allowed - 30..=allowed + 4500).contains(&sent), "{sent} of {allowed}");
        }
    }

    #[test]
    fn a_new_rate_holds_from_then_on_and_a_pause_saves_up_the_burst_alone() {
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
    fn what_one_late_timer_saved_up_does_not_stand_in_the_links_queue_for_ever() {
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
    fn it_is_exact_to_the_packet() {
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
