//! The policy of Rural-PAWS (Mohideen et al., 2018): public services may use all of a village's
//! satellite link, and everything else may use the rest, up to a ceiling.

use std::time::Duration;

use bentpipe_link::{Class, Limits};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::experiment::engine::Engine;
use crate::profile::Profile;
use crate::result::{Sample, Samples};
use crate::traffic::{Carry, ClassLimits, DOWN, ENDLESS, Passing, REQUEST_BYTES, Traffic, UP};

/// Ceiling of everything else: 2 Mbit/s down (section VII.A), 256 kbit/s up (section IV).
const CEIL: [BitRate; 2] = [BitRate::from_bps(2_000_000), BitRate::from_bps(256_000)];
/// Pages in a run. The paper repeats each page ten times (section VIII).
const PAGES: u16 = 10;
/// Number of a page's objects: 1500 KB in objects of 20 KB (section VIII), the middle one of its
/// nine pages.
const OBJECTS: usize = 75;
/// Size of an object; see [`OBJECTS`].
const OBJECT_BYTES: u64 = 20_000;
/// Size of the document that names them. The value is ours.
const DOCUMENT_BYTES: u64 = 20_000;
/// Minimum and maximum time between two pages. The values are ours.
const READING: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];
/// Time after which a page counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Passenger who reads pages of public services.
const READER: u32 = 1;
/// Passenger who endlessly uploads and downloads public files.
const WORKER: u32 = 2;
/// Other passengers: the number of the first, their count, and the connections of each in each
/// direction.
const FIRST_OTHER: u32 = 10;
const OTHERS: u32 = 10;
const CONNECTIONS: u32 = 3;
/// Time until bulk is steady.
const WARM: Duration = Duration::from_secs(20);
/// Measured time of rates.
const MEASURED: Duration = Duration::from_secs(60);

/// Description of a run of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Pages that the reader of public services loads.
    pub pages: u16,
    /// Number of a page's objects without its document, and the bytes of each.
    pub objects: (usize, u64),
    /// Minimum and maximum time between two pages.
    pub reading: [Duration; 2],
    /// Guaranteed rate of lower effort, towards the aircraft and from it.
    pub rate: [BitRate; 2],
    /// Ceiling of lower effort.
    pub ceil: [BitRate; 2],
    /// Number of passengers who saturate lower effort, and the connections of each in each
    /// direction.
    pub others: (u32, u32),
    /// Time excluded at the beginning of bulk.
    pub warm: Duration,
    /// Measured time of rates.
    pub measured: Duration,
}

impl Default for Spec {
    /// The paper's ceilings and page; the rest is ours.
    fn default() -> Self {
        Self {
            pages: PAGES,
            objects: (OBJECTS, OBJECT_BYTES),
            reading: READING,
            rate: [BitRate::from_bps(0); 2],
            ceil: CEIL,
            others: (OTHERS, CONNECTIONS),
            warm: WARM,
            measured: MEASURED,
        }
    }
}

/// Results for a reader of public services and for all others, in one run of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Page loads of the reader.
    pub pages: Samples,
    /// Payload rate of the assured class in bulk ÷ the rate that lower effort leaves of the link,
    /// towards the aircraft and from it.
    pub assured_fill: [f64; 2],
    /// Rate of lower effort over its ceiling, while the assured class has no bulk.
    pub lower_fill: [f64; 2],
}

/// One run of the policy, with the other passengers of `spec`.
pub fn policy(
    engine: &Engine<'_>,
    profile: &Profile,
    spec: &Spec,
    seed: u64,
) -> anyhow::Result<Policy> {
    engine.carry(profile, &limits(spec), seed, |cabin| policy_in(cabin, profile, spec, seed))
}

/// Like [`policy`], in a cabin whose classes have the limits of `spec`.
pub fn policy_in(cabin: &mut dyn Traffic, profile: &Profile, spec: &Spec, seed: u64) -> Policy {
    let capacity = capacity(profile);
    let mut alone = [0.0; 2];
    if spec.others.0 > 0 {
        saturate(cabin, spec);
        cabin.pass(spec.warm);
        (alone, _) = rates(cabin, spec, &[]);
    }
    let pages = pages(cabin, spec, seed);
    let class = Class::Assured;
    let bulk = cabin.open(Carry { class, passenger: WORKER, up: ENDLESS, down: ENDLESS });
    cabin.pass(spec.warm);
    let (lower, assured) = rates(cabin, spec, &[bulk]);
    Policy {
        pages,
        assured_fill: [DOWN, UP].map(|way| assured[way] / (capacity[way] - lower[way])),
        lower_fill: [DOWN, UP].map(|way| alone[way] / spec.ceil[way].bps() as f64),
    }
}

/// Class limits of `spec`. Lower effort gets its guaranteed rate, which is zero in the paper, and
/// no more than its ceiling.
pub fn limits(spec: &Spec) -> ClassLimits {
    let mut limits = ClassLimits::default();
    for way in [DOWN, UP] {
        let (rate, ceil) = (Some(spec.rate[way]), Some(spec.ceil[way]));
        limits[way][Class::LowerEffort] = Limits { rate, ceil };
    }
    limits
}

/// Starts all traffic other than public services, as fast as the link allows.
fn saturate(cabin: &mut dyn Traffic, spec: &Spec) {
    let (passengers, connections) = spec.others;
    for passenger in FIRST_OTHER..FIRST_OTHER + passengers {
        for _ in 0..connections {
            let class = Class::LowerEffort;
            cabin.open(Carry { class, passenger, up: ENDLESS, down: ENDLESS });
        }
    }
}

/// Rate of lower effort in IP bit/s, and rate received on `streams`, in each direction.
fn rates(cabin: &mut dyn Traffic, spec: &Spec, streams: &[usize]) -> ([f64; 2], [f64; 2]) {
    let before = look(cabin, streams);
    cabin.pass(spec.measured);
    let after = look(cabin, streams);
    let bps = |after: [u64; 2], before: [u64; 2]| {
        [DOWN, UP].map(|way| 8.0 * (after[way] - before[way]) as f64 / spec.measured.as_secs_f64())
    };
    (bps(after.0, before.0), bps(after.1, before.1))
}

/// IP bytes that lower effort has sent so far, and payload received on `streams`.
fn look(cabin: &mut dyn Traffic, streams: &[usize]) -> ([u64; 2], [u64; 2]) {
    let got = |way: usize| streams.iter().map(|&one| cabin.course(one).got[way]).sum();
    let got = [got(DOWN), got(UP)];
    (cabin.class_bytes(Class::LowerEffort), got)
}

/// Loads pages one after the other, as over HTTP/2: the document, then all objects concurrently.
fn pages(cabin: &mut dyn Traffic, spec: &Spec, seed: u64) -> Samples {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut loads = Samples::default();
    let (count, bytes) = spec.objects;
    let [least, most] = spec.reading;
    for _ in 0..spec.pages {
        let began = cabin.now();
        let open = |cabin: &mut dyn Traffic, down| {
            let (class, passenger) = (Class::Assured, READER);
            cabin.open(Carry { class, passenger, up: REQUEST_BYTES, down })
        };
        let document = open(cabin, DOCUMENT_BYTES);
        let mut came = cabin.wait(PATIENCE, |cabin| cabin.course(document).is_done());
        let objects: Vec<_> = (0..count).map(|_| open(cabin, bytes)).collect();
        came &= cabin
            .wait(PATIENCE, |cabin| objects.iter().all(|&object| cabin.course(object).is_done()));
        let took = (cabin.now() - began).as_secs_f64();
        loads.0.push(if came { Sample::Finished(took) } else { Sample::Cut(took) });
        cabin.pass(least + most.saturating_sub(least).mul_f64(rng.random::<f64>()));
    }
    loads
}

/// Capacity of the link, in each direction.
fn capacity(profile: &Profile) -> [f64; 2] {
    let bps = |rate: Option<BitRate>| rate.map_or(f64::INFINITY, |rate| rate.bps() as f64);
    let link = &profile.link;
    [
        bps(link.forward.rate()) * (1.0 - profile.forward_loss()),
        bps(link.return_.rate()) * (1.0 - profile.return_loss()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_run_with_others_and_without() {
        let profile = Profile::named("geo-rural-8").unwrap();
        let [calm, loaded] = [0, OTHERS].map(|others| {
            let spec = Spec { pages: 1, others: (others, CONNECTIONS), ..Spec::default() };
            policy(&Engine::Sim, &profile, &spec, 1).unwrap()
        });
        assert_eq!(calm.lower_fill, [0.0; 2]);
        assert!(loaded.lower_fill.iter().all(|fill| (0.9..1.02).contains(fill)), "{loaded:?}");
        for one in [&calm, &loaded] {
            assert!(one.assured_fill.iter().all(|fill| (0.9..1.0).contains(fill)), "{one:?}");
            assert_eq!(one.pages.len(), 1);
        }
    }
}
