//! Answers of our own resolver: addresses of names, for the lifetime of the answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use super::Name;

/// Maximum number of names per address. An address with more names does not identify a name.
pub const MAX_NAMES_CONSIDERED: usize = 32;

/// Maximum number of names; with all their addresses, they take about 10 MiB.
pub const MAX_NAMES: usize = 4096;

/// Maximum number of addresses per name; the latest ones are kept.
pub const MAX_ADDRESSES_PER_NAME: usize = 16;

/// Minimum lifetime of an entry, because a client connects shortly after its query.
pub const MIN_TTL: Duration = Duration::from_secs(60);

/// Maximum lifetime of an entry.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// Pairs of a name and an address that agree. Time is a [`Duration`] since the gateway started.
#[derive(Debug, Default)]
pub struct NameTable {
    names: HashMap<Name, Entry>,
    /// The same pairs, ordered by address.
    by_address: BTreeSet<(IpAddr, Name)>,
    /// Names in the order in which they were last learned.
    order: BTreeMap<u64, Name>,
    learned: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// Each address with its expiry time.
    addresses: Vec<(IpAddr, Duration)>,
    /// Position in [`NameTable::order`].
    learned: u64,
}

impl NameTable {
    /// Records that our resolver returned `addresses` for `name`, valid for `ttl` from `now`. If
    /// the table is full, the name learned longest ago is removed.
    pub fn learn(&mut self, name: &Name, addresses: &[IpAddr], ttl: Duration, now: Duration) {
        if addresses.is_empty() {
            return;
        }
        if !self.names.contains_key(name) && self.names.len() >= MAX_NAMES {
            self.forget_oldest();
        }
        self.learned += 1;
        let entry = self.names.entry(name.clone()).or_default();
        self.order.remove(&entry.learned);
        self.order.insert(self.learned, name.clone());
        entry.learned = self.learned;
        let until = now.saturating_add(ttl.clamp(MIN_TTL, MAX_TTL));
        let addresses = addresses.iter().take(MAX_ADDRESSES_PER_NAME).map(IpAddr::to_canonical);
        for address in addresses {
            entry.addresses.retain(|(known, _)| *known != address);
            entry.addresses.push((address, until));
            self.by_address.insert((address, name.clone()));
        }
        let surplus = entry.addresses.len().saturating_sub(MAX_ADDRESSES_PER_NAME);
        for (address, _) in entry.addresses.drain(..surplus) {
            self.by_address.remove(&(address, name.clone()));
        }
    }

    /// Returns `true` if our resolver returned `address` for `name`, and the answer has not
    /// expired.
    pub fn agrees(&self, name: &Name, address: IpAddr, now: Duration) -> bool {
        let address = address.to_canonical();
        let holds = |(known, until): &(IpAddr, Duration)| *known == address && now < *until;
        self.names.get(name).is_some_and(|entry| entry.addresses.iter().any(holds))
    }

    /// Returns the names for which our resolver returned `address`. Returns nothing if there are
    /// more than [`MAX_NAMES_CONSIDERED`], because such an address does not identify a name.
    pub fn names_of(&self, address: IpAddr, now: Duration) -> Vec<Name> {
        let address = address.to_canonical();
        let mut names = Vec::new();
        for name in self.pairs_of(address).filter(|name| self.agrees(name, address, now)) {
            if names.len() == MAX_NAMES_CONSIDERED {
                return Vec::new();
            }
            names.push(name.clone());
        }
        names
    }

    /// Number of names, including those whose answers have expired.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns `true` if the table has no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn pairs_of(&self, address: IpAddr) -> impl Iterator<Item = &Name> {
        let first = (address, Name::before_all());
        let pairs = self.by_address.range(first..);
        pairs.take_while(move |(known, _)| *known == address).map(|(_, name)| name)
    }

    fn forget_oldest(&mut self) {
        let Some((_, name)) = self.order.pop_first() else { return };
        let Some(entry) = self.names.remove(&name) else { return };
        for (address, _) in entry.addresses {
            self.by_address.remove(&(address, name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(n: usize) -> Name {
        format!("n{n}.test").parse().unwrap()
    }

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0xc000_0200 + n).into()
    }

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn pairs_agree_for_their_lifetime() {
        let mut table = NameTable::default();
        table.learn(&name(1), &[ip(1), ip(2)], seconds(300), seconds(10));
        assert!(table.agrees(&name(1), ip(2), seconds(309)));
        assert!(table.agrees(&name(1), "::ffff:192.0.2.1".parse().unwrap(), seconds(10)));
        assert!(!table.agrees(&name(1), ip(2), seconds(310)), "it has ended");
        assert!(
            !table.agrees(&name(1), ip(3), seconds(10))
                && !table.agrees(&name(2), ip(1), seconds(10))
        );
        table.learn(&name(2), &[ip(1)], seconds(1), seconds(10));
        assert_eq!(table.names_of(ip(1), seconds(69)), [name(1), name(2)]);
        assert_eq!(table.names_of(ip(1), seconds(70)), [name(1)]);
        table.learn(&name(2), &[ip(1)], seconds(1 << 40), seconds(100));
        assert!(table.agrees(&name(2), ip(1), seconds(86_499)));
        assert!(!table.agrees(&name(2), ip(1), seconds(86_500)));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = NameTable::default();
        for n in 0..MAX_NAMES {
            table.learn(&name(n), &[ip(1)], seconds(300), seconds(0));
        }
        // Learning the first name again makes the second the oldest.
        table.learn(&name(0), &[ip(1)], seconds(300), seconds(1));
        table.learn(&name(MAX_NAMES), &[ip(1)], seconds(300), seconds(1));
        assert_eq!(
            (table.len(), table.by_address.len(), table.order.len()),
            (MAX_NAMES, MAX_NAMES, MAX_NAMES)
        );
        assert!(table.agrees(&name(0), ip(1), seconds(2)));
        assert!(!table.agrees(&name(1), ip(1), seconds(2)));
        assert_eq!(table.names_of(ip(1), seconds(2)), [], "it says nothing about the name");
    }

    #[test]
    fn the_latest_addresses_of_a_name_are_kept() {
        let mut table = NameTable::default();
        let many: Vec<IpAddr> = (0..100).map(ip).collect();
        for ips in many.chunks(10) {
            table.learn(&name(1), ips, seconds(300), seconds(0));
        }
        let known: Vec<u32> =
            (0..100).filter(|n| table.agrees(&name(1), ip(*n), seconds(0))).collect();
        assert_eq!(known, (84..100).collect::<Vec<_>>());
        assert_eq!(table.by_address.len(), MAX_ADDRESSES_PER_NAME);
    }

    proptest! {
        #[test]
        fn both_ways_say_the_same(learned in prop::collection::vec((0..20usize, 0..40u32, 0..500u64), 0..300)) {
            let mut table = NameTable::default();
            for (at, (n, address, ttl)) in (0u64..).zip(&learned) {
                table.learn(&name(*n), &[ip(*address)], seconds(*ttl), seconds(at));
            }
            let now = seconds(300);
            for address in (0..40).map(ip) {
                let mut agreeing: Vec<Name> = (0..20).map(name).filter(|name| table.agrees(name, address, now)).collect();
                agreeing.sort();
                prop_assert_eq!(table.names_of(address, now), agreeing);
            }
        }
    }
}
