//! Answers of our own resolver: addresses of names, for as long as the answers hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use super::Name;
use super::subject::MAX_NAMES_CONSIDERED;

/// Names known at once; with all their addresses, about 10 MiB.
pub const MAX_NAMES: usize = 4096;

/// Addresses kept of one name: those answered last.
pub const MAX_ADDRESSES_PER_NAME: usize = 16;

/// Answers that hold shorter are kept this long: a client connects a moment after it has asked.
pub const MIN_TTL: Duration = Duration::from_secs(60);

/// Answers that hold longer are asked for again after this.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// Pairs of name and address that agree. Time is a [`Duration`] since the gateway started.
#[derive(Debug, Default)]
pub struct NameTable {
    names: HashMap<Name, Entry>,
    /// Every pair again, the address first.
    by_address: BTreeSet<(IpAddr, Name)>,
    /// The names in the order in which they were learned last.
    order: BTreeMap<u64, Name>,
    learned: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// With the time each ends.
    addresses: Vec<(IpAddr, Duration)>,
    /// Its place in the order.
    learned: u64,
}

impl NameTable {
    /// Our resolver answered these `addresses` for `name`, for `ttl` from `now`. Where the table is
    /// full, the name that was learned longest ago is forgotten.
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

    /// Returns `true` if `address` was answered for `name`, and the answer still holds.
    pub fn agrees(&self, name: &Name, address: IpAddr, now: Duration) -> bool {
        let address = address.to_canonical();
        let holds = |(known, until): &(IpAddr, Duration)| *known == address && now < *until;
        self.names.get(name).is_some_and(|entry| entry.addresses.iter().any(holds))
    }

    /// The names for which `address` was answered, or none where they are more than
    /// [`MAX_NAMES_CONSIDERED`]: such an address says nothing about the name.
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

    /// Names known now, those whose answers have ended included.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns `true` if nothing is known.
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
        // The first is learned again, so that the second is the oldest now.
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
