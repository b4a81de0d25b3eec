//! The choice of the egress in synthetic worlds
//! ([0018](../../../../../docs/decisions/0018-choice-of-the-egress.md)).

use std::time::Duration;

use bentpipe_results::statistics::percentile;
use rand::Rng;

use super::worlds::World;
use crate::experiment::findings::Findings;
use crate::sim::parallel;

/// Number of worlds.
const WORLDS: u64 = 200;
/// Number of those in which an hour passes.
const WORLDS_FOR_AN_HOUR: u64 = 50;
/// A new passenger comes to each site in this interval.
const NEW_PASSENGER: Duration = Duration::from_secs(10);
/// Number of them in an hour.
const NEW_PASSENGERS: u32 = 360;
/// An egress is as good as the best within this time.
const NEAR: Duration = Duration::from_millis(5);
/// Least part of the sites with such an egress.
const MIN_NEAR: f64 = 0.95;
/// Maximum time of the first flow to a site ÷ that of the best egress, at the 95th percentile.
const MAX_FIRST: f64 = 1.5;

/// Times of one world's sites.
struct Times {
    /// The first flow's ÷ the best, for each site.
    first: Vec<f64>,
    /// Number of sites whose egress is near the best after three dials.
    near: usize,
}

/// Changes in one world in an hour.
struct Changes {
    /// For each site.
    sites: Vec<u32>,
    /// Flows of pinned passengers that went elsewhere.
    pinned: u32,
}

/// Worlds of new sites, and worlds in which an hour passes. Seeds of the worlds begin at `seed`.
pub fn play(seed: u64, findings: &mut Findings) {
    let seeds: Vec<u64> = (seed..seed + WORLDS).collect();
    let times = parallel::map(&seeds, |seed| learn(*seed));
    let first: Vec<f64> = times.iter().flat_map(|it| it.first.iter().copied()).collect();
    let near = times.iter().map(|it| it.near).sum::<usize>() as f64 / first.len() as f64;
    findings.at_least("sites within 5 ms of the best after three dials", near, MIN_NEAR);
    let quantile = |q| percentile(&first, q).unwrap_or(f64::INFINITY);
    findings.at_most("first flow ÷ best, p95", quantile(0.95), MAX_FIRST);
    findings.say(&format!(
        "{} sites in {WORLDS} worlds. First flow ÷ best: median {:.2}, p75 {:.2}, most {:.2}.",
        first.len(),
        quantile(0.5),
        quantile(0.75),
        quantile(1.0)
    ));
    let seeds = &seeds[..WORLDS_FOR_AN_HOUR as usize];
    let hours = parallel::map(seeds, |seed| hour(*seed));
    let changes: Vec<u32> = hours.iter().flat_map(|it| it.sites.iter().copied()).collect();
    let most = changes.iter().max().copied().unwrap_or_default();
    findings.at_most("changes of a site in an hour of jitter", most.into(), 1.0);
    let pinned: u32 = hours.iter().map(|it| it.pinned).sum();
    findings.at_most("flows of pinned passengers that moved", pinned.into(), 0.0);
    let changed = changes.iter().filter(|it| **it > 0).count();
    findings.say(&format!("In an hour {changed} of {} sites changed.", changes.len()));
}

fn learn(seed: u64) -> Times {
    let mut world = World::new(seed);
    let mut times = Times { first: Vec::new(), near: 0 };
    for site in 0..world.sites.len() {
        let egress = world.ask(site, 1, Duration::ZERO, 0.5);
        let ratio = world.total(site, egress).as_secs_f64() / world.best(site).as_secs_f64();
        times.first.push(ratio);
        world.learn(site);
        let egress = world.ask(site, 2, Duration::ZERO, 0.5);
        times.near += usize::from(world.total(site, egress) <= world.best(site) + NEAR);
    }
    times
}

fn hour(seed: u64) -> Changes {
    let mut world = World::new(seed);
    let sites = world.sites.len();
    let mut pins = Vec::new();
    for site in 0..sites {
        world.ask(site, 1, Duration::ZERO, 0.5);
        world.learn(site);
        pins.push(world.ask(site, 2, Duration::ZERO, 0.5));
    }
    let mut usual = pins.clone();
    let mut changes = Changes { sites: vec![0; sites], pinned: 0 };
    for number in 0..NEW_PASSENGERS {
        let now = NEW_PASSENGER * number;
        for site in 0..sites {
            let random = world.rng.random();
            changes.pinned += u32::from(world.ask(site, 2, now, 0.0) != pins[site]);
            let egress = world.ask(site, 3 + number, now, random);
            world.dial(site, egress, now);
            let of_site = &world.sites[site].site;
            let expected = world.choice.expected(of_site, now, |_| true);
            changes.sites[site] += u32::from(expected != Some(usual[site]));
            usual[site] = expected.unwrap_or(usual[site]);
        }
    }
    changes
}
