//! Places of a server's connections, and the hosts that have them.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::quota::{Holdings, may_hold};

/// Open connections of each host. A host alone may have a fifth of all places, so that strangers who
/// can connect do not take the places of others.
#[derive(Clone, Debug)]
pub struct Places {
    held: Arc<Mutex<Holdings<IpAddr>>>,
    all: usize,
    is_loopback_exempt: bool,
}

/// Place of a connection until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    host: IpAddr,
}

impl Places {
    /// A server with room for `all` connections.
    pub fn new(all: usize) -> Self {
        Self { held: Arc::default(), all, is_loopback_exempt: false }
    }

    /// Lets this host have all places, because a proxy on it brings the connections of others.
    #[must_use]
    pub fn exempt_loopback(self) -> Self {
        Self { is_loopback_exempt: true, ..self }
    }

    /// Reserves a place for a connection from `address`; `None` if its host has its share.
    pub fn admit(&self, address: IpAddr) -> Option<Place> {
        let host = host_of(address);
        let mut held = self.held.lock();
        let free = self.all.saturating_sub(held.total());
        let is_admitted = if self.is_loopback_exempt && address.to_canonical().is_loopback() {
            free > 0
        } else {
            may_hold(held.of(&host), 1, free)
        };
        is_admitted.then(|| {
            held.add(host, 1);
            Place { places: self.clone(), host }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.places.held.lock();
        held.remove(self.host, 1);
    }
}

/// Host of an address: an IPv6 /64 is one host, because it may choose its addresses there.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_leaves_places_for_others() {
        let places = Places::new(64);
        let from = |host: u16, interface: u16| {
            places.admit([0x2001, 0xdb8, 0, host, 0, 0, 0, interface].into())
        };
        let stranger: Vec<_> = (0..100).map_while(|at| from(1, at)).collect();
        assert_eq!(stranger.len(), 13);
        let other = places.admit([192, 0, 2, 1].into()).expect("the stranger left places");
        assert!(from(1, 200).is_none());
        drop((stranger, other));
        let again: Vec<_> = (0..100).map_while(|at| from(1, at)).collect();
        assert_eq!(again.len(), 13);
    }

    #[test]
    fn only_an_exempt_loopback_may_have_all_places() {
        for address in [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
            for (places, most) in [(Places::new(64), 13), (Places::new(64).exempt_loopback(), 64)] {
                let own: Vec<_> = (0..100).map_while(|_| places.admit(address)).collect();
                assert_eq!(own.len(), most, "{address}");
            }
        }
    }
}
