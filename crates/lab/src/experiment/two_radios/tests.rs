//! Sessions over random bundles: nothing is lost, doubled or reset. A metered path waits for the others.

use std::time::Duration;

use bentpipe_channel::DirectionSpec;
use bentpipe_link::{Class, LeaseMode, Settings, SnapshotLimits, Source};
use bentpipe_units::Ratio;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::bundle::Bundle;
use crate::profile::Profile;
use crate::result::Sample;
use crate::sim::pair::Pair;
use crate::sim::trace::Digest;
use crate::sim::traffic::SimTraffic;
use crate::sim::tunnel::Tunnel;
use crate::traffic::{Carry, ENDLESS, Passing, Traffic, UP};

/// Number of random sessions.
const SESSIONS: u64 = 60;
/// Time in which paths die and return, and then the time for everything to arrive.
const UNREST: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(300);

/// A bundle of one to three links with round trips of 74 ms to 761 ms.
fn links(rng: &mut ChaCha20Rng) -> Vec<Profile> {
    let names = ["da2gc", "mss", "geo-520", "geo-idirect"];
    let link = |rng: &mut ChaCha20Rng| {
        let link = Profile::named(names[rng.random_range(0..names.len())]).expect("it is built in");
        let loss = Ratio::new(rng.random_range(0.0..0.2)).expect("it is a ratio");
        link.with_loss(loss, rng.random_range(1.0..8.0)).expect("such losses are possible")
    };
    (0..rng.random_range(1..=3)).map(|_| link(rng)).collect()
}

/// Runs a session with some downloads while its paths die and return. Returns what went wrong.
fn session(seed: u64) -> Result<(), String> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let links = links(&mut rng);
    let pair = Pair::bundle(&links, &Settings::default(), seed).with_digest(Digest::of_sizes());
    let mut tunnel = Tunnel::over(pair, &links[0]).map_err(|error| error.to_string())?;
    let end = tunnel.pair().now() + UNREST;
    let mut flows = Vec::new();
    while tunnel.pair().now() < end {
        if flows.len() < 6 {
            let bytes = 10_u64.pow(rng.random_range(2..=5)) * rng.random_range(1..9);
            let flow = tunnel.start(rng.random_range(1..4), bytes).ok_or("no session")?;
            flows.push((flow, bytes));
        }
        let path = rng.random_range(0..links.len());
        let dies = rng.random_bool(0.4).then_some(0);
        tunnel.pair().set_path_mtu(path, dies);
        tunnel.pass(Duration::from_millis(rng.random_range(1..8000)));
    }
    (0..links.len()).for_each(|path| tunnel.pair().set_path_mtu(path, None));
    let end = tunnel.pair().now() + PATIENCE;
    let done =
        |tunnel: &Tunnel| flows.iter().all(|(flow, bytes)| tunnel.bytes_read(*flow) >= *bytes);
    while !done(&tunnel) && tunnel.pair().now() < end {
        tunnel.pass(Duration::from_secs(1));
    }
    for (flow, bytes) in &flows {
        let read = tunnel.bytes_read(*flow);
        if read != *bytes {
            return Err(format!("{read} of {bytes} bytes over {} paths", links.len()));
        }
    }
    let seen = tunnel.seen().ok_or("the session ended")?;
    let violations = seen.hub.violations + seen.air.violations;
    if violations == 0 { Ok(()) } else { Err(format!("{violations} violations")) }
}

#[test]
fn nothing_is_lost_or_doubled_while_paths_die_and_return() {
    let first = std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    for seed in first..first + SESSIONS {
        if let Err(error) = session(seed) {
            panic!("seed {seed}: {error}");
        }
    }
}

/// Bytes on both directions of a path since `before`.
fn carried(tunnel: &mut Tunnel, path: usize) -> u64 {
    let counters = tunnel.pair().counters_of(path);
    counters.map_or(0, |(to_air, to_hub)| to_air.offered.bytes + to_hub.offered.bytes)
}

#[test]
fn a_metered_path_carries_data_only_while_no_other_does() {
    let links = Bundle::of_paper(1.0).expect("they have losses").0;
    // The ground is told on the path itself.
    let air = Settings { metered: true, ..Settings::default() };
    let pair = Pair::bundle_between(&links, &air, &Settings::default(), 1);
    let mut tunnel = Tunnel::over(pair, &links[0]).expect("they are up");
    tunnel.pass(Duration::from_secs(10));
    let before = [0, 1].map(|path| carried(&mut tunnel, path));
    for _ in 0..4 {
        assert!(matches!(tunnel.fetch(100_000, PATIENCE), Sample::Finished(_)));
    }
    let after = [0, 1].map(|path| carried(&mut tunnel, path));
    assert!(after[0] - before[0] < 4_000, "{before:?} {after:?}");
    assert!(after[1] - before[1] > 400_000, "{before:?} {after:?}");
    tunnel.pair().set_path_mtu(1, Some(0));
    assert!(matches!(tunnel.fetch(100_000, PATIENCE), Sample::Finished(_)));
    assert!(carried(&mut tunnel, 0) - after[0] > 100_000, "it takes over");
    tunnel.pair().set_path_mtu(1, None);
    tunnel.pass(Duration::from_secs(30));
    let before = carried(&mut tunnel, 0);
    assert!(matches!(tunnel.fetch(100_000, PATIENCE), Sample::Finished(_)));
    assert!(carried(&mut tunnel, 0) - before < 4_000, "it waits again");
}

/// Both links of the paper, dark for 400 ms towards the aircraft every 7 s: the second one `later`.
fn fading(later: Duration) -> Vec<Profile> {
    let mut links = Bundle::of_paper(1.0).expect("they have losses").0;
    for (link, later) in links.iter_mut().zip([Duration::ZERO, later]) {
        let direction = |spec: &DirectionSpec, loss: f64| {
            let rate = spec.rate().expect("the link has a rate");
            let (ms, percent) = (spec.mean_delay().as_millis(), 100.0 * loss);
            format!("rate = \"{rate}\"\ndelay = \"{ms} ms\"\nloss = \"{percent:.1} %\"")
        };
        let forward = direction(&link.link.forward, link.forward_loss());
        let back = direction(&link.link.return_, link.return_loss());
        let from = (Duration::from_secs(1) + later).as_millis();
        let outages = format!(
            "outages = {{ packets = \"lost\", scheduled = [[\"{from} ms\", \"400 ms\"]], repeat = \"7 s\" }}"
        );
        let text = format!("[forward]\n{forward}\n{outages}\n[return]\n{back}");
        link.link = toml::from_str(&text).expect("the link is well formed");
    }
    links
}

/// Path with which the first one loses together, as the ground's status shows it after a download.
fn loses_with(links: &[Profile]) -> Option<u8> {
    let pair = Pair::bundle(links, &Settings::default(), 1);
    let mut tunnel = Tunnel::over(pair, &links[0]).expect("they are up");
    tunnel.start_bulk().expect("there is a session");
    tunnel.pass(Duration::from_secs(120));
    let now = tunnel.pair().now();
    let (_, _, session) = tunnel.pair().hub.sessions().next().expect("there is a session");
    let none = SnapshotLimits { passengers: 0, flows: 0 };
    session.traffic(none, now).paths[0].loses_with
}

#[test]
fn paths_that_are_dark_at_the_same_times_are_noticed() {
    assert_eq!(loses_with(&fading(Duration::ZERO)), Some(1));
    assert_eq!(loses_with(&fading(Duration::from_millis(3500))), None);
    assert_eq!(loses_with(&Bundle::of_paper(20.0).expect("they have losses").0), None);
}

#[test]
fn an_upload_goes_on_when_a_grant_ends_at_a_spot_beams_edge_before_the_next_is_there() {
    // The satellite's uplink is granted from a beam.
    let links = Bundle::of_paper(1.0).expect("they have losses").reversed().0;
    let air = Settings { lease: LeaseMode::Granted, ..Settings::default() };
    let mut pair = Pair::bundle_between(&links, &air, &Settings::default(), 1);
    let [rate, other] = [0, 1].map(|at: usize| links[at].link.return_.rate().expect("it has one"));
    pair.hub.set_beam(None, Some(rate), Duration::ZERO).expect("the floor fits");
    let mut cabin = SimTraffic::over(pair, &links[0]).expect("they are up");
    let carry = Carry { class: Class::BestEffort, passenger: 1, up: ENDLESS, down: ENDLESS };
    let upload = cabin.open(carry);
    let goodput = |cabin: &mut SimTraffic, seconds: u64| {
        let before = cabin.course(upload).got[UP];
        cabin.pass(Duration::from_secs(seconds));
        (8 * (cabin.course(upload).got[UP] - before) / seconds) as f64
    };
    let source = |cabin: &mut SimTraffic| {
        let now = cabin.now();
        cabin.pair().air.current().expect("there is a session").1.lease(now).source
    };
    let both = (rate.bps() + other.bps()) as f64;
    cabin.pass(Duration::from_secs(30));
    assert_eq!(source(&mut cabin), Source::Grant);
    assert!(goodput(&mut cabin, 30) > 0.85 * both, "both radios carry it");
    // The edge is dark for longer than a grant lasts.
    cabin.pair().set_path_mtu(0, Some(0));
    let at_edge = goodput(&mut cabin, 8);
    assert!(at_edge > 0.7 * other.bps() as f64, "{at_edge} bit/s at the edge");
    assert_eq!(source(&mut cabin), Source::Idle, "the old grant has ended");
    cabin.pair().set_path_mtu(0, None);
    let mut waited = 0;
    while source(&mut cabin) != Source::Grant {
        waited += 1;
        let without = goodput(&mut cabin, 1);
        assert!(without > 0.7 * other.bps() as f64, "{without} bit/s in second {waited}");
        assert!(waited <= 5, "no grant");
    }
    cabin.pass(4 * links[0].rtt());
    let after = goodput(&mut cabin, 20);
    assert!(after > 0.85 * both, "{after} bit/s with the new grant");
}
