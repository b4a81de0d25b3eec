//! Who may ask how much.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Buckets that clients share: at 24 bytes each, 24 KiB.
const BUCKETS: usize = 1024;

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
        self.tokens = match self.filled_at {
            None => burst,
            Some(at) => {
                let since = now.saturating_sub(at).as_secs_f64();
                (self.tokens + since * per_second).min(burst)
            }
        };
        self.filled_at = Some(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

/// What counts as one client: an address, or a network of IPv6 that one host may choose its addresses
/// from.
pub fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Clients are spread over a fixed number of buckets by a hash that they cannot know, so who floods
/// takes from few others.
pub struct Clients {
    hash: RandomState,
    buckets: Box<[Bucket]>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { hash: RandomState::new(), buckets: vec![Bucket::FULL; BUCKETS].into() }
    }
}

impl Clients {
    /// Counts a query of `client`, unless it has sent too many.
    pub fn take(&mut self, client: IpAddr, per_second: f64, burst: f64, now: Duration) -> bool {
        let at = self.hash.hash_one(network(client)) as usize % BUCKETS;
        self.buckets[at].take(per_second, burst, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let mut clients = Clients::default();
        let served = (0..100u128).filter(|n| {
            let ip = Ipv6Addr::from_bits(0x2001_0db8 << 96 | n);
            clients.take(ip.into(), 1.0, 5.0, Duration::ZERO)
        });
        assert_eq!(served.count(), 5);
    }
}
