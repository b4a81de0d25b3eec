//! Flows of a session that cannot be sent, or not yet: their bytes, openings and memory.

use std::time::Duration;

use super::common::{Pair, bytes, fetch, read_all, write_all};
use bentpipe_link::{Core, Settings, Write};
use bentpipe_units::{BitRate, ByteSize};

#[test]
fn first_bytes_without_room_are_reported_and_not_lost() {
    let rate = BitRate::from_bps(1_890_000);
    let flow_send_buffer = ByteSize::from_bytes(1000);
    let mut pair = Pair::with(17, 0.0, Settings { rate, flow_send_buffer, ..Settings::default() });
    pair.connect();
    let (body, now) = (bytes(3000), pair.now);
    let target = "origin.example:80".parse().unwrap();
    let class = bentpipe_link::Class::BestEffort;
    let (flow, taken) = pair.air.open(&target, class, 1, &body, now).unwrap();
    assert_eq!(taken, 1000);
    let (mut sent, mut got, far) = (taken, Vec::new(), pair.accept());
    pair.run_until("every byte", Duration::from_secs(9), |pair| {
        write_all(&mut pair.air, flow, pair.now, &body, &mut sent);
        read_all(&mut pair.hub, far, pair.now, &mut got)
    });
    assert!(got == body);
}

#[test]
fn blocked_flows_take_no_other_passengers_memory() {
    let rate = BitRate::from_bps(1_890_000);
    let send_memory = ByteSize::from_bytes(8 << 20);
    let mut pair = Pair::with(19, 0.0, Settings { rate, send_memory, ..Settings::default() });
    pair.connect();
    (pair.up.cut, pair.down.cut) = (true, true);
    let (body, now) = (bytes(256 << 10), pair.now);
    // A hundred uploads of one passenger, none of which can be sent.
    for _ in 0..100 {
        let flow = pair.open(b"");
        let mut at = 0;
        while at < body.len()
            && let Write::Taken(taken) =
                pair.air.session(flow.0).unwrap().write(flow.1, &body[at..], now)
        {
            at += taken;
        }
    }
    let target = "origin.example:80".parse().unwrap();
    let class = bentpipe_link::Class::BestEffort;
    let (other, taken) = pair.air.open(&target, class, 2, b"GET", now).unwrap();
    assert_eq!(taken, 3);
    let written = pair.air.session(other.0).unwrap().write(other.1, &body, now);
    assert!(matches!(written, Write::Taken(taken) if taken >= 8 << 10), "{written:?}");
    assert!(pair.air.session(other.0).unwrap().held_bytes() <= 8 << 20);
}

#[test]
fn bytes_before_their_opening_wait_through_an_outage() {
    let mut pair = Pair::new(18, 0.0);
    pair.connect();
    pair.run_for(Duration::from_secs(3), |_| {});
    let (body, from) = (bytes(1000), pair.air_address);
    let (flow, mut at) = (pair.open(b""), 0);
    let mut datagrams = [Vec::new(), Vec::new()];
    for datagram in &mut datagrams {
        pair.air.transmit(pair.now, datagram).unwrap();
        write_all(&mut pair.air, flow, pair.now, &body, &mut at);
    }
    // The opening is lost, and then everything, for longer than a flow may be unread.
    pair.hub.handle_datagram(&datagrams[1], from, false, pair.now);
    (pair.up.cut, pair.down.cut) = (true, true);
    pair.run_for(Duration::from_secs(1000), |_| {});
    (pair.up.cut, pair.down.cut) = (false, false);
    let (far, mut got) = (pair.accept(), Vec::new());
    pair.run_until("every byte", Duration::from_secs(30), |pair| {
        read_all(&mut pair.hub, far, pair.now, &mut got)
    });
    assert!(got == body);
}

#[test]
fn flows_released_before_their_opening_was_sent_block_no_later_ones() {
    let mut pair = Pair::with(
        20,
        0.0,
        Settings { rate: BitRate::from_bps(100_000_000), ..Settings::default() },
    );
    pair.connect();
    for _ in 0..70 {
        for _ in 0..1000 {
            let flow = pair.open(b"");
            pair.air.session(flow.0).unwrap().release(flow.1);
        }
        pair.run_for(Duration::from_millis(100), |_| {});
    }
    pair.run_for(Duration::from_secs(2), |_| {});
    pair.opened.clear();
    fetch(&mut pair, 10_000);
    pair.run_for(Duration::from_secs(2), |_| {});
    let counters = pair.hub.sessions().next().unwrap().2.counters();
    assert_eq!((counters.violations, counters.flows), (0, 0));
}

#[test]
fn memory_freed_in_an_outage_wakes_waiting_writers() {
    let rate = BitRate::from_bps(1_890_000);
    let send_memory = ByteSize::from_bytes(1 << 20);
    let mut pair = Pair::with(23, 0.0, Settings { rate, send_memory, ..Settings::default() });
    pair.connect();
    let (first, second) = (pair.open(b""), pair.open(b""));
    (pair.up.cut, pair.down.cut) = (true, true);
    let body = bytes(1 << 20);
    for flow in [first, second] {
        let mut at = 0;
        write_all_until_blocked(&mut pair, flow, &body, &mut at);
        assert!(at < body.len());
    }
    pair.run_for(Duration::from_secs(10), |_| {});
    for flow in [first, second] {
        write_all_until_blocked(&mut pair, flow, &body, &mut 0);
    }
    let now = pair.now;
    let session = pair.air.session(first.0).unwrap();
    assert!(!session.has_news(now), "silence, and everybody waits");
    session.release(first.1);
    assert!(session.has_news(now));
}

fn write_all_until_blocked(pair: &mut Pair, flow: (u64, u64), body: &[u8], at: &mut usize) {
    let now = pair.now;
    let session = pair.air.session(flow.0).unwrap();
    while *at < body.len()
        && let Write::Taken(taken) = session.write(flow.1, &body[*at..], now)
    {
        *at += taken;
    }
}
