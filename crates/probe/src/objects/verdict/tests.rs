//! Modelled flights: caches in the aircraft with and without `Via`, outer caches, slow hits.

use super::super::Signs;
use super::*;
use crate::random::Random;

/// Truth about one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Hit,
    Miss,
    None,
}

/// A flight's equipment.
struct Flight {
    /// A cache in the aircraft, and whether it names itself.
    cache: bool,
    via: bool,
    /// Minimum round-trip time in microseconds.
    minimum_us: u64,
    /// Share of hits that are slow, as on the paper's DL-2374.
    slow: f64,
}

impl Flight {
    /// Time to the first byte of a hit: 70 % of the cabin's round trips are below 2 ms, with a tail.
    fn hit_us(&self, random: &mut Random) -> u64 {
        let tail = random.unit();
        let cabin = if tail < 0.7 {
            700.0 + 1300.0 * random.unit()
        } else {
            2000.0 - 6000.0 * (1.0 - random.unit()).ln()
        };
        let disk =
            if random.unit() < self.slow { 100_000.0 + 200_000.0 * random.unit() } else { 1000.0 };
        (cabin + disk) as u64
    }

    fn ground_us(&self, random: &mut Random) -> u64 {
        self.minimum_us + 1 + (-120_000.0 * (1.0 - random.unit()).ln()) as u64
    }

    fn fetch(
        &self,
        truth: Truth,
        outer: bool,
        outer_hit: bool,
        serial: Option<u64>,
        random: &mut Random,
    ) -> Fetch {
        let us = if truth == Truth::Hit { self.hit_us(random) } else { self.ground_us(random) };
        let named = self.cache && self.via;
        let (mut via, mut x_cache) = (Vec::new(), Vec::new());
        if outer {
            via.push("1.1 varnish");
            x_cache.push(if outer_hit { "HIT" } else { "MISS" });
        }
        if named {
            via.push("1.1 172.19.134.2:3128 (squid/4.6)");
            x_cache.push(if truth == Truth::Hit {
                "HIT from 172.19.134.2"
            } else {
                "MISS from 172.19.134.2"
            });
        }
        let signs = Signs::of(|name| match name {
            "via" => via.clone(),
            "x-cache" => x_cache.clone(),
            _ => Vec::new(),
        });
        Fetch {
            first_byte_us: Some(us),
            complete_us: Some(us),
            status: Some(200),
            serial,
            signs,
            ..Fetch::default()
        }
    }

    /// Pairs of an own origin and of listed names, with the truth.
    fn pairs(&self, random: &mut Random) -> Vec<(ObjectPair, [Truth; 2])> {
        let forwarded = if self.cache && self.via { Truth::Miss } else { Truth::None };
        let mut serial = 0;
        let mut made = Vec::new();
        for number in 0..120 {
            let kind = if number % 2 == 0 { ObjectKind::Origin } else { ObjectKind::Listed };
            // A transparent cache's misses show on an own origin alone.
            let missed = match kind {
                ObjectKind::Origin if self.cache => Truth::Miss,
                _ => forwarded,
            };
            let stored = self.cache && random.unit() < 0.8;
            let first = match kind {
                ObjectKind::Listed if stored && random.unit() < 0.4 => Truth::Hit,
                _ => missed,
            };
            let second = if stored { Truth::Hit } else { missed };
            let outer = kind == ObjectKind::Listed && random.unit() < 0.6;
            let mut numbered = |truth: Truth| {
                (kind == ObjectKind::Origin).then(|| {
                    serial += u64::from(truth != Truth::Hit);
                    serial
                })
            };
            let serials = [numbered(first), numbered(second)];
            let outer_hit = random.unit() < 0.9;
            let pair = ObjectPair {
                url: "http://example.com/".into(),
                kind,
                first: self.fetch(first, outer, outer_hit, serials[0], random),
                second: Some(self.fetch(second, outer, outer_hit, serials[1], random)),
            };
            made.push((pair, [first, second]));
        }
        made
    }
}

#[test]
fn precision_and_recall() {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..400u64 {
        let mut random = Random::new(seed);
        let satellite = seed % 2 == 0;
        let (cache, via) = (seed / 2 % 4 != 3, seed / 8 % 2 == 0);
        let minimum_us =
            if satellite { 536_000 } else { 50_700 } + (40_000.0 * random.unit()) as u64;
        // Slow hits without `Via` are told by nothing but the serial number of an own origin.
        let slow = if via { 0.8 } else { 0.0 };
        let flight = Flight { cache, via, minimum_us, slow };
        let made = flight.pairs(&mut random);
        let verdicts = Verdicts::of(made.iter().map(|(pair, _)| pair), minimum_us);
        for ((_, truths), (first, second)) in made.iter().zip(&verdicts.found) {
            for (truth, found) in truths.iter().zip([*first, second.unwrap()]) {
                let found = match found {
                    Verdict::Hit(_) => Truth::Hit,
                    Verdict::Miss(_) => Truth::Miss,
                    Verdict::None | Verdict::Failed => Truth::None,
                };
                *counts.entry((*truth as u8, found as u8)).or_insert(0u64) += 1;
            }
        }
    }
    for class in [Truth::Hit, Truth::Miss, Truth::None] {
        let class_number = class as u8;
        let of = |wanted: &dyn Fn(u8, u8) -> bool| -> f64 {
            counts.iter().filter(|((t, f), _)| wanted(*t, *f)).map(|(_, n)| *n as f64).sum()
        };
        let right = of(&|t, f| t == class_number && f == class_number);
        let precision = right / of(&|_, f| f == class_number);
        let recall = right / of(&|t, _| t == class_number);
        println!("{class:?}: precision {precision:.4}, recall {recall:.4}");
        assert!(precision >= 0.99 && recall >= 0.99, "{class:?}: {precision} {recall} {counts:?}");
    }
}

#[test]
fn a_cache_on_the_ground_is_not_in_the_aircraft() {
    let flight = Flight { cache: true, via: false, minimum_us: 600_000, slow: 0.0 };
    let mut random = Random::new(1);
    let ground =
        |serial, random: &mut Random| flight.fetch(Truth::None, false, false, Some(serial), random);
    let pair = ObjectPair {
        url: String::new(),
        kind: ObjectKind::Origin,
        first: ground(7, &mut random),
        second: Some(ground(7, &mut random)),
    };
    let found = Verdicts::of([&pair].into_iter(), flight.minimum_us);
    assert_eq!(found.found, [(Verdict::None, Some(Verdict::None))]);
}

#[test]
fn errors_say_nothing() {
    let refused = Fetch { first_byte_us: Some(1), status: Some(503), ..Fetch::default() };
    let failed = Fetch::failed("connection_refused".into());
    let pair = ObjectPair {
        url: String::new(),
        kind: ObjectKind::Listed,
        first: refused,
        second: Some(failed),
    };
    let found = Verdicts::of([&pair].into_iter(), 600_000);
    assert_eq!(found.found, [(Verdict::Failed, Some(Verdict::Failed))]);
    assert_eq!(found.all().count(), 2);
}
