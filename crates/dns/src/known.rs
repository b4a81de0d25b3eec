//! Clients whose questions the ground has answered of late: somebody was there to wait for the answer.
//! Addresses that are made up as they are used have asked nothing before.

use std::collections::HashSet;
use std::net::IpAddr;

/// Addresses that are remembered: those that asked last, and at least half as many; at some 48 bytes each
/// 192 KiB.
const MOST_KNOWN: usize = 4096;

/// Their addresses, in two halves: what is not asked by while the younger one fills is forgotten.
#[derive(Default)]
pub struct Known {
    young: HashSet<IpAddr>,
    old: HashSet<IpAddr>,
}

impl Known {
    /// A question that the client at `ip` began has been answered.
    pub fn add(&mut self, ip: IpAddr) {
        if self.young.contains(&ip) {
            return;
        }
        if self.young.len() >= MOST_KNOWN / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&ip);
        self.young.insert(ip);
    }

    /// Returns `true` if the asking client at `ip` is known; it then stays so.
    pub fn asks(&mut self, ip: IpAddr) -> bool {
        if self.old.contains(&ip) {
            self.add(ip);
        }
        self.young.contains(&ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn who_goes_on_asking_stays_known_whoever_else_comes() {
        let ip = |n: u128| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        let mut known = Known::default();
        known.add(ip(0));
        for n in 1..20_000 {
            known.add(ip(n));
            if n % 1000 == 0 {
                assert!(known.asks(ip(0)), "after {n}");
            }
            assert!(known.young.len() + known.old.len() <= MOST_KNOWN);
        }
        assert!(!known.asks(ip(1)) && !known.asks(ip(30_000)));
    }
}
