//! A thousand modelled flights, whose kinds are known.

use super::*;
use crate::random::Random;

/// Windows of a flight: two hours.
const WINDOWS: u64 = 24;

/// An access with the parameters of one flight.
struct Access {
    kind: Kind,
    floor_ms: f64,
    excess_ms: f64,
    /// Deviation of the level of a slot of 15 s, or of a cell.
    step_ms: f64,
    /// Duration of a cell in seconds.
    cell_s: f64,
    phase_s: f64,
}

impl Access {
    fn new(kind: Kind, random: &mut Random) -> Self {
        let mut within = |low: f64, high: f64| low + (high - low) * random.unit();
        let (floor, excess, step) = match kind {
            // Mile High WiFi, section 4.1: minima of 530 to 680 ms, means of 730 to 1100 ms.
            Kind::Geostationary => (within(500.0, 680.0), within(50.0, 400.0), 0.0),
            Kind::Medium => (within(125.0, 250.0), within(10.0, 60.0), 0.0),
            Kind::Low => (within(22.0, 70.0), within(3.0, 10.0), within(4.0, 12.0)),
            // Minima of 50 to 93 ms, means of 260 to 310 ms; radios of a later generation are faster.
            Kind::AirToGround => (within(40.0, 93.0), within(20.0, 220.0), within(0.0, 15.0)),
        };
        let (cell_s, phase_s) = (within(200.0, 600.0), within(0.0, 15.0));
        Self { kind, floor_ms: floor, excess_ms: excess, step_ms: step, cell_s, phase_s }
    }

    /// Level above the floor at a time, the same for the whole slot or cell.
    fn level_ms(&self, at_s: f64, seed: u64) -> f64 {
        let length = if self.kind == Kind::Low { 15.0 } else { self.cell_s };
        let slot = ((at_s + self.phase_s) / length) as u64;
        let mut random = Random::new(seed.wrapping_mul(1_000_003) ^ slot);
        let spread = 2.0 * self.step_ms * random.unit() * 1.7;
        let pass =
            if self.kind == Kind::Medium { 15.0 * (1.0 + (at_s / 900.0).sin()) } else { 0.0 };
        spread + pass
    }

    fn sample(&self, at_s: f64, seed: u64, random: &mut Random) -> Option<Sample> {
        let excess = -self.excess_ms * (1.0 - random.unit()).ln();
        let rtt_ms = self.floor_ms + self.level_ms(at_s, seed) + excess;
        let answered = random.unit() >= 0.05;
        answered.then_some(Sample { at_s, rtt_us: (rtt_ms * 1000.0) as u64, target: 0 })
    }
}

/// Evidence of a flight whose access changes at `change_s`.
fn flight(accesses: &[Access; 2], change_s: f64, seed: u64) -> Vec<Evidence> {
    let mut random = Random::new(seed);
    let window = |number: u64| {
        let times = (0..WINDOW_S / 2).map(|k| (number * WINDOW_S + 2 * k) as f64);
        let samples: Vec<Sample> = times
            .filter_map(|at_s| {
                let access = &accesses[usize::from(at_s >= change_s)];
                access.sample(at_s, seed, &mut random)
            })
            .collect();
        (number, samples)
    };
    weigh(&(0..WINDOWS).map(window).collect::<Vec<_>>())
}

#[test]
fn flights_of_one_kind() {
    let (mut right, mut unknown, mut wrong) = (0, 0, Vec::new());
    for seed in 0..1000 {
        let mut random = Random::new(seed);
        let kind = KINDS[seed as usize % 4];
        let access = [Access::new(kind, &mut random), Access::new(kind, &mut random)];
        let found = segments(&flight(&access, f64::MAX, seed));
        if found.iter().any(|segment| segment.kind.is_some_and(|found| found != kind)) {
            wrong.push((seed, kind, found.clone()));
        }
        right += u32::from(found.len() == 1 && found[0].kind == Some(kind));
        unknown += u32::from(found.iter().all(|segment| segment.kind.is_none()));
    }
    println!("of 1000 flights {right} are right, {unknown} unknown, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(right >= 900 && unknown <= 50, "{right} right, {unknown} unknown");
}

#[test]
fn a_change_within_a_flight_is_dated() {
    let pairs = [
        [Kind::Geostationary, Kind::AirToGround],
        [Kind::Low, Kind::Geostationary],
        [Kind::AirToGround, Kind::Low],
        [Kind::Medium, Kind::Geostationary],
    ];
    let (mut dated, mut wrong) = (0, Vec::new());
    for seed in 0..200u64 {
        let mut random = Random::new(seed ^ 0xc4a9);
        let kinds = pairs[seed as usize % 4];
        let accesses = kinds.map(|kind| Access::new(kind, &mut random));
        let change_s = 1800.0 + 3600.0 * random.unit();
        let found = segments(&flight(&accesses, change_s, seed));
        if found.iter().filter_map(|segment| segment.kind).any(|kind| !kinds.contains(&kind)) {
            wrong.push((seed, kinds, found.clone()));
        }
        let [first, second] = &found[..] else { continue };
        let at_s = (second.from * WINDOW_S) as f64;
        let exact = (at_s - change_s).abs() <= WINDOW_S as f64;
        dated += u32::from(exact && (first.kind, second.kind) == (Some(kinds[0]), Some(kinds[1])));
    }
    println!(
        "of 200 changes {dated} are dated within 5 minutes, {} flights have a wrong kind",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(dated >= 175, "{dated}");
}

#[test]
fn few_replies_say_nothing() {
    let sample = Sample { at_s: 0.0, rtt_us: 600_000, target: 0 };
    assert!(weigh(&[(0, vec![sample; 19]), (1, Vec::new())]).is_empty());
    assert!(segments(&[]).is_empty());
    let found = segments(&weigh(&[(7, vec![sample; 20])]));
    assert_eq!((found[0].kind, found[0].from), (None, 7), "one window is thin evidence");
}

/// The same thousand flights, with a provider that sells one kind, several, or unknown ones.
#[test]
fn flights_with_a_known_provider() {
    let (mut right, mut wrong) = (0, Vec::new());
    for seed in 0..1000 {
        let mut random = Random::new(seed);
        let kind = KINDS[seed as usize % 4];
        let access = [Access::new(kind, &mut random), Access::new(kind, &mut random)];
        let mut evidence = flight(&access, f64::MAX, seed);
        let sold: Vec<Kind> = match seed / 4 % 3 {
            0 => vec![kind],
            1 => vec![kind, KINDS[(seed as usize + 1) % 4]],
            _ => Vec::new(),
        };
        evidence.iter_mut().for_each(|window| window.sold_as(&sold));
        let found = segments(&evidence);
        if found.iter().any(|segment| segment.kind.is_some_and(|found| found != kind)) {
            wrong.push((seed, kind, found.clone()));
        }
        right += u32::from(found.len() == 1 && found[0].kind == Some(kind));
    }
    println!("with a provider {right} of 1000 flights are right, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(right >= 980, "{right} right");
}

/// A provider that the speed of light contradicts, and one of a low orbit without a rhythm.
#[test]
fn the_speed_of_light_outweighs_a_provider() {
    let line = |random: &mut Random| {
        let jitter_us = (2000.0 * random.unit()) as u64;
        (0..WINDOW_S / 2).map(|k| k as f64).map(move |k| (2.0 * k, jitter_us)).collect::<Vec<_>>()
    };
    let mut random = Random::new(1);
    let windows: Vec<(u64, Vec<Sample>)> = (0..WINDOWS)
        .map(|number| {
            let start = (number * WINDOW_S) as f64;
            let sample = |(at_s, jitter_us): (f64, u64)| {
                let rtt_us = 30_000 + jitter_us + (at_s as u64 * 7919) % 1500;
                Sample { at_s: start + at_s, rtt_us, target: 0 }
            };
            (number, line(&mut random).into_iter().map(sample).collect())
        })
        .collect();
    let named = |sold: Kind| {
        let mut evidence = weigh(&windows);
        evidence.iter_mut().for_each(|window| window.sold_as(&[sold]));
        let found = segments(&evidence);
        assert_eq!(found.len(), 1, "{sold:?}: {found:?}");
        found[0].kind
    };
    assert_ne!(named(Kind::Geostationary), Some(Kind::Geostationary));
    assert_ne!(named(Kind::Medium), Some(Kind::Medium));
    assert_eq!(named(Kind::Low), Some(Kind::Low));
}
