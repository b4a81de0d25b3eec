//! Ranges of addresses and their autonomous systems, in the form of iptoasn's tables: a line is
//! `first⇥last⇥number⇥country⇥name`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::providers::{self, Provider};

/// Maximum number of ranges of a table. The whole Internet has about 700,000: 2,000,000 × 48 bytes = 96 MB.
const MAX_RANGES: usize = 2_000_000;

/// Maximum number of bytes of a name that are kept.
const MAX_NAME: usize = 60;

/// Ranges of the providers of access in flight.
const BUILT_IN: &str = include_str!("ranges.tsv");

/// An autonomous system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Number.
    pub asn: u32,
    /// Provider, or the name in the table.
    pub name: String,
    /// Table and its date.
    pub table: String,
}

impl System {
    /// The provider, if it offers access in flight.
    pub fn provider(&self) -> Option<&'static Provider> {
        providers::of(self.asn)
    }
}

/// A table.
#[derive(Debug)]
pub struct AsTable {
    name: String,
    ranges: Vec<Range>,
    names: HashMap<u32, String>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    first: u128,
    last: u128,
    asn: u32,
}

/// Text that is not a table.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotATable {
    /// A line is not a range.
    #[error(
        "line {0} is not a range: write FIRST ADDRESS, LAST ADDRESS, AS NUMBER, COUNTRY and NAME, separated by tabs, as \
         iptoasn's ip2asn-combined.tsv has them"
    )]
    Line(usize),
    /// Two ranges overlap.
    #[error("the ranges of AS{0} and AS{1} overlap: an address belongs to one range")]
    Overlap(u32, u32),
    /// The table has too many ranges.
    #[error("it has more than {MAX_RANGES} ranges")]
    TooLong,
    /// The table has no ranges.
    #[error("it has no ranges")]
    Empty,
}

impl AsTable {
    /// The built-in table, which has providers of access in flight alone.
    pub fn built_in() -> Self {
        let name = format!("built in, {}", providers::list().ranges_date);
        // A test reads it, so it has no faults.
        Self::parse(&name, BUILT_IN).unwrap_or_else(|_| Self {
            name,
            ranges: Vec::new(),
            names: HashMap::new(),
        })
    }

    /// Parses a table. Ranges that nobody announces, AS 0, are left out.
    pub fn parse(name: &str, text: &str) -> Result<Self, NotATable> {
        let (mut ranges, mut names): (Vec<Range>, _) = (Vec::new(), HashMap::new());
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (range, owner) = range(line).ok_or(NotATable::Line(index + 1))?;
            if range.asn == 0 {
                continue;
            }
            if ranges.len() == MAX_RANGES {
                return Err(NotATable::TooLong);
            }
            ranges.push(range);
            names.entry(range.asn).or_insert_with(|| clean(owner));
        }
        ranges.sort_unstable_by_key(|range| range.first);
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].last >= pair[1].first) {
            return Err(NotATable::Overlap(pair[0].asn, pair[1].asn));
        }
        if ranges.is_empty() {
            return Err(NotATable::Empty);
        }
        Ok(Self { name: name.into(), ranges, names })
    }

    /// The system of an address.
    pub fn find(&self, address: IpAddr) -> Option<System> {
        let key = key(address);
        let after = self.ranges.partition_point(|range| range.first <= key);
        let range = self.ranges[..after].last().filter(|range| key <= range.last)?;
        let known = providers::of(range.asn).map(|provider| provider.name.clone());
        let name = known.or_else(|| self.names.get(&range.asn).cloned()).unwrap_or_default();
        Some(System { asn: range.asn, name, table: self.name.clone() })
    }
}

/// Both families in one order: IPv4 as mapped addresses of IPv6.
fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => Ipv6Addr::to_bits(v6),
    }
}

fn range(line: &str) -> Option<(Range, &str)> {
    let mut fields = line.split('\t');
    let (first, last): (IpAddr, IpAddr) =
        (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let asn = fields.next()?.trim_start_matches("AS").trim_end().parse().ok()?;
    let (first_key, last_key) = (key(first), key(last));
    if first.is_ipv4() != last.is_ipv4() || first_key > last_key {
        return None;
    }
    // The country, and the name.
    let owner = fields.nth(1).unwrap_or_default();
    Some((Range { first: first_key, last: last_key, asn }, owner))
}

fn clean(name: &str) -> String {
    name.trim().chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# comment\n\
        1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET\n\
        1.0.1.0\t1.0.3.255\t0\tNone\tNot routed\n\
        98.97.0.0\t98.97.255.255\t14593\tUS\tSPACEX-STARLINK\n\
        2606:4700::\t2606:4700:ffff:ffff:ffff:ffff:ffff:ffff\t13335\tUS\tCLOUDFLARENET\n";

    fn asn(table: &AsTable, address: &str) -> Option<u32> {
        table.find(address.parse().unwrap()).map(|system| system.asn)
    }

    #[test]
    fn addresses_at_the_edges_of_ranges() {
        let table = AsTable::parse("t", TABLE).unwrap();
        assert_eq!(asn(&table, "1.0.0.0"), Some(13335));
        assert_eq!(asn(&table, "1.0.0.255"), Some(13335));
        assert_eq!(asn(&table, "1.0.1.0"), None, "not routed");
        assert_eq!(asn(&table, "0.255.255.255"), None);
        assert_eq!(asn(&table, "98.97.12.0"), Some(14593));
        assert_eq!(asn(&table, "98.98.0.0"), None);
        assert_eq!(asn(&table, "2606:4700::1111"), Some(13335));
        assert_eq!(asn(&table, "2606:4701::"), None);
        let cloudflare = table.find("1.0.0.1".parse().unwrap()).unwrap();
        assert_eq!((cloudflare.name.as_str(), cloudflare.table.as_str()), ("CLOUDFLARENET", "t"));
        let starlink = table.find("98.97.0.1".parse().unwrap()).unwrap();
        assert_eq!(starlink.name, "SpaceX Starlink", "providers have their own names");
    }

    #[test]
    fn faults_are_located() {
        let fault = |text: &str| AsTable::parse("t", text).unwrap_err();
        assert_eq!(fault("1.0.0.0\t1.0.0.255\t1\n1.0.0.0 1.0.0.255 1\n"), NotATable::Line(2));
        assert_eq!(fault("2.0.0.0\t1.0.0.255\t1"), NotATable::Line(1), "the end before the begin");
        assert_eq!(fault("1.0.0.0\t2001:db8::\t1"), NotATable::Line(1), "two families");
        assert_eq!(fault("1.0.0.0\t1.0.0.9\t1\n1.0.0.9\t1.0.0.9\t2"), NotATable::Overlap(1, 2));
        assert_eq!(fault("# nothing"), NotATable::Empty);
    }

    #[test]
    fn the_built_in_table_has_the_providers_it_names() {
        let table = AsTable::parse("t", BUILT_IN).unwrap();
        let named: Vec<u32> = providers::list().providers.iter().map(|p| p.asn).collect();
        assert!(table.ranges.iter().all(|range| named.contains(&range.asn)));
        assert!(table.ranges.len() > 500, "{}", table.ranges.len());
        let system = AsTable::built_in().find("98.97.0.1".parse().unwrap()).unwrap();
        assert_eq!((system.asn, system.name.as_str()), (14593, "SpaceX Starlink"));
        assert!(system.table.contains("2026-06-17"), "{}", system.table);
    }
}
