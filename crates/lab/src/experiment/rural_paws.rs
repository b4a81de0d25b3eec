//! The policy of Rural-PAWS (Mohideen et al., 2018): public services on the whole of a village's
//! satellite link, and everything else in what they leave, up to a ceiling.

use std::time::Duration;

use bentpipe_link::{Class, Limits};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::choice::seeds;
use super::report::{Goal, Report, row};
use super::table::{align, megabits, seconds, table, written};
use crate::profile::Profile;
use crate::result::{Percentile, Row, Sample, Samples};
use crate::traffic::{
    Carry, ClassLimits, DOWN, ENDLESS, Engine, EngineError, Passing, REQUEST_BYTES, Traffic, UP,
};

/// The assured service's link, 8/4 Mbit/s.
pub const DEFAULT_PROFILE: &str = "geo-rural-8";
/// Runs unless told otherwise.
pub const DEFAULT_RUNS: u16 = 3;
/// Pages of each run unless told otherwise: the paper repeats each ten times (section VIII).
pub const DEFAULT_PAGES: u16 = 10;

/// Ceiling of everything else: 2 Mbit/s down (section VII.A), 256 kbit/s up (section IV).
const CEIL: [BitRate; 2] = [BitRate::from_bps(2_000_000), BitRate::from_bps(256_000)];
/// A page of 1500 KB in objects of 20 KB (section VIII): the middle one of its nine.
const OBJECTS: usize = 75;
/// See [`OBJECTS`].
const OBJECT_BYTES: u64 = 20_000;
/// The document that names them: ours.
const DOCUMENT_BYTES: u64 = 20_000;
/// From a page to the next, at least and at most: ours.
const READING: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];
/// A page that takes longer has not come.
const PATIENCE: Duration = Duration::from_secs(120);
/// Passenger who reads pages of public services.
const READER: u32 = 1;
/// Passenger who uploads and downloads public files without end.
const WORKER: u32 = 2;
/// Passengers of the rest: the number of the first, their count, and the connections of each, both
/// ways.
const FIRST_OTHER: u32 = 10;
const OTHERS: u32 = 10;
const CONNECTIONS: u32 = 3;
/// Bulk is steady after so long.
const WARM: Duration = Duration::from_secs(20);
/// Measured time of rates.
const MEASURED: Duration = Duration::from_secs(60);

/// A page of public services may take so much longer beside a saturated lower effort.
const MOST_SLOWER: f64 = 1.05;
/// The part of the link that bulk of public services fills beside it.
const LEAST_OF_LINK: f64 = 0.93;
/// Tolerance of a configured rate.
const TOLERANCE: f64 = 0.02;

/// Selection of runs.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The link; it has a rate.
    pub profile: Profile,
    /// Pages of each run.
    pub pages: u16,
    /// Runs.
    pub runs: u16,
    /// Seed of the first; the others' follow.
    pub seed: u64,
}

/// Description of a run of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Pages that the reader of public services loads.
    pub pages: u16,
    /// Objects of a page beside its document, and the bytes of each.
    pub objects: (usize, u64),
    /// From a page to the next, at least and at most.
    pub reading: [Duration; 2],
    /// Guaranteed rate of lower effort, towards the aircraft and from it.
    pub rate: [BitRate; 2],
    /// Ceiling of lower effort.
    pub ceil: [BitRate; 2],
    /// Passengers who saturate it: so many, each on so many connections both ways.
    pub others: (u32, u32),
    /// Time left out at the beginning of bulk.
    pub warm: Duration,
    /// Measured time of rates.
    pub measured: Duration,
}

impl Default for Spec {
    /// That of `bentpipe lab run rural-paws`: the paper's ceilings and page; the rest is ours.
    fn default() -> Self {
        Self {
            pages: DEFAULT_PAGES,
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

/// Results of one run.
struct Found {
    /// Page loads alone, and beside a saturated lower effort.
    pages: [Samples; 2],
    /// Lower effort by itself, IP bit/s.
    alone: [f64; 2],
    /// Both classes saturated: payload of the assured, IP bit/s of the lower effort.
    assured: [f64; 2],
    lower: [f64; 2],
}

/// Runs it.
pub fn run(engine: &Engine<'_>, choice: &Choice) -> Result<Report, EngineError> {
    let seeds = seeds(choice.seed, choice.runs);
    let found = engine.map(&choice.profile, &seeds, |&seed| one(engine, choice, seed));
    let found: Vec<Found> = found.into_iter().collect::<Result<_, _>>()?;
    let rows = rows(choice, &found);
    let report = Report { text: text(choice, &found), rows, goals: goals(choice, &found) };
    Ok(report.found_by(engine))
}

/// Rates of a reader of public services and of everybody else in one run of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Page loads of the reader.
    pub pages: Samples,
    /// Payload of the assured class in bulk over what lower effort leaves of the link, towards the
    /// aircraft and from it.
    pub assured_fill: [f64; 2],
    /// Rate of lower effort over its ceiling, while the assured class has no bulk.
    pub lower_fill: [f64; 2],
}

/// One run of the policy, beside the others of `spec`.
pub fn policy(
    engine: &Engine<'_>,
    profile: &Profile,
    spec: &Spec,
    seed: u64,
) -> Result<Policy, EngineError> {
    engine.carry(profile, &limits(spec), seed, |cabin| policy_in(cabin, profile, spec, seed))
}

/// The same in a cabin whose classes have the limits of `spec`.
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

/// Lower effort has what `spec` leaves it, which in the paper is only what is left over, and no more
/// than its ceiling.
pub fn limits(spec: &Spec) -> ClassLimits {
    let mut limits = ClassLimits::default();
    for way in [DOWN, UP] {
        let (rate, ceil) = (Some(spec.rate[way]), Some(spec.ceil[way]));
        limits[way][Class::LowerEffort] = Limits { rate, ceil };
    }
    limits
}

fn one(engine: &Engine<'_>, choice: &Choice, seed: u64) -> Result<Found, EngineError> {
    let spec = Spec { pages: choice.pages, ..Spec::default() };
    let limits = limits(&spec);
    let calm = engine.carry(&choice.profile, &limits, seed, |cabin| pages(cabin, &spec, seed))?;
    engine.carry(&choice.profile, &limits, seed, |cabin| {
        saturate(cabin, &spec);
        cabin.pass(spec.warm);
        let (alone, _) = rates(cabin, &spec, &[]);
        let beside = pages(cabin, &spec, seed);
        let class = Class::Assured;
        let bulk = cabin.open(Carry { class, passenger: WORKER, up: ENDLESS, down: ENDLESS });
        cabin.pass(spec.warm);
        let (lower, assured) = rates(cabin, &spec, &[bulk]);
        Found { pages: [calm, beside], alone, assured, lower }
    })
}

/// Everything that is not a public service wants all it can get.
fn saturate(cabin: &mut dyn Traffic, spec: &Spec) {
    let (passengers, connections) = spec.others;
    for passenger in FIRST_OTHER..FIRST_OTHER + passengers {
        for _ in 0..connections {
            let class = Class::LowerEffort;
            cabin.open(Carry { class, passenger, up: ENDLESS, down: ENDLESS });
        }
    }
}

/// Rate of lower effort in IP bit/s, and rate received on `streams`, each way.
fn rates(cabin: &mut dyn Traffic, spec: &Spec, streams: &[usize]) -> ([f64; 2], [f64; 2]) {
    let before = look(cabin, streams);
    cabin.pass(spec.measured);
    let after = look(cabin, streams);
    let bps = |after: [u64; 2], before: [u64; 2]| {
        [DOWN, UP].map(|way| 8.0 * (after[way] - before[way]) as f64 / spec.measured.as_secs_f64())
    };
    (bps(after.0, before.0), bps(after.1, before.1))
}

/// IP bytes that lower effort sent so far, and payload that came on `streams`.
fn look(cabin: &mut dyn Traffic, streams: &[usize]) -> ([u64; 2], [u64; 2]) {
    let got = |way: usize| streams.iter().map(|&one| cabin.course(one).got[way]).sum();
    let got = [got(DOWN), got(UP)];
    (cabin.class_bytes(Class::LowerEffort), got)
}

/// Loads pages one after the other, as HTTP/2 does: the document, then all objects at once.
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

/// One figure of each run.
fn each(found: &[Found], figure: impl Fn(&Found) -> f64) -> Samples {
    found.iter().map(figure).collect()
}

fn loads(found: &[Found], beside: bool) -> Samples {
    let of = |one: &Found| one.pages[usize::from(beside)].0.clone();
    Samples(found.iter().flat_map(of).collect())
}

fn limit(profile: &Profile) -> Option<Duration> {
    // The objects are known a round trip later.
    let bytes = DOCUMENT_BYTES + OBJECTS as u64 * OBJECT_BYTES;
    Some(profile.forward_limit(bytes)? + profile.rtt())
}

/// Capacity of the link, each way.
fn capacity(profile: &Profile) -> [f64; 2] {
    let bps = |rate: Option<BitRate>| rate.map_or(f64::INFINITY, |rate| rate.bps() as f64);
    let link = &profile.link;
    [
        bps(link.forward.rate()) * (1.0 - profile.forward_loss()),
        bps(link.return_.rate()) * (1.0 - profile.return_loss()),
    ]
}

const WAYS: [(&str, usize); 2] = [("down", DOWN), ("up", UP)];

fn rows(choice: &Choice, found: &[Found]) -> Vec<Row> {
    let new = |workload: String, metric: &str| {
        row("rural-paws-policy", &choice.profile, workload, metric, choice.seed)
    };
    let mut rows = Vec::new();
    for (workload, beside) in
        [("page, assured", false), ("page, assured, beside lower-effort", true)]
    {
        let limit = limit(&choice.profile).map(|limit| limit.as_secs_f64());
        rows.push(loads(found, beside).fill(Row { limit, ..new(workload.into(), "plt") }));
    }
    for (name, way) in WAYS {
        let ceil = Some(CEIL[way].bps() as f64);
        let mut add = |workload: &str, limit, samples: Samples| {
            let row = Row { limit, ..new(format!("{workload}, {name}"), "rate") };
            rows.push(samples.fill(row));
        };
        add("lower-effort", ceil, each(found, |one| one.alone[way]));
        add("lower-effort beside assured", ceil, each(found, |one| one.lower[way]));
        let limit = Some(capacity(&choice.profile)[way]);
        add("bulk, assured, beside lower-effort", limit, each(found, |one| one.assured[way]));
    }
    rows
}

fn goals(choice: &Choice, found: &[Found]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (name, q) in [("median", 0.5), ("p95", 0.95)] {
        let known = |beside| loads(found, beside).percentile(q).and_then(Percentile::known);
        let ratio = known(true).zip(known(false)).map(|(beside, alone)| beside / alone);
        let name = format!("assured page beside lower-effort ÷ alone, {name}");
        goals.push(Goal::ratio_at_most(name, ratio, MOST_SLOWER));
    }
    for (name, way) in WAYS {
        let ceil = CEIL[way].bps() as f64;
        let part = each(found, |one| one.alone[way] / ceil).mean();
        let of = format!("lower-effort off its ceiling, {name}");
        goals.push(Goal::off_by_at_most(of, part, TOLERANCE));
        let capacity = capacity(&choice.profile)[way];
        let part = each(found, |one| one.assured[way] / capacity).mean();
        let of = format!("assured bulk beside lower-effort ÷ link, {name}");
        goals.push(Goal::ratio_at_least(of, part, LEAST_OF_LINK));
    }
    goals
}

fn text(choice: &Choice, found: &[Found]) -> String {
    let mut table = table(&["", "", "median", "p95", "limit", "n"]);
    for (name, beside) in [("page", false), ("page beside lower-effort", true)] {
        let samples = loads(found, beside);
        let limit = limit(&choice.profile).map_or(0.0, |limit| limit.as_secs_f64());
        let figure = |q| written(samples.percentile(q), seconds);
        let n = samples.len().to_string();
        table.add_row([name, "", &figure(0.5), &figure(0.95), &seconds(limit), &n]);
    }
    for (name, way) in WAYS {
        let ceil = CEIL[way].bps() as f64;
        let capacity = capacity(&choice.profile)[way];
        let mut add = |what: &str, limit: f64, samples: Samples| {
            let figure = |q| written(samples.percentile(q), megabits);
            let n = samples.len().to_string();
            table.add_row([what, name, &figure(0.5), &figure(0.95), &megabits(limit), &n]);
        };
        add("lower-effort (IP)", ceil, each(found, |one| one.alone[way]));
        add("lower-effort beside bulk (IP)", ceil, each(found, |one| one.lower[way]));
        add("assured bulk beside it", capacity, each(found, |one| one.assured[way]));
    }
    align(&mut table, &[2, 3, 4, 5]);
    format!(
        "{}\nPublic services are assured; {} others on {CONNECTIONS} connections each have what is left,\n\
         at most {} down and {} up.\n\n{}\n",
        choice.profile.about,
        OTHERS,
        megabits(CEIL[DOWN].bps() as f64),
        megabits(CEIL[UP].bps() as f64),
        table.trim_fmt()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_run_with_others_and_without() {
        let profile = Profile::named(DEFAULT_PROFILE).unwrap();
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

    #[test]
    fn lower_effort_keeps_to_its_ceiling_and_out_of_the_way_whatever_the_seed() {
        for seed in [1, 50] {
            let profile = Profile::named(DEFAULT_PROFILE).unwrap();
            let choice = Choice { profile, pages: 2, runs: 1, seed };
            let report = run(&Engine::Sim, &choice).unwrap();
            let of = |workload: &str| {
                let is_it = |row: &&Row| row.workload.as_deref() == Some(workload);
                report.rows.iter().find(is_it).unwrap_or_else(|| panic!("no {workload}"))
            };
            for name in ["down", "up"] {
                let lower = of(&format!("lower-effort, {name}"));
                assert!(lower.mean.unwrap() <= 1.02 * lower.limit.unwrap(), "{lower:?}");
                let beside = of(&format!("lower-effort beside assured, {name}"));
                assert!(beside.mean.unwrap() < 0.1 * beside.limit.unwrap(), "{beside:?}");
            }
            let (alone, beside) = (of("page, assured"), of("page, assured, beside lower-effort"));
            assert!(alone.p50.unwrap() >= alone.limit.unwrap());
            assert!(beside.p50.unwrap() < 1.2 * alone.p50.unwrap(), "{beside:?} {alone:?}");
            let text = format!("{}{}", report.text, report.goals_text());
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 80, "{widest}\n{text}");
        }
    }
}
