//! DNS pairs of each resolver.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::dns::{Cause, DnsPair, NameKind, Quadrants, ResolverKind};

/// Pairs of all resolvers.
#[derive(Debug, Default)]
pub struct Lookups {
    /// Pairs by resolver.
    pub resolvers: BTreeMap<IpAddr, Resolver>,
}

/// Pairs of one resolver.
#[derive(Debug)]
pub struct Resolver {
    /// Reason for its choice.
    pub kind: ResolverKind,
    /// Pairs of names from the list.
    pub listed: Vec<DnsPair>,
    /// Pairs of unique names, whose first lookup must miss.
    pub unique: Vec<DnsPair>,
}

impl Lookups {
    pub(super) fn add(&mut self, pair: &DnsPair) {
        let resolver = self.resolvers.entry(pair.resolver).or_insert_with(|| Resolver {
            kind: pair.resolver_kind,
            listed: Vec::new(),
            unique: Vec::new(),
        });
        match pair.kind {
            NameKind::Listed => resolver.listed.push(pair.clone()),
            NameKind::Unique => resolver.unique.push(pair.clone()),
        }
    }
}

impl Resolver {
    /// Quadrants of the names from the list.
    pub fn quadrants(&self, minimum_rtt_us: u64) -> Quadrants {
        Quadrants::of(&self.listed, minimum_rtt_us)
    }

    /// Cause of the double misses.
    pub fn cause(&self, minimum_rtt_us: u64) -> Cause {
        Cause::of(&self.listed, minimum_rtt_us)
    }

    /// Share of unique names whose first lookup was faster than the ground. It should be 0: anything else
    /// says that the resolver answers without asking, or that the minimum round-trip time is too high.
    pub fn impossible_hits(&self, minimum_rtt_us: u64) -> Option<f64> {
        Quadrants::of(&self.unique, minimum_rtt_us).first_hits()
    }

    /// Times of first and second lookups in microseconds, of pairs with both.
    pub fn times(&self) -> Vec<(u64, u64)> {
        self.listed.iter().filter_map(|pair| pair.first.rtt_us.zip(pair.second.rtt_us)).collect()
    }
}
