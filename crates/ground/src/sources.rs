//! Source addresses of passengers' traffic.
//!
//! Each address has all of the kernel's ports. A passenger keeps one address of each family for all
//! protocols (RFC 4787 REQ-2, "paired"). The choice survives restarts, because it depends only on
//! the list.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_config::{AircraftConfig, Country, SourceAddress};
use bentpipe_net as net;
use parking_lot::RwLock;

/// Source addresses by family. Clones share the countries of the aircraft.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    v4: Vec<SourceAddress>,
    v6: Vec<SourceAddress>,
    /// Countries of aircraft, by their keys.
    countries: Arc<RwLock<HashMap<[u8; 32], Country>>>,
}

impl Sources {
    /// Creates the sources from `addresses`.
    pub fn new(addresses: &[SourceAddress]) -> Self {
        let (v4, v6) = addresses.iter().cloned().partition(|it| it.ip.is_ipv4());
        Self { v4, v6, countries: Arc::default() }
    }

    /// Notes the countries of the aircraft.
    pub fn set_aircraft(&self, aircraft: &[AircraftConfig]) {
        let countries = aircraft.iter().filter_map(|it| Some((*it.key.as_bytes(), it.country?)));
        *self.countries.write() = countries.collect();
    }

    /// Returns the source address for `who` of an aircraft; `None` if the kernel chooses. It is in the
    /// aircraft's country if there is one there.
    pub fn of(&self, aircraft: &[u8; 32], who: &impl Hash, v6: bool) -> Option<IpAddr> {
        let country = self.countries.read().get(aircraft).copied();
        let is_there = |it: &&SourceAddress| {
            it.place.as_ref().is_some_and(|place| Some(place.country) == country)
        };
        let there = || self.all(v6).iter().filter(is_there);
        match there().count() {
            0 => chosen(who, self.all(v6).len()).and_then(|at| self.all(v6).get(at)),
            count => chosen(who, count).and_then(|at| there().nth(at)),
        }
        .map(|it| it.ip)
    }

    /// Addresses of one family.
    pub fn all(&self, v6: bool) -> &[SourceAddress] {
        if v6 { &self.v6 } else { &self.v4 }
    }
}

/// One of `count`, the same for the same `who`; `None` if there are none.
fn chosen(who: &impl Hash, count: usize) -> Option<usize> {
    let mut hasher = DefaultHasher::new();
    who.hash(&mut hasher);
    hasher.finish().checked_rem(count as u64).map(|at| at as usize)
}

/// Returns the addresses that this machine does not have.
pub fn missing(addresses: &[SourceAddress]) -> impl Iterator<Item = IpAddr> {
    addresses.iter().map(|it| it.ip).filter(|ip| net::bound(*ip).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn passengers_are_spread_over_the_addresses_of_each_family() {
        let written = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3"];
        let sources = Sources::new(&written.map(at));
        let of = |passenger: u32, v6| sources.of(&[7; 32], &passenger, v6);
        let used: HashSet<_> = (0..100).map(|passenger| of(passenger, false)).collect();
        assert_eq!(used.len(), 3);
        assert!((0..100).all(|passenger| of(passenger, false) == of(passenger, false)));
        assert_eq!(of(1, true), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(Sources::default().of(&[7; 32], &1, false), None);
    }

    #[test]
    fn passengers_get_an_address_in_the_country_of_their_aircraft() {
        let config = |countries: [&str; 2]| {
            let [first, second] = countries;
            let folder = tempfile::tempdir().unwrap();
            let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
            std::fs::write(folder.path().join("a.key"), key).unwrap();
            let text = format!(
                "[link]\nprivate-key-file = \"a.key\"\nlisten = \"[::]:4500\"\n\
                 [dial]\nsources = [\"192.0.2.1\", {{ address = \"192.0.2.2\", country = \"FR\" }}]\n\
                 [[aircraft]]\nname = \"a\"\npublic-key = \"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\"\n\
                 country = \"{first}\"\n\
                 [[aircraft]]\nname = \"b\"\npublic-key = \"QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=\"\n\
                 country = \"{second}\"\n"
            );
            bentpipe_config::GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap()
        };
        let before = config(["FR", "US"]);
        let sources = Sources::new(&before.dial.sources);
        sources.set_aircraft(&before.aircraft);
        let used = |number: usize| -> HashSet<_> {
            let aircraft = *before.aircraft[number].key.as_bytes();
            (0..100).filter_map(|passenger| sources.of(&aircraft, &passenger, false)).collect()
        };
        let french = HashSet::from(["192.0.2.2".parse().unwrap()]);
        assert_eq!(
            (used(0), used(1).len()),
            (french.clone(), 2),
            "nothing is in the other country"
        );
        // A reload counts at once.
        sources.set_aircraft(&config(["US", "FR"]).aircraft);
        assert_eq!((used(0).len(), used(1)), (2, french));
    }

    fn at(ip: &str) -> SourceAddress {
        SourceAddress { ip: ip.parse().unwrap(), place: None }
    }
}
