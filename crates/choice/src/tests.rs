//! Synthetic worlds: hubs, egresses and sites on a globe, with noise and loss.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Choice, Leg, MAX_PINS, PIN_IDLE, Query, Site};

/// Length of a path ÷ the great circle, at most.
const MAX_DETOUR: f64 = 1.6;
const JITTER: f64 = 0.2;
const EARTH_RADIUS_KM: f64 = 6371.0;
/// Round-trip time for each 1000 km of the great circle. Light in glass needs 10 ms, and cables are
/// longer than the great circle.
const RTT_PER_1000_KM: Duration = Duration::from_millis(15);

struct World {
    choice: Choice,
    legs: Vec<Duration>,
    sites: Vec<WorldSite>,
    rng: ChaCha8Rng,
}

struct WorldSite {
    site: Site,
    /// Time to connect from each egress.
    dials: Vec<Duration>,
}

/// Latitude and longitude, in radians.
type Place = [f64; 2];

/// A place where people live.
fn place(rng: &mut ChaCha8Rng) -> Place {
    [rng.random_range(-40.0..65.0), rng.random_range(-180.0..180.0)].map(f64::to_radians)
}

/// Round-trip time of a path between two places, by the haversine formula.
fn path(rng: &mut ChaCha8Rng, from: &Place, to: &Place) -> Duration {
    let half = |angle: f64| (angle / 2.0).sin().powi(2);
    let chord = half(to[0] - from[0]) + from[0].cos() * to[0].cos() * half(to[1] - from[1]);
    let distance_km = 2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin();
    let detour = rng.random_range(1.0..MAX_DETOUR);
    RTT_PER_1000_KM.mul_f64(distance_km / 1000.0 * detour) + Duration::from_millis(2)
}

impl World {
    fn new(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let hub = place(rng);
        let egresses: Vec<Place> = (0..rng.random_range(2..=8)).map(|_| place(rng)).collect();
        let legs: Vec<Duration> = egresses.iter().map(|it| path(rng, &hub, it)).collect();
        let mut choice = Choice::new(egresses.len());
        for (egress, rtt) in legs.iter().enumerate() {
            choice.set_leg(egress, Leg { rtt: *rtt, loss: 0.0 });
        }
        let site = |number: u32| {
            let at = place(rng);
            let dials = egresses.iter().map(|it| path(rng, it, &at)).collect();
            let target = format!("site{number}.example:443");
            let site = Site::of(&target.parse().unwrap()).unwrap();
            WorldSite { site, dials }
        };
        let sites = (0..50).map(site).collect();
        Self { choice, legs, sites, rng: rng.clone() }
    }

    fn ask(&mut self, site: usize, passenger: u32, now: Duration, random: f64) -> usize {
        let query = Query { who: ([1; 32], passenger), site: &self.sites[site].site, now, random };
        self.choice.choose(&query, |_| true).unwrap()
    }

    fn total(&self, site: usize, egress: usize) -> Duration {
        self.legs[egress] + self.sites[site].dials[egress]
    }

    fn best(&self, site: usize) -> Duration {
        (0..self.legs.len()).map(|egress| self.total(site, egress)).min().unwrap()
    }

    /// A dial with jitter and loss.
    fn dial(&mut self, site: usize, egress: usize, now: Duration) {
        let took = self.sites[site].dials[egress];
        let took = took.mul_f64(self.rng.random_range(1.0 - JITTER..1.0 + JITTER));
        let lost = Duration::from_secs(self.rng.random_bool(0.01).into());
        self.choice.dialled(egress, (&self.sites[site].site, 443), Some(took + lost), now);
    }
}

#[test]
fn three_dials_find_the_best_egress() {
    let (mut near, mut all) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        for site in 0..world.sites.len() {
            // Dials count for sites that passengers use.
            world.ask(site, 1, Duration::ZERO, 0.5);
            for egress in 0..world.legs.len() {
                (0..3).for_each(|_| world.dial(site, egress, Duration::ZERO));
            }
            let then = world.ask(site, 2, Duration::ZERO, 0.5);
            let more = world.total(site, then) - world.best(site);
            near += usize::from(more <= Duration::from_millis(5));
            all += 1;
        }
    }
    let part = near as f64 / all as f64;
    println!("within 5 ms of the best after three dials: {part:.3}");
    assert!(part >= 0.95);
}

#[test]
fn jitter_moves_nobody() {
    let (mut changes, mut pinned) = (Vec::new(), 0);
    for seed in 0..50 {
        let mut world = World::new(seed);
        let sites = world.sites.len();
        for site in 0..sites {
            world.ask(site, 1, Duration::ZERO, 0.5);
            for egress in 0..world.legs.len() {
                (0..3).for_each(|_| world.dial(site, egress, Duration::ZERO));
            }
        }
        let mut usual: Vec<usize> =
            (0..sites).map(|site| world.ask(site, 2, Duration::ZERO, 0.5)).collect();
        let pins = usual.clone();
        let mut changed = vec![0; sites];
        // A new passenger every 10 s at each site, for an hour.
        for minute_sixth in 0..360_u32 {
            let now = Duration::from_secs(10) * minute_sixth;
            for site in 0..sites {
                let random = world.rng.random();
                pinned += u32::from(world.ask(site, 2, now, 0.0) != pins[site]);
                let egress = world.ask(site, 3 + minute_sixth, now, random);
                world.dial(site, egress, now);
                let favourite =
                    world.choice.expected(&world.sites[site].site, now, |_| true).unwrap();
                changed[site] += u32::from(favourite != usual[site]);
                usual[site] = favourite;
            }
        }
        changes.extend(changed);
    }
    let most = changes.iter().max().unwrap();
    let moved = changes.iter().filter(|it| **it > 0).count();
    println!(
        "most changes of a site in an hour: {most}; sites that changed: {moved} of {}",
        changes.len()
    );
    assert_eq!(pinned, 0);
    assert!(*most <= 1);
}

fn two(legs: [u64; 2]) -> (Choice, Site) {
    let mut choice = Choice::new(2);
    for (egress, rtt) in legs.into_iter().enumerate() {
        choice.set_leg(egress, Leg { rtt: Duration::from_millis(rtt), loss: 0.0 });
    }
    (choice, Site::of(&"shop.example:443".parse().unwrap()).unwrap())
}

fn query(site: &Site, passenger: u32, now: u64) -> Query<'_> {
    let now = Duration::from_secs(now);
    Query { who: ([1; 32], passenger), site, now, random: 0.5 }
}

#[test]
fn a_passenger_keeps_the_egress_until_idle() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    for _ in 0..3 {
        choice.dialled(0, (&site, 443), Some(Duration::from_millis(900)), Duration::ZERO);
        choice.dialled(1, (&site, 443), Some(Duration::from_millis(5)), Duration::ZERO);
    }
    let idle = PIN_IDLE.as_secs();
    let end = |choice: &mut Choice, at| choice.ended(([1; 32], 1), &site, Duration::from_secs(at));
    end(&mut choice, 0);
    assert_eq!(choice.choose(&query(&site, 1, idle - 1), |_| true), Some(0));
    end(&mut choice, 2 * idle - 3);
    assert_eq!(choice.choose(&query(&site, 1, 3 * idle - 4), |_| true), Some(0));
    end(&mut choice, 3 * idle - 4);
    assert_eq!(choice.choose(&query(&site, 1, 4 * idle), |_| true), Some(1));
}

#[test]
fn nobody_is_sent_to_an_egress_that_is_down() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    assert_eq!(choice.choose(&query(&site, 1, 1), |egress| egress == 1), Some(1));
    assert_eq!(choice.choose(&query(&site, 1, 2), |_| true), Some(1), "the address stays");
    assert_eq!(choice.choose(&query(&site, 2, 2), |_| true), Some(0), "new ones come back");
    assert_eq!(choice.choose(&query(&site, 3, 2), |_| false), None);
}

#[test]
fn a_leg_with_losses_counts_as_longer() {
    let (mut choice, site) = two([10, 30]);
    choice.set_leg(0, Leg { rtt: Duration::from_millis(10), loss: 0.16 });
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(1));
}

#[test]
fn few_try_another_egress_and_none_that_cannot_be_better() {
    for (far, expected) in [(80, 180..=220), (200, 0..=0)] {
        let (mut choice, site) = two([10, far]);
        choice.choose(&query(&site, 0, 0), |_| true);
        (0..3).for_each(|_| {
            choice.dialled(0, (&site, 443), Some(Duration::from_millis(100)), Duration::ZERO)
        });
        let tried = (0..10_000_u32).filter(|passenger| {
            let random = f64::from(*passenger) / 10_000.0;
            let query = Query { random, ..query(&site, passenger + 1, 0) };
            choice.choose(&query, |_| true) == Some(1)
        });
        assert!(expected.contains(&tried.count()), "{far}");
    }
}

#[test]
fn a_passenger_takes_no_other_pins_and_memory_is_bounded() {
    let (mut choice, site) = two([10, 80]);
    choice.choose(&query(&site, 1, 0), |_| true);
    for number in 0..MAX_PINS + 1000 {
        let other = Site::of(&format!("shop{number}.test:443").parse().unwrap());
        let query = Query { site: &other.unwrap(), ..query(&site, 2, 0) };
        choice.choose(&query, |_| true);
    }
    for _ in 0..3 {
        choice.dialled(0, (&site, 443), Some(Duration::from_millis(900)), Duration::ZERO);
        choice.dialled(1, (&site, 443), Some(Duration::ZERO), Duration::ZERO);
    }
    assert_eq!(choice.choose(&query(&site, 1, 1), |_| true), Some(0), "the pin is there");
}

#[test]
fn flows_avoid_an_egress_that_fails_and_return_to_it() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    let ms = Duration::from_millis;
    (0..8).for_each(|_| choice.dialled(0, (&site, 443), Some(ms(20)), ms(0)));
    // Closed ports say nothing about the egress.
    (0..9).for_each(|_| choice.dialled(0, (&site, 81), None, ms(0)));
    assert_eq!(choice.choose(&query(&site, 2, 1), |_| true), Some(0));
    (0..3).for_each(|_| choice.dialled(0, (&site, 443), None, Duration::from_secs(1)));
    for passenger in [1, 3] {
        assert_eq!(choice.choose(&query(&site, passenger, 2), |_| true), Some(1));
    }
    assert_eq!(choice.expected(&site, Duration::from_secs(2), |_| true), Some(1));
    for (passenger, expected) in [(1, 0), (3, 1), (4, 0)] {
        let found = choice.choose(&query(&site, passenger, 62), |_| true);
        assert_eq!(found, Some(expected), "passenger {passenger} after the pause");
    }
    // If none reaches the site, one is used all the same.
    for egress in [0, 1] {
        choice.dialled(egress, (&site, 443), Some(ms(20)), Duration::from_secs(62));
        (0..3).for_each(|_| choice.dialled(egress, (&site, 443), None, Duration::from_secs(62)));
    }
    assert!(choice.choose(&query(&site, 5, 63), |_| true).is_some());
}

#[test]
fn an_open_flow_keeps_the_pin() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    for egress in [0, 1] {
        let took = Some(Duration::from_millis(if egress == 0 { 900 } else { 5 }));
        (0..3).for_each(|_| choice.dialled(egress, (&site, 443), took, Duration::ZERO));
    }
    let day = 24 * 3600;
    assert_eq!(choice.choose(&query(&site, 1, day), |_| true), Some(0), "its first flow is open");
    (0..2).for_each(|_| choice.ended(([1; 32], 1), &site, Duration::from_secs(day)));
    assert_eq!(choice.choose(&query(&site, 1, 2 * day), |_| true), Some(1));
}

#[test]
fn the_operator_has_the_last_word() {
    let (mut choice, site) = two([10, 80]);
    choice.choose(&query(&site, 1, 0), |_| true);
    choice.fix("shop.example".parse().unwrap(), 1);
    choice.fix("192.0.0.0/16".parse().unwrap(), 1);
    assert_eq!(choice.choose(&query(&site, 1, 1), |_| true), Some(1), "a pin gives way");
    assert_eq!(choice.choose(&query(&site, 1, 1), |egress| egress == 0), Some(0));
    assert_eq!(choice.expected(&site, Duration::ZERO, |_| true), Some(1));
    let prefix = |target: &str| Site::of(&target.parse().unwrap()).unwrap();
    assert_eq!(choice.fixed(&prefix("192.0.2.1:443")), Some(1));
    assert_eq!(choice.fixed(&prefix("198.51.100.1:443")), None);
}
