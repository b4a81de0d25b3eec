//! The aircraft's side of granted rates: when to send a DEMAND, and how long a LEASE may be used.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::BitRate;

use super::{Demand, GRANT_LIFETIME, Grant, IDLE_GRANT};

/// Maximum number of DEMANDs whose times are kept, 16 bytes each. At eight a round trip that is
/// eight round trips.
const MAX_SENT: usize = 64;
/// Divisor of a round trip for the minimum interval of DEMANDs …
const MIN_GAP_PART: u32 = 8;
/// … and minimum interval of renewals while data waits: one a round trip, and four once half of the
/// lease's lifetime has passed without a new one.
const MIN_RENEWAL: Duration = Duration::from_millis(100);
/// Maximum lifetime that is accepted; the ground's own is [`GRANT_LIFETIME`].
const MAX_LIFETIME: Duration = Duration::from_secs(60);

/// Requested rate, and the rate in use.
#[derive(Debug)]
pub struct LeaseClient {
    next_number: u64,
    sent: VecDeque<(u64, Duration)>,
    last_useful: BitRate,
    follows: u64,
    rate: BitRate,
    /// End of the lease in use.
    until: Duration,
    /// The rate in use changed, and the ground has not been told.
    unconfirmed: bool,
}

impl LeaseClient {
    pub fn new() -> Self {
        Self {
            next_number: 1,
            sent: VecDeque::new(),
            last_useful: BitRate::from_bps(0),
            follows: 0,
            rate: IDLE_GRANT,
            until: Duration::ZERO,
            unconfirmed: false,
        }
    }

    /// Accepts a LEASE: returns the rate and its end. Returns `None` for a LEASE that is overtaken,
    /// or that answers a DEMAND sent too long ago.
    pub fn take(&mut self, grant: &Grant) -> Option<(BitRate, Duration)> {
        if grant.sequence <= self.follows {
            return None;
        }
        let (_, sent_at) = self.sent.iter().find(|(number, _)| *number == grant.answers)?;
        self.follows = grant.sequence;
        self.unconfirmed |= grant.rate != self.rate;
        self.rate = grant.rate;
        self.until = *sent_at + grant.lifetime.min(MAX_LIFETIME);
        Some((grant.rate, self.until))
    }

    /// Time at which the next DEMAND should be sent if `useful` stays the same; `None` if none is
    /// needed. It is sent at once if the demand changed by a quarter or the rate in use changed.
    /// Otherwise one follows each round trip while the demand exceeds [`IDLE_GRANT`].
    pub fn due_at(&self, useful: BitRate, rtt: Duration) -> Option<Duration> {
        let Some(&(_, last)) = self.sent.back() else { return Some(Duration::ZERO) };
        let (sent, useful) = (self.last_useful.bps(), useful.max(IDLE_GRANT).bps());
        let changed = useful.abs_diff(sent.max(IDLE_GRANT.bps())) > sent.min(useful) / 4;
        if changed || self.unconfirmed {
            return Some(last + rtt / MIN_GAP_PART);
        }
        let interval = rtt.clamp(MIN_RENEWAL, GRANT_LIFETIME / 4);
        let interval = if last + GRANT_LIFETIME / 2 > self.until { interval / 4 } else { interval };
        (useful > IDLE_GRANT.bps()).then(|| last + interval)
    }

    /// Makes the DEMAND to be sent now.
    pub fn demand(&mut self, waiting_bytes: u64, useful: BitRate, now: Duration) -> Demand {
        let number = self.next_number;
        self.next_number += 1;
        if self.sent.len() == MAX_SENT {
            self.sent.pop_front();
        }
        self.sent.push_back((number, now));
        self.last_useful = useful;
        self.unconfirmed = false;
        Demand { number, follows: self.follows, waiting_bytes, useful }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn grant(sequence: u64, answers: u64, kbps: u64) -> Grant {
        let rate = BitRate::from_bps(kbps * 1000);
        Grant { sequence, answers, rate, lifetime: ms(6000) }
    }

    #[test]
    fn a_lease_counts_from_its_request_and_the_latest_wins() {
        let mut client = LeaseClient::new();
        let useful = BitRate::from_bps(2_000_000);
        client.demand(9, useful, ms(100));
        client.demand(9, useful, ms(700));
        let (rate, until) = client.take(&grant(4, 1, 1000)).unwrap();
        assert_eq!((rate.bps(), until), (1_000_000, ms(6100)));
        assert_eq!(client.take(&grant(4, 2, 9000)), None, "the same again");
        assert_eq!(client.take(&grant(3, 2, 9000)), None, "overtaken");
        assert_eq!(client.take(&grant(5, 7, 9000)), None, "an answer to nothing");
        assert_eq!(client.take(&grant(5, 2, 500)).unwrap().1, ms(6700));
        assert_eq!(client.demand(9, useful, ms(800)).follows, 5);
    }

    #[test]
    fn demands_follow_changes_and_stop_when_idle() {
        let mut client = LeaseClient::new();
        let busy = BitRate::from_bps(2_000_000);
        assert_eq!(client.due_at(IDLE_GRANT, RTT), Some(ms(0)), "the first");
        client.demand(0, IDLE_GRANT, ms(0));
        assert_eq!(client.due_at(BitRate::from_bps(0), RTT), None);
        assert_eq!(client.due_at(busy, RTT), Some(ms(75)));
        client.demand(9, busy, ms(100));
        assert_eq!(client.due_at(busy, RTT), Some(ms(250)), "there is no lease yet");
        client.take(&grant(1, 2, 1000)).unwrap();
        assert_eq!(client.due_at(busy, RTT), Some(ms(175)), "the ground waits to hear it");
        client.demand(9, busy, ms(175));
        client.take(&grant(2, 3, 1000)).unwrap();
        assert_eq!(client.due_at(busy, RTT), Some(ms(775)), "a renewal changes nothing");
        assert_eq!(client.due_at(IDLE_GRANT, RTT), Some(ms(250)), "the last word");
    }
}
