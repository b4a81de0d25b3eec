//! Synthetic worlds: a hub, its egresses and sites on a globe, with noise and loss.

use std::time::Duration;

use bentpipe_choice::{Choice, Leg, Query, Site};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::globe::{self, Place};

/// Length of a path ÷ the great circle, at most.
const MAX_DETOUR: f64 = 1.6;
/// Times vary by this part, either way.
pub const JITTER: f64 = 0.2;
/// Part of the dials that lose a packet, and the time for which its sender waits.
const LOST_DIALS: f64 = 0.01;
const LOST_DIAL: Duration = Duration::from_secs(1);
/// Round trip of a path without any length.
const LEAST_RTT: Duration = Duration::from_millis(2);
const SITES: u32 = 50;

/// A world, and a hub's knowledge of it.
pub struct World {
    /// The hub's choice.
    pub choice: Choice,
    /// Round trip from the hub to each egress.
    pub legs: Vec<Duration>,
    /// The sites.
    pub sites: Vec<WorldSite>,
    /// Randomness of everything that happens.
    pub rng: ChaCha8Rng,
}

/// A site of a world.
pub struct WorldSite {
    /// Its name.
    pub site: Site,
    /// Time to connect from each egress.
    pub dials: Vec<Duration>,
}

/// Round-trip time of a path between two places.
fn path(rng: &mut ChaCha8Rng, from: Place, to: Place) -> Duration {
    globe::rtt(from.distance_km(to) * rng.random_range(1.0..MAX_DETOUR)) + LEAST_RTT
}

impl World {
    /// Builds a world with two to eight egresses.
    pub fn new(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let hub = Place::random(rng);
        let egresses: Vec<Place> =
            (0..rng.random_range(2..=8)).map(|_| Place::random(rng)).collect();
        let legs: Vec<Duration> = egresses.iter().map(|it| path(rng, hub, *it)).collect();
        let mut choice = Choice::new(egresses.len());
        for (egress, rtt) in legs.iter().enumerate() {
            choice.set_leg(egress, Leg { rtt: *rtt, loss: 0.0 });
        }
        let site = |number: u32| {
            let at = Place::random(rng);
            let dials = egresses.iter().map(|it| path(rng, *it, at)).collect();
            let target = format!("site{number}.example:443");
            let site = Site::of(&target.parse().expect("it is a target"));
            WorldSite { site: site.expect("a name has a site"), dials }
        };
        let sites = (0..SITES).map(site).collect();
        Self { choice, legs, sites, rng: rng.clone() }
    }

    /// Egress of a passenger's new flow to a site.
    pub fn ask(&mut self, site: usize, passenger: u32, now: Duration, random: f64) -> usize {
        let query = Query { who: ([1; 32], passenger), site: &self.sites[site].site, now, random };
        self.choice.choose(&query, |_| true).expect("all egresses are up")
    }

    /// Round trip from the hub to an egress, and its time to connect to a site.
    pub fn total(&self, site: usize, egress: usize) -> Duration {
        self.legs[egress] + self.sites[site].dials[egress]
    }

    /// The least of these times.
    pub fn best(&self, site: usize) -> Duration {
        let all = (0..self.legs.len()).map(|egress| self.total(site, egress));
        all.min().expect("a world has egresses")
    }

    /// Dials a site from an egress, with jitter and loss.
    pub fn dial(&mut self, site: usize, egress: usize, now: Duration) {
        let took = self.sites[site].dials[egress];
        let took = took.mul_f64(self.rng.random_range(1.0 - JITTER..1.0 + JITTER));
        let lost = if self.rng.random_bool(LOST_DIALS) { LOST_DIAL } else { Duration::ZERO };
        self.choice.dialled(egress, (&self.sites[site].site, 443), Some(took + lost), now);
    }

    /// Dials a site three times from each egress.
    pub fn learn(&mut self, site: usize) {
        for egress in 0..self.legs.len() {
            (0..3).for_each(|_| self.dial(site, egress, Duration::ZERO));
        }
    }
}
