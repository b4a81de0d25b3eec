//! Path MTU over the lab's links, whose losses come in bursts of time.

use std::time::Duration;

use bentpipe_lab::profile::Profile;
use bentpipe_lab::sim::pair::Pair;
use bentpipe_link::{Core, Read, Settings};

const HOUR: Duration = Duration::from_secs(3600);

/// In-flight satellite that loses two of five packets, in bursts of ten.
fn bad_mss(more: &str) -> Profile {
    let way = format!(
        "rate = \"1.89 Mbit/s\"\ndelay = \"380.5 ms\"\n\
         loss = {{ gilbert-elliott = {{ mean = \"40 %\", burst = 10 }} }}\n{more}"
    );
    let text =
        format!("name = \"bad\"\nabout = \"\"\n[link.forward]\n{way}\n[link.return]\n{way}\n");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    std::fs::write(&path, text).unwrap();
    Profile::load(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// Sends objects of 60 KB on one flow for `length`, every few seconds. Returns the number of bytes
/// that arrived. `each` gets the MTUs at both ends after every step.
fn objects(pair: &mut Pair, length: Duration, mut each: impl FnMut([usize; 2])) -> u64 {
    let (mut air, mut hub) = (None, None);
    assert!(pair.run(Duration::from_secs(120), |pair| {
        air = air.or_else(|| pair.open(b"GET"));
        hub = hub.or_else(|| pair.accept());
        air.is_some() && hub.is_some()
    }));
    let (air, hub) = (air.unwrap(), hub.unwrap());
    pair.run(Duration::from_secs(60), |_| false);
    let (object, mut buffer, mut came) = (vec![7; 60_000], vec![0; 65_536], 0);
    // A request that nobody reads would be reset after a while.
    let now = pair.now();
    pair.hub.session(hub.0).map(|session| session.read(hub.1, &mut buffer, now));
    let end = pair.now() + length;
    while pair.now() < end {
        pair.serve(hub, &object);
        let next = pair.now() + Duration::from_secs(5);
        while pair.now() < next {
            pair.step_within(next);
            while let Some(Read::Taken(taken)) = pair.fetch(air, &mut buffer) {
                came += taken as u64;
            }
            let here = pair.air.current().map_or(0, |(_, session)| session.mtu_bytes());
            let there = pair.hub.sessions().next().map_or(0, |(_, _, session)| session.mtu_bytes());
            each([here, there]);
        }
    }
    came
}

#[test]
fn an_hour_of_bursts_is_no_smaller_path() {
    for seed in 0..3 {
        let mut pair = Pair::new(&bad_mss(""), &Settings::default(), seed);
        let came = objects(&mut pair, HOUR, |mtus| assert_eq!(mtus, [1500, 1500], "seed {seed}"));
        // 720 objects of 60,000 bytes. The last one may be in flight.
        assert!(came > 43_000_000, "{came} bytes");
    }
}

#[test]
fn a_profile_with_a_smaller_mtu_is_found_out_and_served() {
    let mut pair = Pair::new(&bad_mss("mtu = 1400"), &Settings::default(), 4);
    let mut last = [0, 0];
    let came = objects(&mut pair, HOUR / 6, |mtus| {
        assert!(mtus.iter().all(|&mtu| mtu <= 1400));
        last = mtus;
    });
    assert!(came > 1_000_000, "{came} bytes");
    assert!(last.iter().all(|&mtu| mtu >= 1392), "{last:?}");
    let (forward, back) = pair.counters();
    assert!(forward.too_long.packets > 0 && back.too_long.packets > 0);
}
