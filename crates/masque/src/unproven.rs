//! Bound on connections whose client has not shown its identity.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Connections whose client has not proved its key: with 64 KiB of received bytes each and 96 KiB
/// of datagrams for requests that have not come, 40 MiB. Beyond half of it a client must first show
/// that it receives at its address (a QUIC Retry); beyond all of it new ones are refused.
pub(crate) const MAX_UNPROVEN: usize = 256;

/// Maximum of these for one source, an IPv4 address or an IPv6 /64, by the same rule. A sender who
/// forges another's address gets no further than half, and takes nothing from the real owner.
pub(crate) const MAX_UNPROVEN_PER_SOURCE: usize = 32;

/// All places.
#[derive(Default)]
pub(crate) struct Unproven(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    /// Sources that have a place, so at most [`MAX_UNPROVEN`].
    sources: HashMap<IpAddr, usize>,
}

/// A place, given back when dropped.
pub(crate) struct Place {
    unproven: Arc<Unproven>,
    source: IpAddr,
}

/// Treatment of a new connection.
pub(crate) enum Arrival {
    Welcome(Place),
    /// It has to show first that it receives at its address.
    Retry,
    Refused,
}

impl Unproven {
    /// A place for a connection from `ip`, which is `validated` where it receives there for sure.
    pub fn arrive(self: &Arc<Self>, ip: IpAddr, validated: bool) -> Arrival {
        let source = source(ip);
        let mut taken = self.lock();
        let of_source = taken.sources.get(&source).copied().unwrap_or(0);
        if taken.all >= MAX_UNPROVEN || of_source >= MAX_UNPROVEN_PER_SOURCE {
            return Arrival::Refused;
        }
        let crowded = taken.all >= MAX_UNPROVEN / 2 || of_source >= MAX_UNPROVEN_PER_SOURCE / 2;
        if crowded && !validated {
            return Arrival::Retry;
        }
        taken.all += 1;
        taken.sources.insert(source, of_source + 1);
        Arrival::Welcome(Place { unproven: self.clone(), source })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.unproven.lock();
        taken.all -= 1;
        if let Some(of_source) = taken.sources.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                taken.sources.remove(&self.source);
            }
        }
    }
}

/// Source of one customer: a whole IPv4 address, the upper half of an IPv6 one.
fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places that `ips` get.
    fn places(
        unproven: &Arc<Unproven>,
        ips: impl Iterator<Item = IpAddr>,
        validated: bool,
    ) -> Vec<Place> {
        let arrive = |ip| match unproven.arrive(ip, validated) {
            Arrival::Welcome(place) => Some(place),
            Arrival::Retry | Arrival::Refused => None,
        };
        ips.filter_map(arrive).collect()
    }

    #[test]
    fn one_source_has_a_share() {
        let unproven = Arc::new(Unproven::default());
        let one = |n: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001 << 112 | u128::from(n) << 40));
        let forged = places(&unproven, (0..100).map(one), false);
        assert_eq!(forged.len(), MAX_UNPROVEN_PER_SOURCE / 2);
        assert!(matches!(unproven.arrive(one(7), false), Arrival::Retry));
        let real = places(&unproven, (0..100).map(one), true);
        assert_eq!(real.len(), MAX_UNPROVEN_PER_SOURCE / 2);
        assert!(matches!(unproven.arrive(one(7), true), Arrival::Refused));
        let other = places(&unproven, ["192.0.2.1".parse().unwrap()].into_iter(), false);
        assert_eq!(other.len(), 1);
        let mapped = places(&unproven, ["::ffff:192.0.2.1".parse().unwrap()].into_iter(), false);
        assert_eq!(mapped.len(), 1);
        assert_eq!(unproven.lock().sources.len(), 2);
        drop((forged, real, other, mapped));
        let taken = unproven.lock();
        assert_eq!((taken.all, taken.sources.len()), (0, 0));
    }

    #[test]
    fn all_sources_have_a_bound() {
        let unproven = Arc::new(Unproven::default());
        let four = |n: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(n));
        let forged = places(&unproven, (0..1000).map(four), false);
        assert_eq!(forged.len(), MAX_UNPROVEN / 2);
        let real = places(&unproven, (0..1000).map(four), true);
        assert_eq!(forged.len() + real.len(), MAX_UNPROVEN);
        assert!(matches!(unproven.arrive(four(5000), true), Arrival::Refused));
        drop(real);
        assert!(matches!(unproven.arrive(four(5000), true), Arrival::Welcome(_)));
    }
}
