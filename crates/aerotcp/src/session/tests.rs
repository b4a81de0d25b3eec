//! Connections of both ends over a lossy wire, and their ends.

use super::*;
use crate::endpoint::tests::{Lose, Way, World, drain, secs, settings};
use crate::settings::{Row, Window};
use crate::{RESERVE_BYTES, Settings};
use bentpipe_units::ByteSize;

/// Bytes that encode their position.
fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Drops `per_mille` of all datagrams, always the same ones for a `seed`.
fn lossy(per_mille: u64, seed: u64) -> Lose {
    let mut state = seed;
    Box::new(move |_, _| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 1000 < per_mille
    })
}

/// Sends `up`, of which `already` bytes were accepted before, and `down` on connection `id`. Ends
/// both directions, and expects all bytes.
fn exchange(world: &mut World, id: u64, up: &[u8], already: usize, down: &[u8]) {
    let (mut sent_up, mut sent_down) = (already, 0);
    let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
    let (mut up_ended, mut down_ended) = (false, false);
    world.run(secs(3600), "the exchange", |world| {
        let now = world.now;
        let air = world.air();
        if let Write::Taken(taken) = air.write(id, &up[sent_up..], now) {
            sent_up += taken;
        }
        if sent_up == up.len() {
            air.finish(id, now);
        }
        let (bytes, state) = drain(air, id, now);
        got_down.extend(bytes);
        down_ended |= state == Read::Finished;
        let ground = world.ground();
        if let Write::Taken(taken) = ground.write(id, &down[sent_down..], now) {
            sent_down += taken;
        }
        if sent_down == down.len() {
            ground.finish(id, now);
        }
        let (bytes, state) = drain(ground, id, now);
        got_up.extend(bytes);
        up_ended |= state == Read::Finished;
        up_ended && down_ended
    });
    assert!(got_up == up, "{} of {} bytes up", got_up.len(), up.len());
    assert!(got_down == down, "{} of {} bytes down", got_down.len(), down.len());
    let now = world.now;
    world.air().release(id, now);
    world.ground().release(id, now);
}

/// Asserts that no connection is left.
fn expect_empty(world: &mut World) {
    world.run(secs(600), "all is forgotten", |world| {
        world.counters().iter().all(|counters| counters.connections == 0)
    });
    assert!(world.counters().iter().all(|counters| counters.held_bytes == 0));
}

#[test]
fn bytes_survive_losses_and_duplicates() {
    for (loss, twice, seed) in
        [(0, false, 1), (20, false, 2), (110, false, 3), (110, true, 4), (400, false, 5)]
    {
        let mut world = World::new();
        world.connect();
        world.lose = lossy(loss, seed);
        world.twice = twice;
        let (up, down) = (content(60_000), content(400_000));
        let id = world.opened(&up[..3000]);
        exchange(&mut world, id, &up, 3000, &down);
        world.lose = Box::new(|_, _| false);
        expect_empty(&mut world);
        assert!(world.counters().iter().all(|counters| counters.violations == 0), "loss {loss}");
    }
}

#[test]
fn a_half_closed_connection_goes_on() {
    let mut world = World::new();
    world.connect();
    let id = world.opened(b"request");
    let now = world.now;
    world.air().finish(id, now);
    world.pass(secs(1));
    let now = world.now;
    assert_eq!(drain(world.ground(), id, now), (b"request".to_vec(), Read::Finished));
    let down = content(100_000);
    exchange(&mut world, id, b"", 0, &down);
}

#[test]
fn a_lost_syn_with_first_bytes_is_retransmitted() {
    for lost in 0..4 {
        let mut world = World::new();
        world.connect();
        world.pass(secs(1));
        let mut count = 0;
        world.lose = Box::new(move |way, _| {
            count += u32::from(way == Way::Up);
            way == Way::Up && count <= lost
        });
        // Two packets: if only the SYN is lost, the next packet reveals the gap.
        let began = world.now;
        let first = content(2000);
        let id = world.opened(&first);
        let took = world.now - began;
        world.pass(secs(5));
        let now = world.now;
        assert_eq!(drain(world.ground(), id, now), (first, Read::Blocked), "{lost} lost");
        match lost {
            0 => assert!(took < settings().rtt * 2 / 3, "{took:?}"),
            1 => assert!(took < settings().rtt * 2, "a duplicate told of it: {took:?}"),
            _ => assert!(took < settings().rtt * 6, "{took:?}"),
        }
    }
}

#[test]
fn a_reset_reaches_both_ends_and_is_repeated_until_confirmed() {
    for (from_air, lost) in [(true, 0), (false, 0), (true, 3), (false, 3)] {
        let mut world = World::new();
        world.connect();
        let id = world.opened(b"a");
        world.pass(secs(1));
        let mut count = 0;
        world.lose = Box::new(move |_, _| {
            count += 1;
            count <= lost
        });
        let now = world.now;
        let code = ResetCode::Refused;
        let near = if from_air { world.air() } else { world.ground() };
        near.reset(id, code, now);
        assert_eq!(near.read(id, &mut [0; 9], now), Read::Reset(code));
        world.run(secs(30), "the reset", |world| {
            let now = world.now;
            let far = if from_air { world.ground() } else { world.air() };
            far.read(id, &mut [0; 9], now) == Read::Reset(code)
        });
        let now = world.now;
        let far = if from_air { world.ground() } else { world.air() };
        assert_eq!(far.write(id, b"x", now), Write::Reset(code));
        world.air().release(id, now);
        world.ground().release(id, now);
        expect_empty(&mut world);
    }
}

#[test]
fn a_dropped_connection_is_reset_and_stopped_reading_is_reported() {
    let mut world = World::new();
    world.connect();
    let (dropped, stopped) = (world.opened(b"a"), world.opened(b"b"));
    let now = world.now;
    world.air().release(dropped, now);
    world.air().stop_reading(stopped, ResetCode::Aborted, now);
    let big = content(50_000);
    world.ground().write(stopped, &big, now);
    world.pass(secs(3));
    let now = world.now;
    assert_eq!(world.ground().read(dropped, &mut [0; 9], now), Read::Reset(ResetCode::Aborted));
    assert_eq!(world.ground().write(stopped, &big, now), Write::Stopped(ResetCode::Aborted));
    // The other direction goes on.
    world.air().write(stopped, b"c", now);
    world.air().finish(stopped, now);
    world.pass(secs(1));
    let now = world.now;
    assert_eq!(drain(world.ground(), stopped, now), (b"bc".to_vec(), Read::Finished));
    world.air().release(stopped, now);
    for id in [dropped, stopped] {
        world.ground().release(id, now);
    }
    expect_empty(&mut world);
}

#[test]
fn a_stalled_reader_blocks_only_its_writer() {
    let small = Settings { memory: ByteSize::from_bytes(200_000), ..settings() };
    let mut world = World::with(small.clone(), small, 5);
    world.connect();
    let ids = [world.opened(b"a"), world.opened(b"b"), world.opened(b"c")];
    let data = content(1_000_000);
    let mut taken = [0; 2];
    for _ in 0..30 {
        for (id, taken) in ids.iter().zip(&mut taken) {
            let now = world.now;
            if let Write::Taken(bytes) = world.ground().write(*id, &data[*taken..], now) {
                *taken += bytes;
            }
        }
        world.pass(secs(1));
    }
    let most = 200_000 + 3 * (RESERVE_BYTES + 1500);
    assert!(world.counters().iter().all(|counters| counters.held_bytes <= most));
    assert!(taken.iter().all(|taken| *taken < 400_000), "{taken:?}");
    // Another passenger's connection keeps moving.
    exchange(&mut world, ids[2], b"c", 1, &data[..100_000]);
    // The blocked connections go on when they are read.
    for (id, taken) in ids.into_iter().zip(taken) {
        let mut got = Vec::new();
        world.run(secs(120), "what was written", |world| {
            let now = world.now;
            got.extend(drain(world.air(), id, now).0);
            got.len() == taken
        });
        assert!(got == data[..taken]);
    }
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let air = Settings { max_connections: 3, ..settings() };
    let ground = Settings { max_connections: 2, ..settings() };
    let mut world = World::with(air, ground, 5);
    world.connect();
    assert!(world.open(b"").is_ok() && world.open(b"").is_ok());
    assert_eq!(world.open(b""), Err(OpenError::TooManyFlows(2)));
}

#[test]
fn adaptive_windows_follow_open_connections_and_table_windows_stay() {
    let mut world = World::new();
    world.connect();
    let ids = [world.opened(b"a"), world.opened(b"b")];
    let window = |world: &mut World| world.air().window_of(ids[0]);
    assert_eq!(window(&mut world), 80);
    let now = world.now;
    world.air().reset(ids[1], ResetCode::Aborted, now);
    assert_eq!(window(&mut world), 160);

    let row = |connections, mbps: u64| Row {
        connections,
        bandwidth: BitRate::from_bps(mbps * 1_000_000),
    };
    let table = Settings { window: Window::Table(vec![row(1, 3), row(2, 1)]), ..settings() };
    let mut world = World::with(table.clone(), table, 5);
    world.connect();
    let ids = [world.opened(b"a"), world.opened(b"b")];
    let windows = |world: &mut World| ids.map(|id| world.ground().window_of(id));
    assert_eq!(windows(&mut world), [120, 40]);
    let now = world.now;
    world.air().reset(ids[0], ResetCode::Aborted, now);
    world.pass(secs(1));
    assert_eq!(windows(&mut world)[1], 40, "looked up when it began");
}

#[test]
fn a_lone_connection_fills_exactly_its_window() {
    let mut world = World::new();
    world.connect();
    let id = world.opened(b"a");
    world.pass(secs(1));
    let full = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = full.clone();
    world.lose = Box::new(move |way, datagram| {
        count.set(count.get() + u32::from(way == Way::Down && datagram.len() > 1400));
        false
    });
    let now = world.now;
    world.ground().write(id, &content(1_000_000), now);
    world.step();
    // 160 packets: SatBW × SatRTT. There is no slow start.
    assert_eq!(full.get(), 160);
}

#[test]
fn a_violation_ends_only_its_connection() {
    let mut world = World::new();
    world.connect();
    let (bad, good) = (world.opened(b"a"), world.opened(b"b"));
    let mut plaintext = Vec::new();
    let ack = Ack { number: 1 << 40, window: 0, blocks: Vec::new() };
    let kind = Kind::Plain { ask: false };
    assert!(Segment { connection: bad, ack, stop: None, kind }.put(&mut plaintext));
    let now = world.now;
    world.ground().receive(&plaintext, now);
    world.ground().receive(b"\xff\xff nonsense", now);
    assert_eq!(world.ground().counters().violations, 2);
    world.pass(secs(1));
    let now = world.now;
    assert_eq!(world.air().read(bad, &mut [0; 9], now), Read::Reset(ResetCode::Internal));
    exchange(&mut world, good, b"b", 1, b"still here");
}
