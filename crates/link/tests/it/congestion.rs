//! Sessions without a lease: their limits, their reaction to losses and marks, and their memory.

use std::time::Duration;

use super::common::Pair;
use bentpipe_link::{Control, Core, REMEMBERED_LIFETIME, Read, SessionId, Settings, Write};
use bentpipe_units::BitRate;

/// The round trip of the pipes.
const RTT: Duration = Duration::from_millis(761);

fn settings() -> Settings {
    let rate = BitRate::from_bps(8_000_000);
    Settings { rate, control: Control::Congestion, ..Settings::default() }
}

fn pair(loss: f64) -> Pair {
    let mut pair = Pair::with(1, loss, settings());
    pair.connect();
    pair
}

/// The hub's window of its only session.
fn window(pair: &mut Pair) -> u64 {
    pair.hub.sessions().find_map(|(_, _, session)| session.congestion_window_bytes()).unwrap()
}

/// Opens a flow and lets the hub fill it for `span`. Returns the bytes that reached the air.
fn download(pair: &mut Pair, span: Duration) -> u64 {
    let air = pair.open(b"GET");
    let hub = pair.accept();
    let mut bytes = 0;
    pair.run_for(span, |pair| bytes += turn(pair, air, hub));
    bytes
}

fn turn(pair: &mut Pair, air: (SessionId, u64), hub: (SessionId, u64)) -> u64 {
    let now = pair.now;
    let (chunk, mut buffer, mut bytes) = ([7; 16 << 10], [0; 16 << 10], 0);
    if let Some(session) = pair.hub.session(hub.0) {
        while let Write::Taken(1..) = session.write(hub.1, &chunk, now) {}
    }
    if let Some(session) = pair.air.session(air.0) {
        while let Read::Taken(taken @ 1..) = session.read(air.1, &mut buffer, now) {
            bytes += taken as u64;
        }
    }
    bytes
}

#[test]
fn a_session_without_a_lease_starts_slowly_and_fills_the_cap() {
    let mut pair = pair(0.0);
    let first = download(&mut pair, RTT * 2);
    assert!(first < 60_000, "{first} bytes in two round trips");
    let later = download(&mut pair, Duration::from_secs(40));
    let mbps = later as f64 * 8.0 / 40e6;
    assert!(mbps > 6.0, "{mbps:.2} Mbit/s of 8 over 40 s");
}

#[test]
fn losses_of_the_channel_count_as_congestion_only_until_they_are_known() {
    let mut pair = pair(0.01);
    let bytes = download(&mut pair, Duration::from_secs(10));
    let mbps = bytes as f64 * 8.0 / 10e6;
    assert!(mbps < 2.0, "{mbps:.2} Mbit/s of 8 at first");
    download(&mut pair, Duration::from_secs(60));
    let bytes = download(&mut pair, Duration::from_secs(60));
    let mbps = bytes as f64 * 8.0 / 60e6;
    // All losses as congestion: RFC 9438, section 5.2: 1.054 x (0.761^3 / 0.01^3)^(1/4) is 27
    // segments, 0.43 Mbit/s.
    assert!(mbps > 4.0, "{mbps:.2} Mbit/s of 8 later");
}

#[test]
fn a_mark_lowers_the_window_and_a_leased_session_ignores_it() {
    let mut pair = pair(0.0);
    download(&mut pair, RTT * 8);
    let before = window(&mut pair);
    pair.down.marks = true;
    download(&mut pair, RTT * 2);
    let after = window(&mut pair);
    assert!(after < before * 8 / 10, "{before} to {after} bytes");
    let lost: u64 =
        pair.hub.sessions().map(|(_, _, session)| session.counters().packets_lost).sum();
    assert_eq!(lost, 0);

    let mut leased = Pair::with(1, 0.0, Settings { control: Control::Leased, ..settings() });
    leased.connect();
    leased.down.marks = true;
    let bytes = download(&mut leased, Duration::from_secs(10));
    assert!(!leased.hub.is_ect());
    assert!(bytes > 8_000_000, "{bytes} bytes at the lease in 10 s");
}

#[test]
fn an_outage_restarts_congestion_control() {
    let mut pair = pair(0.0);
    let (air, hub) = (pair.open(b"GET"), pair.accept());
    pair.run_for(RTT * 10, |pair| {
        turn(pair, air, hub);
    });
    let before = window(&mut pair);
    pair.down.cut = true;
    pair.up.cut = true;
    pair.run_for(Duration::from_secs(6), |pair| {
        turn(pair, air, hub);
    });
    assert!(window(&mut pair) < before / 10);
    pair.down.cut = false;
    pair.up.cut = false;
    let mut bytes = 0;
    pair.run_for(Duration::from_secs(30), |pair| bytes += turn(pair, air, hub));
    assert!(bytes > 4_000_000, "{bytes} bytes in the 30 s after it");
}

#[test]
fn a_new_session_begins_with_earlier_measurements() {
    let mut pair = pair(0.0);
    let cold = download(&mut pair, RTT * 5);
    download(&mut pair, Duration::from_secs(20));
    let learned = pair.hub.sessions().next().unwrap().2.remembered().unwrap();
    assert!(learned.rtt.abs_diff(RTT) < Duration::from_millis(20), "{learned:?}");
    let mbps = learned.rate.bps() as f64 / 1e6;
    assert!((6.0..8.2).contains(&mbps), "{mbps:.2} Mbit/s");

    pair.restart_air();
    pair.run_until("a new session", Duration::from_secs(60), |pair| {
        let fresh = |session: &bentpipe_link::Session| session.prior().is_some();
        pair.air.current().is_some() && pair.hub.sessions().all(|(_, _, session)| fresh(session))
    });
    assert!(pair.hub.sessions().all(|(_, _, session)| session.round_trip() < RTT * 11 / 10));
    let half = learned.window_bytes() / 2;
    assert!(window(&mut pair) < half, "nothing is taken for granted");
    let warm = download(&mut pair, RTT * 5);
    assert!(window(&mut pair) >= half, "half of {} was jumped to", learned.window_bytes());
    assert!(warm > cold * 2, "{warm} bytes in 5 round trips; without memory {cold}");
}

#[test]
fn old_measurements_are_not_used() {
    let mut pair = pair(0.0);
    download(&mut pair, Duration::from_secs(10));
    pair.up.cut = true;
    pair.down.cut = true;
    pair.run_for(REMEMBERED_LIFETIME + Duration::from_secs(60), |_| {});
    pair.up.cut = false;
    pair.down.cut = false;
    pair.restart_air();
    let old = pair.hub.sessions().next().unwrap().0;
    pair.run_until("a new session", Duration::from_secs(60), |pair| {
        pair.air.current().is_some() && pair.hub.sessions().all(|(id, ..)| id != old)
    });
    assert!(pair.hub.sessions().all(|(_, _, session)| session.prior().is_none()));
}

#[test]
fn the_air_remembers_over_sessions_and_accepts_measurements() {
    let mut pair = pair(0.0);
    download(&mut pair, Duration::from_secs(5));
    let learned = pair.air.remembered().unwrap();
    assert!(learned.rtt.abs_diff(RTT) < Duration::from_millis(20), "{learned:?}");
    pair.restart_air();
    assert_eq!(pair.air.remembered(), None, "a new process");
    pair.air.remember(learned);
    assert_eq!(pair.air.remembered(), Some(learned));
    pair.connect();
    let (_, session) = pair.air.current().unwrap();
    assert_eq!(session.prior(), Some(&learned));
}
