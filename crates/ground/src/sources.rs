//! Source addresses of passengers' traffic.
//!
//! Each address has all of the kernel's ports. A passenger keeps one address of each family for all
//! protocols (RFC 4787 REQ-2, "paired"). The choice survives restarts, because it depends only on
//! the list.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use bentpipe_net as net;

/// Source addresses by family.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
}

impl Sources {
    /// Creates the sources from `addresses`.
    pub fn new(addresses: &[IpAddr]) -> Self {
        let (v4, v6) = addresses.iter().partition(|ip| ip.is_ipv4());
        Self { v4, v6 }
    }

    /// Returns the source address for `who`; `None` if the kernel chooses.
    pub fn of(&self, who: &impl Hash, v6: bool) -> Option<IpAddr> {
        let all = self.all(v6);
        let mut hasher = DefaultHasher::new();
        who.hash(&mut hasher);
        let at = hasher.finish().checked_rem(all.len() as u64)?;
        all.get(at as usize).copied()
    }

    /// Addresses of one family.
    pub fn all(&self, v6: bool) -> &[IpAddr] {
        if v6 { &self.v6 } else { &self.v4 }
    }
}

/// Returns the addresses that this machine does not have.
pub fn missing(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    addresses.iter().copied().filter(|ip| net::bound(*ip).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn passengers_are_spread_over_the_addresses_of_each_family() {
        let written = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3"];
        let sources = Sources::new(&written.map(|ip| ip.parse().unwrap()));
        let of = |passenger: u32, v6| sources.of(&([7u8; 32], passenger), v6);
        let used: HashSet<_> = (0..100).map(|passenger| of(passenger, false)).collect();
        assert_eq!(used.len(), 3);
        assert!((0..100).all(|passenger| of(passenger, false) == of(passenger, false)));
        assert_eq!(of(1, true), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(Sources::default().of(&1, false), None);
    }
}
