//! The aircraft's side of granted rates: when to say DEMAND, and how long a LEASE may be used.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::BitRate;

use super::IDLE_GRANT;
use super::beam::{GRANT_LIFETIME, Grant};

/// Demand of an aircraft: the data that it wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Rises with every DEMAND of a session.
    pub number: u64,
    /// The sequence of the LEASE that is followed; 0 where there was none. Earlier ones will
    /// never be used again.
    pub follows: u64,
    /// Bytes that wait to be sent.
    pub waiting_bytes: u64,
    /// The rate that would be used.
    pub useful: BitRate,
}

/// Times of so many DEMANDs are kept, 16 bytes each: at eight a round trip those of eight.
const MAX_SAID: usize = 64;
/// Demands are this part of a round trip apart at least, whatever happens …
const LEAST_GAP: u32 = 8;
/// … and, while there is something to send, one at most, but no closer than this; four times as
/// often once half of the lease's life has passed without a new one.
const LEAST_RENEWAL: Duration = Duration::from_millis(100);
/// A lifetime longer than this is cut: the ground's own is [`GRANT_LIFETIME`].
const MOST_LIFETIME: Duration = Duration::from_secs(60);

/// Requested rate, and the rate in use.
#[derive(Debug)]
pub struct Claim {
    next_number: u64,
    said: VecDeque<(u64, Duration)>,
    last_useful: BitRate,
    follows: u64,
    rate: BitRate,
    /// End of the lease in use.
    until: Duration,
    /// The rate that is followed changed, and the ground waits to hear so.
    unconfirmed: bool,
}

impl Claim {
    pub fn new() -> Self {
        Self {
            next_number: 1,
            said: VecDeque::new(),
            last_useful: BitRate::from_bps(0),
            follows: 0,
            rate: IDLE_GRANT,
            until: Duration::ZERO,
            unconfirmed: false,
        }
    }

    /// Believes a LEASE: what may be sent, and until when. `None` for one that is overtaken, or
    /// answers what was said too long ago to know when.
    pub fn take(&mut self, grant: &Grant) -> Option<(BitRate, Duration)> {
        if grant.sequence <= self.follows {
            return None;
        }
        let (_, said_at) = self.said.iter().find(|(number, _)| *number == grant.answers)?;
        self.follows = grant.sequence;
        self.unconfirmed |= grant.rate != self.rate;
        self.rate = grant.rate;
        self.until = *said_at + grant.lifetime.min(MOST_LIFETIME);
        Some((grant.rate, self.until))
    }

    /// Time at which the next DEMAND should leave, if `useful` stays what it is; `None` if nothing
    /// is to be said. It leaves at once on a change by a quarter, or of the rate in use. Otherwise
    /// it leaves once a round trip, while there is more to send than needs no request.
    pub fn due_at(&self, useful: BitRate, rtt: Duration) -> Option<Duration> {
        let Some(&(_, last)) = self.said.back() else { return Some(Duration::ZERO) };
        let (said, useful) = (self.last_useful.bps(), useful.max(IDLE_GRANT).bps());
        let changed = useful.abs_diff(said.max(IDLE_GRANT.bps())) > said.min(useful) / 4;
        if changed || self.unconfirmed {
            return Some(last + rtt / LEAST_GAP);
        }
        let interval = rtt.clamp(LEAST_RENEWAL, GRANT_LIFETIME / 4);
        let interval = if last + GRANT_LIFETIME / 2 > self.until { interval / 4 } else { interval };
        (useful > IDLE_GRANT.bps()).then(|| last + interval)
    }

    /// The DEMAND that leaves now.
    pub fn say(&mut self, waiting_bytes: u64, useful: BitRate, now: Duration) -> Demand {
        let number = self.next_number;
        self.next_number += 1;
        if self.said.len() == MAX_SAID {
            self.said.pop_front();
        }
        self.said.push_back((number, now));
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
    fn a_lease_lives_from_when_it_was_asked_for_and_the_latest_wins() {
        let mut claim = Claim::new();
        let useful = BitRate::from_bps(2_000_000);
        claim.say(9, useful, ms(100));
        claim.say(9, useful, ms(700));
        let (rate, until) = claim.take(&grant(4, 1, 1000)).unwrap();
        assert_eq!((rate.bps(), until), (1_000_000, ms(6100)));
        assert_eq!(claim.take(&grant(4, 2, 9000)), None, "the same again");
        assert_eq!(claim.take(&grant(3, 2, 9000)), None, "overtaken");
        assert_eq!(claim.take(&grant(5, 7, 9000)), None, "an answer to nothing");
        assert_eq!(claim.take(&grant(5, 2, 500)).unwrap().1, ms(6700));
        assert_eq!(claim.say(9, useful, ms(800)).follows, 5);
    }

    #[test]
    fn it_speaks_when_something_changes_and_keeps_silent_when_idle() {
        let mut claim = Claim::new();
        let busy = BitRate::from_bps(2_000_000);
        assert_eq!(claim.due_at(IDLE_GRANT, RTT), Some(ms(0)), "the first");
        claim.say(0, IDLE_GRANT, ms(0));
        assert_eq!(claim.due_at(BitRate::from_bps(0), RTT), None);
        assert_eq!(claim.due_at(busy, RTT), Some(ms(75)));
        claim.say(9, busy, ms(100));
        assert_eq!(claim.due_at(busy, RTT), Some(ms(250)), "there is no lease yet");
        claim.take(&grant(1, 2, 1000)).unwrap();
        assert_eq!(claim.due_at(busy, RTT), Some(ms(175)), "the ground waits to hear it");
        claim.say(9, busy, ms(175));
        claim.take(&grant(2, 3, 1000)).unwrap();
        assert_eq!(claim.due_at(busy, RTT), Some(ms(775)), "a renewal changes nothing");
        assert_eq!(claim.due_at(IDLE_GRANT, RTT), Some(ms(250)), "the last word");
    }
}
