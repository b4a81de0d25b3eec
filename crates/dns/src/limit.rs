//! Rate limits of clients.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bentpipe_flow::quota::{Client, part_of_network};
use bentpipe_units::{TokenBucket, TokenRate};

use crate::asker::Asker;
use crate::known_clients::KnownClients;

/// Number of buckets that clients share: 1024 × 32 bytes = 32 KiB.
const BUCKETS: usize = 1024;

/// Number of shares for IPv6 networks: 256 × 128 bytes = 32 KiB.
const NETWORK_SHARES: usize = 256;

/// Clients' worth of queries that the [known](KnownClients) clients of an IPv6 network may send
/// together, and that all others of it may send together. One network often covers a whole cabin,
/// whose passengers are seldom all busy at once. A device that forges addresses in it gets only the
/// latter share.
const CLIENTS_OF_NETWORK: u64 = 64;

/// Twelfths of its slots that a network may fill with new queries, as a burst and per second: first
/// for clients that are not known, then for those that are. With 768 slots this is 128 and then 64
/// per second, and 512 and then 256 per second. A wait for an answer lasts at most three seconds.
/// However many addresses are forged, the queries begun in three seconds leave 448 slots.
const BEGIN: [(u64, u64); 2] = [(2, 1), (8, 4)];

/// Tokens of one new query, so that a twelfth of the slots is a whole number of them.
const TWELFTHS: u64 = 12;

/// Rate limits of all clients. Clients are spread over a fixed number of buckets by a keyed hash
/// that they cannot predict, so a flood affects few others.
pub struct Clients {
    /// Key of the hash; nobody else knows it.
    secret: [u8; 16],
    buckets: Box<[TokenBucket]>,
    networks: Box<[Share]>,
    known: KnownClients,
}

/// Share of a network in each bucket: for clients that are not known, and for those that are.
#[derive(Clone, Copy, Default)]
struct Share {
    queries: [TokenBucket; 2],
    starts: [TokenBucket; 2],
}

impl Clients {
    /// Creates full buckets. `secret` is the key of the hash.
    pub fn new(secret: [u8; 16]) -> Self {
        let buckets = vec![TokenBucket::default(); BUCKETS].into();
        let networks = vec![Share::default(); NETWORK_SHARES].into();
        Self { secret, buckets, networks, known: KnownClients::default() }
    }

    /// Index of `what` in a table of `slots`.
    fn index_of(&self, what: impl Hash, slots: usize) -> usize {
        // SipHash is a pseudorandom function if its input begins with a secret.
        let mut hasher = DefaultHasher::new();
        (self.secret, what).hash(&mut hasher);
        hasher.finish() as usize % slots
    }

    /// Counts a query of `asker` and returns `true`, unless `asker` or its network exceeds its
    /// rate. A refused query uses no tokens.
    pub fn take(&mut self, asker: Asker, rate: TokenRate, now: Duration) -> bool {
        let at = self.index_of(asker, BUCKETS);
        let of_network = asker.network().map(|network| self.index_of(network, NETWORK_SHARES));
        let own = &mut self.buckets[at];
        let Some(at) = of_network else { return own.take(rate, 1, now) };
        let is_known = usize::from(self.known.refresh(asker));
        let of_network = &mut self.networks[at].queries[is_known];
        let all = rate.times(CLIENTS_OF_NETWORK);
        let may = own.holds(rate, 1, now) && of_network.holds(all, 1, now);
        if may {
            own.spend(1);
            of_network.spend(1);
        }
        may
    }

    /// Counts a query of `asker` to the ground, with at most `most` in all. Returns `false` if too
    /// many of its network are new.
    pub fn begin(&mut self, asker: Asker, max: usize, now: Duration) -> bool {
        let Some(network) = asker.network() else { return true };
        let at = self.index_of(network, NETWORK_SHARES);
        let is_known = usize::from(self.known.refresh(asker));
        let ((burst, per_second), slots) = (BEGIN[is_known], part_of_network(max) as u64);
        let bucket = &mut self.networks[at].starts[is_known];
        // At least one at a time.
        let rate = TokenRate::new(per_second * slots, (burst * slots).max(TWELFTHS));
        bucket.take(rate, TWELFTHS, now)
    }

    /// Records that the ground answered a query that `asker` began.
    pub fn mark_known(&mut self, asker: Asker) {
        if asker.network().is_some() {
            self.known.add(asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    const RATE: TokenRate = TokenRate::new(10, 40);
    const SLOW: TokenRate = TokenRate::new(1, 5);

    #[test]
    fn one_client_leaves_room_for_others() {
        let mut clients = Clients::new([7; 16]);
        let mut take = |ip: [u8; 4], at_s| clients.take(ip.into(), RATE, Duration::from_secs(at_s));
        assert_eq!((0..100).filter(|_| take([10, 0, 0, 1], 5)).count(), 40);
        assert_eq!((0..100).filter(|_| take([10, 0, 0, 1], 6)).count(), 10);
        // The chance that ten or more of 200 others share its bucket is 1 in 10^13.
        assert!((2..202).filter(|n| take([10, 0, 0, *n], 6)).count() > 190);
    }

    fn in_one_network(n: u128) -> Asker {
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | n).into()
    }

    #[test]
    fn each_address_of_a_network_is_a_client() {
        let mut clients = Clients::new([7; 16]);
        let mut take = |n| clients.take(in_one_network(n), SLOW, Duration::ZERO);
        assert_eq!((0..100).filter(|_| take(1)).count(), 5);
        // Few of them share a bucket.
        let served = (2..52).filter(|n| (0..5).all(|_| take(*n)));
        assert!(served.count() > 40);
    }

    #[test]
    fn forged_addresses_share_the_limit_of_their_network() {
        let mut clients = Clients::new([7; 16]);
        let mut take = |asker: Asker| clients.take(asker, RATE, Duration::ZERO);
        let served = (0..100_000).filter(|n| take(in_one_network(*n)));
        assert_eq!(served.count(), 64 * 40);
        // Two or three tokens of each bucket are used, no more.
        assert!((0..200).all(|n| take([10, 0, 0, n].into())));
    }

    #[test]
    fn a_device_is_one_client_outside_any_network() {
        let mut clients = Clients::new([7; 16]);
        let mut take = |n| clients.take(Asker::Device([2, 0, 0, 0, 0, n]), SLOW, Duration::ZERO);
        assert_eq!((0..100).filter(|_| take(1)).count(), 5);
        assert!((0..5).all(|_| take(2)));
        assert!((0..1000).all(|_| clients.begin(Asker::Device([2; 6]), 1024, Duration::ZERO)));
    }

    #[test]
    fn known_clients_have_a_share_that_forged_addresses_cannot_use() {
        let mut clients = Clients::new([7; 16]);
        let at = |ms| Duration::from_millis(ms);
        clients.mark_known(in_one_network(1));
        let begun = (100..10_000).filter(|n| clients.begin(in_one_network(*n), 1024, at(0)));
        assert_eq!(begun.count(), 128);
        let begun = (100..10_000).filter(|n| clients.begin(in_one_network(*n), 1024, at(1000)));
        assert_eq!(begun.count(), 64);
        // Known clients have their own share. So does IPv4, which has no /64.
        let known = (0..1000).filter(|_| clients.begin(in_one_network(1), 1024, at(1000)));
        assert_eq!(known.count(), 512);
        assert!((0..1000).all(|_| clients.begin([10, 0, 0, 1].into(), 1024, at(1000))));
        // The same holds for queries.
        let mut take = |ip| clients.take(in_one_network(ip), RATE, at(2000));
        assert_eq!((100..100_000).filter(|n| take(*n)).count(), 64 * 40);
        assert!(take(1));
    }
}
