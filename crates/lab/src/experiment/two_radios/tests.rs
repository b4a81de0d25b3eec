//! Sessions over random bundles: nothing is lost, doubled or reset. A metered path waits for the others.

use std::time::Duration;

use bentpipe_link::Settings;
use bentpipe_units::Ratio;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::bundle::Bundle;
use crate::profile::Profile;
use crate::result::Sample;
use crate::sim::pair::Pair;
use crate::sim::trace::Digest;
use crate::sim::tunnel::Tunnel;

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
