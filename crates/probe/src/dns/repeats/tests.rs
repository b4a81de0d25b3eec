//! A modelled cluster, and a modelled cache that does not store some names.

use std::net::IpAddr;

use super::*;
use crate::dns::{Lookup, NameKind, ResolverKind, Response};
use crate::random::Random;

const MINIMUM_US: u64 = 600_000;
const NAMES: usize = 100;

/// Rounds of a flight of six hours.
const ROUNDS: u64 = 72;

/// Interval of rounds in seconds.
const EVERY_S: u64 = 300;

/// Resolvers with a cache each; `expires[cache][name]` is the end of a stored answer in seconds.
struct Model {
    expires: Vec<Vec<u64>>,
    ttls_s: Vec<u64>,
    /// Chance that another passenger asked a cache for a name since the last round.
    popularity: Vec<f64>,
    refused: Vec<bool>,
    random: Random,
}

impl Model {
    fn new(caches: usize, refused: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut each =
            |of: fn(f64) -> f64| -> Vec<f64> { (0..NAMES).map(|_| of(random.unit())).collect() };
        let ttls_s = each(|u| 60.0 + 3000.0 * u * u).into_iter().map(|ttl| ttl as u64).collect();
        let popularity = each(|u| u * u);
        let refused = each(|u| u).into_iter().map(|u| u < refused).collect();
        Self { expires: vec![vec![0; NAMES]; caches], ttls_s, popularity, refused, random }
    }

    fn lookup(&mut self, name: usize, now_s: u64) -> Lookup {
        let cache = self.random.next_u64() as usize % self.expires.len();
        let hit = self.expires[cache][name] > now_s;
        if !hit && !self.refused[name] {
            self.expires[cache][name] = now_s + self.ttls_s[name];
        }
        let u = self.random.unit();
        let cabin_us =
            if u < 0.7 { 1500.0 } else { 2000.0 - 12_000.0 * self.random.unit().max(1e-6).ln() };
        let ground_us = 600_000.0 - 160_000.0 * (1.0 - self.random.unit()).ln();
        let us = cabin_us + if hit { 0.0 } else { ground_us };
        let response =
            Response { rcode: 0, answers: 1, ttl_s: None, truncated: false, authoritative: false };
        // A twentieth of the lookups is lost.
        match self.random.unit() < 0.05 {
            true => Lookup::failed("generic_timeout_error"),
            false => Lookup { rtt_us: Some(us as u64), response: Some(response), failure: None },
        }
    }

    fn flight(&mut self) -> Vec<DnsPair> {
        let mut pairs = Vec::new();
        for round in 0..ROUNDS {
            let now_s = 1 + round * EVERY_S;
            for name in 0..NAMES {
                let asked = self.random.unit() < self.popularity[name];
                if asked && !self.refused[name] {
                    let cache = self.random.next_u64() as usize % self.expires.len();
                    self.expires[cache][name] =
                        self.expires[cache][name].max(now_s + self.ttls_s[name] / 2);
                }
                let (first, second) = (self.lookup(name, now_s), self.lookup(name, now_s));
                pairs.push(DnsPair {
                    name: format!("site{name}.example"),
                    kind: NameKind::Listed,
                    resolver: IpAddr::from([10, 0, 0, 1]),
                    resolver_kind: ResolverKind::Local,
                    first,
                    second,
                });
            }
        }
        pairs
    }
}

/// Flights of a hundred seeds whose cause is `wanted`, and that have another one.
fn judged(caches: usize, refused: f64, wanted: Cause) -> (u32, u32) {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..100 {
        let found = Cause::of(&Model::new(caches, refused, seed).flight(), MINIMUM_US);
        right += u32::from(found == wanted);
        wrong += u32::from(found != wanted && found != Cause::Unclear);
    }
    println!(
        "{caches} caches, {refused} of the names refused: {right} of 100 right, {wrong} wrong"
    );
    (right, wrong)
}

#[test]
fn a_cluster_of_four_is_told_from_one_bad_cache() {
    for (caches, refused, wanted) in [(4, 0.0, Cause::Cluster), (1, 0.077, Cause::SomeNames)] {
        let (right, wrong) = judged(caches, refused, wanted);
        assert!(right >= 95 && wrong == 0, "{caches} caches: {right} right, {wrong} wrong");
    }
}

#[test]
fn a_good_cache_needs_no_cause() {
    assert_eq!(judged(1, 0.0, Cause::Unclear), (100, 0));
    assert_eq!(Cause::of(&[], MINIMUM_US), Cause::Unclear);
}
