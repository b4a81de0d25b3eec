//! Providers of access in flight, by autonomous system, with table 1 of the paper.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::orbit::Kind;

/// The list, with its sources and dates.
const LIST: &str = include_str!("providers.json");

/// All providers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Providers {
    /// Date of this list.
    pub providers_date: String,
    /// Date of the ranges.
    pub ranges_date: String,
    /// Source of the ranges.
    pub ranges_source: String,
    /// Source of the carriers.
    pub paper: String,
    /// Providers.
    pub providers: Vec<Provider>,
}

/// A provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Autonomous system.
    pub asn: u32,
    /// Name: that of the paper first, where they differ.
    pub name: String,
    /// All kinds of access that it sells to airlines; empty if that is not known or it sells all.
    pub kinds: Vec<Kind>,
    /// Carriers that used it in the paper's table 1.
    pub carriers: Option<String>,
}

/// The list.
pub fn list() -> &'static Providers {
    static PARSED: OnceLock<Providers> = OnceLock::new();
    PARSED.get_or_init(|| {
        // A test reads it, so it has no faults.
        serde_json::from_str(LIST).unwrap_or_else(|_| Providers {
            providers_date: String::new(),
            ranges_date: String::new(),
            ranges_source: String::new(),
            paper: String::new(),
            providers: Vec::new(),
        })
    })
}

/// The provider of a system.
pub fn of(asn: u32) -> Option<&'static Provider> {
    list().providers.iter().find(|provider| provider.asn == asn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_1_of_the_paper() {
        let providers: Providers = serde_json::from_str(LIST).unwrap();
        let table: Vec<u32> = providers
            .providers
            .iter()
            .filter(|provider| provider.carriers.is_some())
            .map(|provider| provider.asn)
            .collect();
        assert_eq!(table, [39996, 22351, 11167, 6621, 3320, 7155], "six systems, in its order");
        assert_eq!(of(7155).unwrap().carriers.as_deref(), Some("United Airlines"));
        assert!(of(64496).is_none());
    }
}
