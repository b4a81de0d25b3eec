//! Limits on questions.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use crate::known::Known;

/// Buckets that clients share: at 24 bytes each, 24 KiB.
const BUCKETS: usize = 1024;

/// Shares that networks of IPv6 share in their turn: at 96 bytes each, 24 KiB.
const NETWORK_SHARES: usize = 256;

/// A network of IPv6 may ask like this many clients, and those of it that are not [`Known`] besides. A cabin
/// is often one network, whose passengers are seldom all busy at once; and one device may choose as many
/// addresses in it as it likes, which have no more than this together.
const CLIENTS_OF_NETWORK: f64 = 64.0;

/// Parts of its places that a network may fill with new questions at once, and in each second: for
/// clients that are not [`Known`], and for those that are. With 768 places that is 128 and then 64
/// per second, and 512 and then 256 per second. However many addresses somebody makes up, the
/// questions begun in three seconds, the longest wait for an answer, leave 448 places.
const BEGIN: [(f64, f64); 2] = [(1.0 / 6.0, 1.0 / 12.0), (2.0 / 3.0, 1.0 / 3.0)];

/// So many per second on average, and a burst at a stretch.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    tokens: f64,
    filled_at: Option<Duration>,
}

impl Bucket {
    /// A full one: it holds `burst` the first time that it is asked.
    pub const FULL: Self = Self { tokens: 0.0, filled_at: None };

    /// Takes one, if there is one.
    pub fn take(&mut self, per_second: f64, burst: f64, now: Duration) -> bool {
        let enough = self.holds_one(per_second, burst, now);
        if enough {
            self.spend();
        }
        enough
    }

    /// Returns `true` if there is one.
    fn holds_one(&mut self, per_second: f64, burst: f64, now: Duration) -> bool {
        self.tokens = match self.filled_at {
            None => burst,
            Some(at) => {
                let since = now.saturating_sub(at).as_secs_f64();
                (self.tokens + since * per_second).min(burst)
            }
        };
        self.filled_at = Some(now);
        self.tokens >= 1.0
    }

    fn spend(&mut self) {
        self.tokens -= 1.0;
    }
}

/// Address that counts as one client: the whole address.
pub fn client(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The network of IPv6 that a client may choose its addresses from (RFC 4291 section 2.5.4), which is
/// often all of a cabin's.
pub fn network(ip: IpAddr) -> Option<u64> {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Some((ip.to_bits() >> 64) as u64),
        IpAddr::V4(_) => None,
    }
}

/// Part of `all` for one such network: a quarter is left to the others, whatever addresses somebody
/// in it makes up.
pub fn part_of_network(all: usize) -> usize {
    all - all / 4
}

/// Clients are spread over a fixed number of buckets by a hash that they cannot know, so who floods
/// takes from few others.
pub struct Clients {
    hash: RandomState,
    buckets: Box<[Bucket]>,
    networks: Box<[Share]>,
    known: Known,
}

/// Part of a network in each: for clients that are not known, and for those that are.
#[derive(Clone, Copy)]
struct Share {
    queries: [Bucket; 2],
    begins: [Bucket; 2],
}

impl Default for Clients {
    fn default() -> Self {
        let share = Share { queries: [Bucket::FULL; 2], begins: [Bucket::FULL; 2] };
        let (buckets, networks) =
            (vec![Bucket::FULL; BUCKETS].into(), vec![share; NETWORK_SHARES].into());
        Self { hash: RandomState::new(), buckets, networks, known: Known::default() }
    }
}

impl Clients {
    /// Counts a query of `ip`, unless it has sent too many, or its network has. Who may not ask takes
    /// nothing from the others of either.
    pub fn take(&mut self, ip: IpAddr, per_second: f64, burst: f64, now: Duration) -> bool {
        let at = self.hash.hash_one(client(ip)) as usize % BUCKETS;
        let own = &mut self.buckets[at];
        let Some(network) = network(ip) else { return own.take(per_second, burst, now) };
        let at = self.hash.hash_one(network) as usize % NETWORK_SHARES;
        let is_known = usize::from(self.known.asks(client(ip)));
        let of_network = &mut self.networks[at].queries[is_known];
        let (all_per_second, most) = (CLIENTS_OF_NETWORK * per_second, CLIENTS_OF_NETWORK * burst);
        let may = own.holds_one(per_second, burst, now)
            && of_network.holds_one(all_per_second, most, now);
        if may {
            own.spend();
            of_network.spend();
        }
        may
    }

    /// Counts a question of `ip` that is to go to the ground, where there may be `most` of all, unless too
    /// many of its network have.
    pub fn begin(&mut self, ip: IpAddr, most: usize, now: Duration) -> bool {
        let Some(network) = network(ip) else { return true };
        let at = self.hash.hash_one(network) as usize % NETWORK_SHARES;
        let is_known = usize::from(self.known.asks(client(ip)));
        let ((burst, per_second), places) = (BEGIN[is_known], part_of_network(most) as f64);
        let bucket = &mut self.networks[at].begins[is_known];
        // One at a time, at least.
        bucket.take(per_second * places, (burst * places).max(1.0), now)
    }

    /// The ground has answered a question that the client at `ip` began.
    pub fn answered(&mut self, ip: IpAddr) {
        if network(ip).is_some() {
            self.known.add(client(ip));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn one_client_leaves_room_for_others() {
        let mut clients = Clients::default();
        let mut take =
            |ip: [u8; 4], at_s| clients.take(ip.into(), 10.0, 40.0, Duration::from_secs(at_s));
        assert_eq!((0..100).filter(|_| take([10, 0, 0, 1], 5)).count(), 40);
        assert_eq!((0..100).filter(|_| take([10, 0, 0, 1], 6)).count(), 10);
        // Ten or more of 200 others have its bucket with a chance of 1 in 10^13.
        assert!((2..202).filter(|n| take([10, 0, 0, *n], 6)).count() > 190);
    }

    fn in_one_network(n: u128) -> IpAddr {
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | n).into()
    }

    #[test]
    fn each_of_a_network_is_a_client() {
        let mut clients = Clients::default();
        let mut take = |n| clients.take(in_one_network(n), 1.0, 5.0, Duration::ZERO);
        assert_eq!((0..100).filter(|_| take(1)).count(), 5);
        // Few of them share a bucket.
        let served = (2..52).filter(|n| (0..5).all(|_| take(*n)));
        assert!(served.count() > 40);
    }

    #[test]
    fn made_up_addresses_have_no_more_than_their_network() {
        let mut clients = Clients::default();
        let mut take = |ip| clients.take(ip, 10.0, 40.0, Duration::ZERO);
        let served = (0..100_000).filter(|n| take(in_one_network(*n)));
        assert_eq!(served.count(), 64 * 40);
        // Two or three of each bucket are gone, and no more.
        assert!((0..200).all(|n| take([10, 0, 0, n].into())));
    }

    #[test]
    fn who_was_answered_has_a_share_that_made_up_addresses_cannot_take() {
        let mut clients = Clients::default();
        let at = |ms| Duration::from_millis(ms);
        clients.answered(in_one_network(1));
        let begun = (100..10_000).filter(|n| clients.begin(in_one_network(*n), 1024, at(0)));
        assert_eq!(begun.count(), 128);
        let begun = (100..10_000).filter(|n| clients.begin(in_one_network(*n), 1024, at(1000)));
        assert_eq!(begun.count(), 64);
        // The known have one of their own, and so has IPv4, where a network is no /64.
        let known = (0..1000).filter(|_| clients.begin(in_one_network(1), 1024, at(1000)));
        assert_eq!(known.count(), 512);
        assert!((0..1000).all(|_| clients.begin([10, 0, 0, 1].into(), 1024, at(1000))));
        // The same for queries.
        let mut take = |ip| clients.take(in_one_network(ip), 10.0, 40.0, at(2000));
        assert_eq!((100..100_000).filter(|n| take(*n)).count(), 64 * 40);
        assert!(take(1));
    }
}
