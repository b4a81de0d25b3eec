//! Searches over modelled links in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_channel::{Direction, DirectionSpec, Fate};
use proptest::prelude::*;

use super::*;

/// Seeds of each case.
const SEEDS: u64 = 100;

/// Longest time from the start of a train to that of the next one.
const PAUSE: Duration = Duration::from_millis(900);

/// Runs a search over a link. Returns the finding, the bytes and the time of all trains.
fn search(link: &str, seed: u64) -> (Limit, u64, u64) {
    let spec: DirectionSpec = toml::from_str(link).unwrap_or_else(|error| panic!("{error}"));
    let mut direction = Direction::new(&spec, seed);
    let mut search = Search::default();
    let (mut now, mut bytes, mut time_us) = (Duration::from_secs(1), 0, 0);
    loop {
        let plan = match search.next() {
            Next::Send(plan) => plan,
            Next::Done(limit) => return (limit, bytes, time_us),
        };
        assert!(plan.is_valid(), "{plan:?}");
        bytes += plan.bytes();
        time_us += plan.time_us();
        let mut packets = plan.packets();
        let mut last = now;
        for packet in &mut packets {
            let sent = now + Duration::from_micros(packet.sent_us.into());
            if let Fate::Delivered { at } = direction.offer(sent, packet.bytes.into()) {
                packet.arrived_us = Some(crate::micros(at) as u32);
                last = last.max(at);
            }
        }
        search.add(plan, &packets);
        now = last + PAUSE;
    }
}

/// Loss and delay behind the limit.
const BEHIND: [&str; 4] = [
    "delay = \"300 ms\"",
    "delay = \"300 ms\"\nloss = \"6 %\"",
    "delay = \"380 ms\"\nloss = { gilbert-elliott = { mean = \"6 %\", burst = 4 } }\n\
     jitter = { shape = \"exponential\", mean = \"5 ms\", redraw = \"20 ms\" }",
    "delay = \"30 ms\"\nloss = \"1 %\"\njitter = { shape = \"uniform\", mean = \"10 ms\", redraw = \"100 ms\" }",
];

/// Counts the searches that find the kind, and those of them whose rate is within 5 %.
fn count(
    link: &str,
    rate: u64,
    is: fn(Limit) -> Option<u64>,
) -> (u64, u64, BTreeMap<&'static str, u64>) {
    let (mut kind, mut close) = (0, 0);
    let mut others: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let (limit, bytes, time_us) = search(link, seed);
        assert!(time_us <= MAX_TRAFFIC && bytes <= 800_000, "{bytes} bytes in {time_us} us");
        if let Some(found) = is(limit) {
            kind += 1;
            close += u64::from(found.abs_diff(rate) * 20 <= rate);
        } else {
            *others.entry(limit.name()).or_default() += 1;
        }
    }
    (kind, close, others)
}

fn policer(limit: Limit) -> Option<u64> {
    match limit {
        Limit::Policer { rate_bps, .. } => Some(rate_bps),
        _ => None,
    }
}

fn slow_link(limit: Limit) -> Option<u64> {
    match limit {
        Limit::SlowLink { rate_bps } => Some(rate_bps),
        _ => None,
    }
}

fn shaper(limit: Limit) -> Option<u64> {
    match limit {
        Limit::Shaper { rate_bps, .. } => Some(rate_bps),
        _ => None,
    }
}

/// Checks that at most one search of twenty is wrong, at least `named` of 100 find the kind, and `close` the rate.
fn check(cases: &[(String, u64)], is: fn(Limit) -> Option<u64>, named: u64, close: u64) {
    let mut failed = Vec::new();
    for (case, rate) in cases {
        for behind in BEHIND {
            let (kind, near, others) = count(&format!("{case}\n{behind}"), *rate, is);
            let line =
                format!("{case}; {behind}: {kind} of {SEEDS} named, {near} within 5 %, {others:?}");
            println!("{line}");
            let unknown = others.get("unknown").copied().unwrap_or(0);
            let wrong = SEEDS - kind - unknown;
            if wrong * 20 > SEEDS || kind * 100 < SEEDS * named || near * 100 < SEEDS * close {
                failed.push(line);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn policers() {
    let mut cases = Vec::new();
    for (rate, bucket) in
        [(100, "1500 B"), (100, "6 kB"), (100, "30 kB"), (500, "15 kB"), (2000, "60 kB")]
    {
        let case = format!(
            "rate = \"8 Mbit/s\"\npolicer = {{ rate = \"{rate} kbit/s\", bucket = \"{bucket}\" }}"
        );
        cases.push((case, rate * 1000));
    }
    check(&cases, policer, 95, 95);
}

#[test]
fn slow_links() {
    let mut cases = Vec::new();
    for (rate, queue) in
        [(100, "250 ms"), (100, "3 kB"), (100, "30 kB"), (468, "1 BDP"), (2000, "250 ms")]
    {
        cases.push((format!("rate = \"{rate} kbit/s\"\nqueue = \"{queue}\""), rate * 1000));
    }
    // Jitter that stays for 100 ms at a time bends the slope of a short queue.
    check(&cases, slow_link, 90, 75);
}

#[test]
fn shapers() {
    let mut cases = Vec::new();
    for (rate, bucket) in [(100, "6 kB"), (500, "20 kB"), (2000, "30 kB")] {
        let case = format!(
            "rate = \"20 Mbit/s\"\nshaper = {{ rate = \"{rate} kbit/s\", bucket = \"{bucket}\", queue = \"300 ms\" }}"
        );
        cases.push((case, rate * 1000));
    }
    check(&cases, shaper, 95, 94);
}

#[test]
fn fast_links_have_no_limit() {
    for behind in BEHIND {
        let link = format!("rate = \"50 Mbit/s\"\n{behind}");
        let fast = (0..SEEDS).filter(|seed| {
            let (limit, ..) = search(&link, *seed);
            matches!(limit, Limit::None { at_least_bps } if at_least_bps > 8_000_000)
        });
        let fast = fast.count();
        println!("{behind}: {fast} of {SEEDS}");
        assert!(fast >= 95, "{behind}: {fast}: {:?}", search(&link, 3));
    }
}

proptest! {
    /// Whatever an origin claims, a search ends within its bounds.
    #[test]
    fn a_search_ends(times in prop::collection::vec(any::<(u32, Option<u32>)>(), 1..1200)) {
        let mut search = Search::default();
        let mut times = times.into_iter().cycle();
        let mut time_us = 0;
        while let Next::Send(plan) = search.next() {
            prop_assert!(plan.is_valid(), "{:?}", plan);
            time_us += plan.time_us();
            prop_assert!(time_us <= MAX_TRAFFIC);
            let mut packets = plan.packets();
            for packet in &mut packets {
                let (sent_us, arrived_us) = times.next().unwrap_or_default();
                (packet.sent_us, packet.arrived_us) = (sent_us, arrived_us);
            }
            search.add(plan, &packets);
        }
    }
}

#[test]
fn nothing_arrives() {
    let mut search = Search::default();
    let Next::Send(plan) = search.next() else { panic!("no first train") };
    search.add(plan, &plan.packets());
    assert_eq!(search.next(), Next::Done(Limit::Unknown));
}
