//! Clients that the ground has recently answered: somebody was there to wait for the answer.
//! Freshly forged addresses have no past queries.

use std::collections::HashSet;

use crate::asker::Asker;

/// Maximum number of remembered clients: 4096 × about 48 bytes = 192 KiB. At least the latest half
/// is remembered.
const MAX_KNOWN: usize = 4096;

/// Clients in two generations. A client that does not query while the younger generation fills is
/// forgotten.
#[derive(Default)]
pub struct KnownClients {
    young: HashSet<Asker>,
    old: HashSet<Asker>,
}

impl KnownClients {
    /// Records that a query of `asker` was answered.
    pub fn add(&mut self, asker: Asker) {
        if self.young.contains(&asker) {
            return;
        }
        if self.young.len() >= MAX_KNOWN / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&asker);
        self.young.insert(asker);
    }

    /// Returns `true` if `asker` is known, and keeps it known.
    pub fn refresh(&mut self, asker: Asker) -> bool {
        if self.old.contains(&asker) {
            self.add(asker);
        }
        self.young.contains(&asker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn active_clients_stay_known() {
        let ip = |n: u128| Asker::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        let mut known = KnownClients::default();
        known.add(ip(0));
        for n in 1..20_000 {
            known.add(ip(n));
            if n % 1000 == 0 {
                assert!(known.refresh(ip(0)), "after {n}");
            }
            assert!(known.young.len() + known.old.len() <= MAX_KNOWN);
        }
        assert!(!known.refresh(ip(1)) && !known.refresh(ip(30_000)));
    }
}
