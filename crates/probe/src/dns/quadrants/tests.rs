//! The analysis against a modelled resolver in a cabin, whose truth is known.

use std::net::IpAddr;

use super::*;
use crate::dns::{NameKind, ResolverKind, Response};
use crate::random::Random;

/// Bound of the error of each share, in points.
const BOUND: f64 = 1.5;

/// A flight with its resolver.
struct Flight {
    /// Minimum round-trip time to the ground in milliseconds.
    minimum_ms: f64,
    /// Mean of what exceeds the minimum, exponential.
    excess_ms: f64,
    /// Chance that a first lookup finds its name in the cache.
    first_hits: f64,
    /// Chance that both lookups miss.
    double_misses: f64,
}

/// Air-to-ground radio: 60 ms, 36.7 % and 4.1 %.
const DA2GC: Flight =
    Flight { minimum_ms: 60.0, excess_ms: 200.0, first_hits: 0.367, double_misses: 0.041 };

/// Satellite: 600 ms, 39.3 % and 7.7 %.
const MSS: Flight =
    Flight { minimum_ms: 600.0, excess_ms: 160.0, first_hits: 0.393, double_misses: 0.077 };

impl Flight {
    /// The cabin's Wi-Fi: 70 % below 2 ms, and 7 % in a tail to tens of milliseconds.
    fn cabin_ms(random: &mut Random) -> f64 {
        match random.unit() {
            u if u < 0.70 => 0.7 + 1.3 * random.unit(),
            u if u < 0.93 => 2.0 + 8.0 * random.unit(),
            _ => 10.0 - 12.0 * (1.0 - random.unit()).ln(),
        }
    }

    fn lookup(&self, hit: bool, random: &mut Random) -> Lookup {
        let mut ms = Self::cabin_ms(random);
        if !hit {
            // The minimum round-trip time is of the whole path, so the cabin's best part is in it.
            ms += self.minimum_ms - 0.7 - self.excess_ms * (1.0 - random.unit()).ln();
        }
        let response = Response {
            rcode: 0,
            answers: 1,
            ttl_s: Some(60),
            truncated: false,
            authoritative: false,
        };
        Lookup { rtt_us: Some((ms * 1000.0) as u64), response: Some(response), failure: None }
    }

    /// Pairs, with the true counts of first hits and double misses.
    fn pairs(&self, count: u32, seed: u64) -> (Vec<DnsPair>, u32, u32) {
        let mut random = Random::new(seed);
        let miss_again = self.double_misses / (1.0 - self.first_hits);
        let (mut hits, mut doubles) = (0, 0);
        let pair = |_| {
            let first = random.unit() < self.first_hits;
            let second = first || random.unit() >= miss_again;
            hits += u32::from(first);
            doubles += u32::from(!first && !second);
            DnsPair {
                name: "example.com".into(),
                kind: NameKind::Listed,
                resolver: IpAddr::from([10, 0, 0, 1]),
                resolver_kind: ResolverKind::Local,
                first: self.lookup(first, &mut random),
                second: self.lookup(second, &mut random),
            }
        };
        let pairs = (0..count).map(pair).collect();
        (pairs, hits, doubles)
    }

    /// Minimum of 600 quiet pings, with which the analysis works in flight too.
    fn measured_minimum_us(&self, seed: u64) -> u64 {
        let mut random = Random::new(seed ^ 0x5eed);
        (0..600).filter_map(|_| self.lookup(false, &mut random).rtt_us).min().unwrap()
    }
}

#[test]
fn the_quadrants_are_those_of_the_model() {
    for (name, flight) in [("da2gc", DA2GC), ("mss", MSS)] {
        for seed in 1..=100 {
            let (pairs, hits, doubles) = flight.pairs(3000, seed);
            let found = Quadrants::of(&pairs, flight.measured_minimum_us(seed));
            assert_eq!(found.total(), 3000);
            let off = |found: Option<f64>, truth: u32| {
                (100.0 * (found.unwrap() - f64::from(truth) / 3000.0)).abs()
            };
            let (first, double) =
                (off(found.first_hits(), hits), off(found.double_misses(), doubles));
            assert!(
                first <= BOUND && double <= BOUND,
                "{name}, seed {seed}: {first:.2}, {double:.2} points"
            );
        }
    }
}

#[test]
fn failures_are_in_no_quadrant() {
    let (mut pairs, ..) = MSS.pairs(3, 1);
    pairs[0].second = Lookup::failed("generic_timeout_error");
    pairs[1].first.response.as_mut().unwrap().rcode = 2;
    let found = Quadrants::of(&pairs, 600_000);
    assert_eq!((found.failed, found.total()), (2, 1));
    assert_eq!(Quadrants::default().first_hits(), None);
}

#[test]
fn each_quadrant_by_its_times() {
    assert_eq!(Quadrant::of(10, 10, 600), Quadrant::BothHit);
    assert_eq!(Quadrant::of(700, 10, 600), Quadrant::MissHit);
    assert_eq!(Quadrant::of(10, 600, 600), Quadrant::HitMiss);
    assert_eq!(Quadrant::of(600, 700, 600), Quadrant::BothMiss);
}
