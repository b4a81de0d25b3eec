//! Recordings of modelled flights, played again by the channel that emulator and simulator share.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_channel::{Direction, Fate, LinkSpec};

use super::*;
use crate::random::Random;
use crate::target::Method;

/// Pings of 12 h.
const PINGS: u64 = 21_600;

#[derive(serde::Deserialize)]
struct Profile {
    link: LinkSpec,
}

fn ping(outcome: Outcome) -> Ping {
    Ping {
        target: "far".into(),
        address: IpAddr::from([1, 1, 1, 1]),
        method: Method::Icmp,
        sequence: 0,
        scout: false,
        start_error_us: 0,
        outcome,
    }
}

/// A flight by satellite, whose loss drifts between 2 and 10 % with spells of 35 %.
fn flight(seed: u64) -> Vec<Option<u64>> {
    let mut random = Random::new(seed);
    let ping = |k: u64| {
        let spell = k / 900 % 6 == 2;
        let loss = if spell { 0.35 } else { 0.06 + 0.04 * (k as f64 / 2000.0).sin() };
        let excess = -150.0 * (1.0 - random.unit()).ln();
        (random.unit() >= loss).then_some(((600.0 + excess) * 1000.0) as u64)
    };
    (0..PINGS).map(ping).collect()
}

/// The same pings over the profile's link.
fn replay(toml: &str, seed: u64) -> Vec<Option<u64>> {
    let profile: Profile = toml::from_str(toml).unwrap_or_else(|error| panic!("{error}"));
    let mut up = Direction::new(&profile.link.return_, seed);
    let mut down = Direction::new(&profile.link.forward, seed ^ 1);
    let ping = |k: u64| {
        let sent = Duration::from_secs(2 * k);
        let Fate::Delivered { at } = up.offer(sent, 84) else { return None };
        let Fate::Delivered { at } = down.offer(at, 84) else { return None };
        Some(crate::micros(at - sent))
    };
    (0..PINGS).map(ping).collect()
}

/// Largest distance of the cumulative distributions.
fn distance(mut a: Vec<f64>, mut b: Vec<f64>) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let share = |of: &[f64], x: f64| of.partition_point(|y| *y <= x) as f64 / of.len() as f64;
    a.iter().chain(&b).map(|x| (share(&a, *x) - share(&b, *x)).abs()).fold(0.0, f64::max)
}

fn rtts(pings: &[Option<u64>]) -> Vec<f64> {
    pings.iter().flatten().map(|us| *us as f64).collect()
}

fn losses(pings: &[Option<u64>]) -> Vec<f64> {
    let lost = |window: &[Option<u64>]| window.iter().filter(|ping| ping.is_none()).count();
    pings.chunks(50).map(|window| lost(window) as f64 / window.len() as f64).collect()
}

fn recording(pings: &[Option<u64>]) -> Recording {
    let mut recording = Recording::default();
    for (k, outcome) in pings.iter().enumerate() {
        let outcome = match outcome {
            Some(rtt_us) => Outcome::Reply { rtt_us: *rtt_us, refused: false },
            None => Outcome::Lost,
        };
        recording.add(2_000_000 * k as u64, &ping(outcome));
    }
    recording
}

#[test]
fn a_replay_has_the_distributions_of_the_recording() {
    let mut loss_distances = Vec::new();
    for seed in 1..=20 {
        let recorded = flight(seed);
        let toml = recording(&recorded).toml("flight", "a test").unwrap();
        let played = replay(&toml, seed);
        let rtt = distance(rtts(&recorded), rtts(&played));
        assert!(rtt <= 0.05, "seed {seed}: latency differs by {rtt:.3}");
        loss_distances.push(distance(losses(&recorded), losses(&played)));
    }
    let mean = loss_distances.iter().sum::<f64>() / 20.0;
    let worst = loss_distances.iter().copied().fold(0.0, f64::max);
    println!("loss: mean {mean:.4}, worst {worst:.4}");
    // Two samples of one distribution with 432 windows each are 0.06 apart on average.
    assert!(mean <= 0.06 && worst <= 0.1, "mean {mean:.3}, worst {worst:.3}");
}

#[test]
fn most_of_the_chance_in_a_constant_loss_is_removed() {
    let mut random = Random::new(3);
    let pings: Vec<_> = (0..PINGS).map(|_| (random.unit() >= 0.06).then_some(600_000)).collect();
    let recording = recording(&pings);
    let both: Vec<f64> =
        recording.losses().iter().map(|(_, one)| 1.0 - (1.0 - one).powi(2)).collect();
    let deviation = |losses: &[f64]| {
        let squares = losses.iter().map(|loss| (loss - 0.06).powi(2)).sum::<f64>();
        (squares / losses.len() as f64).sqrt()
    };
    let (raw, kept) = (deviation(&losses(&pings)), deviation(&both));
    assert!(raw > 0.03 && kept < raw / 2.0, "of a deviation of {raw:.3}, {kept:.3} is left");
}

#[test]
fn silence_and_scouts_make_no_profile() {
    let mut recording = Recording::default();
    recording.add(0, &ping(Outcome::Lost));
    recording.add(1, &Ping { scout: true, ..ping(Outcome::Reply { rtt_us: 5, refused: false }) });
    assert_eq!(recording.toml("a", "b"), None);
}

#[test]
fn names_cannot_break_the_file() {
    let mut recording = Recording::default();
    recording.add(7, &ping(Outcome::Reply { rtt_us: 600_000, refused: false }));
    let toml = recording.toml("a\"\n[evil]", "b\\").unwrap();
    toml::from_str::<Profile>(&toml).unwrap();
    assert!(toml.contains("name = \"a[evil]\"\nabout = \"b\"\n"), "{toml}");
}
