//! Whole sessions in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use super::common::{HUB, Pair, bytes, fetch, read_all, write_all};
use bentpipe_flow::ResetCode;
use bentpipe_link::{Core, ModemRate, Read, Settings, Write};
use bentpipe_units::{BitRate, ByteSize};

#[test]
fn a_short_answer_costs_one_round_trip_and_its_bytes() {
    let mut pair = Pair::new(1, 0.0);
    pair.connect();
    let took = fetch(&mut pair, 10_000);
    let limit = Duration::from_millis(761) + BitRate::from_bps(1_890_000).time_for(10_000);
    assert!(took < limit + Duration::from_millis(12), "{took:?}, the limit is {limit:?}");
}

#[test]
fn loss_keeps_short_transfers_near_their_limit_and_bulk_near_capacity() {
    let mut pair = Pair::new(2, 0.06);
    pair.connect();
    let mut times: Vec<_> = (0..200).map(|_| fetch(&mut pair, 10_000)).collect();
    times.sort();
    let limit = 0.761 + 8.0 * 10_000.0 / (0.94 * 1_890_000.0);
    let (median, p95) = (times[100].as_secs_f64() / limit, times[190].as_secs_f64() / limit);
    assert!(median < 1.10, "the median is {median:.3} x the limit");
    assert!(p95 < 1.25, "p95 is {p95:.3} x the limit");

    let took = fetch(&mut pair, 10_000_000).as_secs_f64();
    let goodput = 8.0 * 10_000_000.0 / (took - 0.761);
    let share = goodput / (0.94 * 1_890_000.0);
    assert!(share > 0.92, "bulk reached {share:.3} of (1-p) x rate");
}

#[test]
fn without_coding_losses_are_only_retransmitted() {
    let run = |coding: bool| {
        let rate = BitRate::from_bps(1_890_000);
        let mut pair = Pair::with(2, 0.06, Settings { rate, coding, ..Settings::default() });
        pair.connect();
        let mut times: Vec<_> = (0..100).map(|_| fetch(&mut pair, 10_000)).collect();
        fetch(&mut pair, 1_000_000);
        times.sort();
        let hub = pair.hub.sessions().last().expect("it goes on").2.counters();
        (times[50], hub.repairs_sent)
    };
    let ((coded, repairs), (plain, none)) = (run(true), run(false));
    assert!(repairs > 100 && none == 0, "{repairs} and {none} repairs");
    // Of seven packets one is lost every third time, and arrives a round trip later.
    assert!(plain > coded, "{plain:?} and {coded:?}");
    let mut pair = Pair::with(
        3,
        0.4,
        Settings { rate: BitRate::from_bps(1_890_000), coding: false, ..Settings::default() },
    );
    pair.connect();
    for len in [0, 1, 1429, 20_000, 300_000] {
        fetch(&mut pair, len);
    }
}

#[test]
fn heavy_loss_loses_nothing() {
    let mut pair = Pair::new(3, 0.4);
    pair.connect();
    for len in [0, 1, 1429, 20_000, 300_000] {
        fetch(&mut pair, len);
    }
}

#[test]
fn every_byte_arrives_after_an_outage_of_any_length() {
    for outage_s in [1, 30, 4000] {
        let mut pair = Pair::new(4, 0.06);
        pair.connect();
        let (flow, body) = (pair.open(b""), bytes(2_000_000));
        let far = pair.accept();
        let (mut sent, mut got) = (0, Vec::new());
        let (cut_at, back_at) =
            (pair.now + Duration::from_secs(3), pair.now + Duration::from_secs(3 + outage_s));
        pair.run_until("the end", Duration::from_secs(outage_s + 60), |pair| {
            let cut = (cut_at..back_at).contains(&pair.now);
            (pair.up.cut, pair.down.cut) = (cut, cut);
            write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
            pair.flush();
            read_all(&mut pair.air, flow, pair.now, &mut got)
        });
        assert!(got == body);
        assert!(
            pair.now < back_at + Duration::from_secs(25),
            "resumed at {:?}",
            pair.now - back_at
        );
    }
}

#[test]
fn probes_back_off_in_an_outage() {
    let mut pair = Pair::new(5, 0.0);
    pair.connect();
    pair.open(&bytes(50_000));
    (pair.up.cut, pair.down.cut) = (true, true);
    let before = pair.up.packets;
    pair.run_for(Duration::from_secs(600), |_| {});
    let sent = pair.up.packets - before;
    assert!((60..400).contains(&sent), "{sent} packets in ten minutes of silence");
}

#[test]
fn half_close_is_half_and_resets_cross() {
    let mut pair = Pair::new(6, 0.06);
    pair.connect();
    let flow = pair.open(b"first");
    pair.air.session(flow.0).unwrap().finish(flow.1);
    let far = pair.accept();
    let mut request = Vec::new();
    pair.run_until("the end of the request", Duration::from_secs(30), |pair| {
        read_all(&mut pair.hub, far, pair.now, &mut request)
    });
    assert_eq!(request, b"first");
    let (mut at, mut answer) = (0, Vec::new());
    write_all(&mut pair.hub, far, pair.now, b"late answer", &mut at);
    pair.run_until("the answer", Duration::from_secs(30), |pair| {
        read_all(&mut pair.air, flow, pair.now, &mut answer)
    });
    assert_eq!(answer, b"late answer");

    let flow = pair.open(b"x");
    let far = pair.accept();
    pair.hub.session(far.0).unwrap().reset(far.1, ResetCode::Refused);
    pair.run_until("the reset", Duration::from_secs(30), |pair| {
        let now = pair.now;
        pair.air.session(flow.0).unwrap().read(flow.1, &mut [0; 9], now)
            == Read::Reset(ResetCode::Refused)
    });
}

#[test]
fn a_stop_reaches_the_writer_and_the_other_direction_continues() {
    let mut pair = Pair::new(7, 0.0);
    pair.connect();
    let flow = pair.open(b"upload");
    let far = pair.accept();
    pair.hub.session(far.0).unwrap().stop_reading(far.1, ResetCode::Aborted);
    let (mut at, mut answer) = (0, Vec::new());
    write_all(&mut pair.hub, far, pair.now, b"enough", &mut at);
    pair.run_until("the answer", Duration::from_secs(9), |pair| {
        read_all(&mut pair.air, flow, pair.now, &mut answer)
    });
    assert_eq!(answer, b"enough");
    let now = pair.now;
    let written = pair.air.session(flow.0).unwrap().write(flow.1, b"more", now);
    assert_eq!(written, Write::Stopped(ResetCode::Aborted));
}

#[test]
fn idle_and_unread_flows_are_reset() {
    let rate = BitRate::from_bps(1_890_000);
    let (flow_idle, flow_unread) = (Duration::from_secs(3600), Duration::from_secs(100));
    let mut pair =
        Pair::with(9, 0.0, Settings { rate, flow_idle, flow_unread, ..Settings::default() });
    pair.connect();
    let (unread, idle) = (pair.open(b""), pair.open(b""));
    let far = pair.accept();
    write_all(&mut pair.hub, far, pair.now, &bytes(1000), &mut 0);
    let ended = |pair: &mut Pair, flow: (u64, u64)| {
        let now = pair.now;
        matches!(
            pair.air.session(flow.0).unwrap().write(flow.1, b"", now),
            Write::Reset(ResetCode::Idle)
        )
    };
    pair.run_until("the unread flow's end", Duration::from_secs(200), |pair| ended(pair, unread));
    assert!(!ended(&mut pair, idle));
    pair.run_until("the idle flow's end", Duration::from_secs(2 * 3600), |pair| ended(pair, idle));
    assert_eq!(far.0, 1);
}

#[test]
fn a_restarted_end_resets_flows_and_serves_new_ones() {
    for air_restarts in [true, false] {
        let mut pair = Pair::new(12, 0.0);
        pair.connect();
        let flow = pair.open(b"hello");
        let far = pair.accept();
        if air_restarts {
            pair.restart_air()
        } else {
            pair.restart_hub()
        }
        pair.run_until("the old flow's end", Duration::from_secs(120), |pair| {
            let gone_at_hub = pair.hub.session(far.0).is_none();
            let gone_at_air = pair.air.session(flow.0).is_none();
            if air_restarts {
                gone_at_hub && pair.air.current().is_some()
            } else {
                gone_at_air && pair.air.current().is_some()
            }
        });
        pair.opened.clear();
        fetch(&mut pair, 10_000);
    }
}

#[test]
fn a_full_table_refuses_and_memory_stays_within_its_bound() {
    let rate = BitRate::from_bps(100_000_000);
    let settings = Settings {
        rate,
        max_flows: 16,
        receive_memory: ByteSize::from_bytes(4 << 20),
        send_memory: ByteSize::from_bytes(4 << 20),
        ..Settings::default()
    };
    let mut pair = Pair::with(13, 0.06, settings);
    pair.connect();
    let flows: Vec<_> = (0..16).map(|_| pair.open(b"")).collect();
    let target = "x.example:1".parse().unwrap();
    let now = pair.now;
    assert!(pair.air.open(&target, bentpipe_link::Class::BestEffort, 1, b"", now).is_err());
    let (body, mut sent) = (bytes(3_000_000), vec![0; 16]);
    pair.run_until("all openings", Duration::from_secs(9), |pair| pair.opened.len() == 16);
    let fars = pair.opened.clone();
    pair.run_for(Duration::from_secs(20), |pair| {
        for (far, sent) in fars.iter().zip(&mut sent) {
            write_all(&mut pair.hub, *far, pair.now, &body, sent);
        }
        let air = pair.air.session(flows[0].0).unwrap().held_bytes();
        let hub = pair.hub.session(fars[0].0).unwrap().held_bytes();
        assert!(air <= 8 << 20 && hub <= 8 << 20, "{air} and {hub} bytes");
    });
    let mut got = vec![Vec::new(); 16];
    pair.run_until("every byte", Duration::from_secs(120), |pair| {
        for (far, sent) in fars.iter().zip(&mut sent) {
            write_all(&mut pair.hub, *far, pair.now, &body, sent);
        }
        pair.flush();
        let now = pair.now;
        flows
            .iter()
            .zip(&mut got)
            .map(|(flow, got)| read_all(&mut pair.air, *flow, now, got))
            .fold(true, |a, b| a & b)
    });
    assert!(got.iter().all(|got| *got == body));
}

#[test]
fn a_transfer_completes_within_the_minimum_send_memory() {
    let rate = BitRate::from_bps(1_890_000);
    let send_memory = ByteSize::from_bytes(16 * 1500);
    let settings = Settings { rate, send_memory, ..Settings::default() };
    settings.check().unwrap();
    let mut pair = Pair::with(15, 0.06, settings);
    pair.connect();
    let (flow, body) = (pair.open(b""), bytes(100_000));
    let far = pair.accept();
    let (mut sent, mut got) = (0, Vec::new());
    pair.run_until("the end", Duration::from_secs(300), |pair| {
        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
        pair.flush();
        let held = pair.hub.session(far.0).unwrap().held_bytes();
        assert!(held <= 16 * 1500, "{held} bytes held");
        read_all(&mut pair.air, flow, pair.now, &mut got)
    });
    assert!(got == body);
}

#[test]
fn an_outage_during_bulk_causes_no_busy_loop() {
    let mut pair = Pair::new(16, 0.0);
    pair.connect();
    pair.open(b"");
    let (far, body, mut sent) = (pair.accept(), bytes(3_000_000), 0);
    pair.run_for(Duration::from_secs(2), |pair| {
        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
    });
    (pair.up.cut, pair.down.cut) = (true, true);
    let mut steps = 0;
    pair.run_for(Duration::from_secs(60), |_| steps += 1);
    assert!(steps < 3000, "{steps} steps in a minute of silence");
}

#[test]
fn a_session_dropped_by_the_hub_ends_at_the_air_too() {
    let mut pair = Pair::new(21, 0.0);
    pair.connect();
    let flow = pair.open(b"hello");
    let far = pair.accept();
    // The hub's CLOSE is lost.
    pair.hub.session(far.0).unwrap().close();
    pair.down.cut = true;
    pair.run_for(Duration::from_secs(1), |_| {});
    pair.down.cut = false;
    pair.run_until("the old flow's end", Duration::from_secs(60), |pair| {
        pair.air.session(flow.0).is_none() && pair.air.current().is_some()
    });
    pair.opened.clear();
    fetch(&mut pair, 10_000);
}

#[test]
fn an_outage_of_a_path_without_delay_causes_no_busy_loop() {
    let rate = BitRate::from_bps(10_000_000_000);
    let mut pair = Pair::with(22, 0.0, Settings { rate, ..Settings::default() });
    for pipe in [&mut pair.up, &mut pair.down] {
        (pipe.delay, pipe.rate) = (Duration::ZERO, BitRate::from_bps(1 << 40));
    }
    pair.connect();
    fetch(&mut pair, 10_000);
    pair.open(b"lost");
    (pair.up.cut, pair.down.cut) = (true, true);
    let (before, mut steps) = (pair.up.packets, 0);
    pair.run_for(Duration::from_secs(60), |_| steps += 1);
    let sent = pair.up.packets - before;
    assert!(sent < 200 && steps < 2000, "{sent} packets in {steps} steps");
}

#[test]
fn a_session_has_its_part_of_the_beam_from_its_beginning() {
    let mut pair = Pair::new(30, 0.0);
    let part = BitRate::from_bps(400_000);
    pair.hub.set_beam(Some(part), None, pair.now).unwrap();
    pair.run_until("the session", Duration::from_secs(9), |pair| pair.hub.sessions().count() == 1);
    let now = pair.now;
    let (_, _, session) = pair.hub.sessions().next().unwrap();
    let lease = session.lease(now);
    assert!(lease.rate <= part, "{lease:?}");
    // Nothing waits for it, so that it has no more than its floor.
    assert_eq!(lease.rate, BitRate::from_bps(16_000));
}

/// Returns the rate of the air's reports of a transfer in half a minute, in bit/s with all headers.
fn reports_bps(our_bps: u64, peers_bps: u64) -> f64 {
    let (our_rate, peers_rate) = (BitRate::from_bps(our_bps), BitRate::from_bps(peers_bps));
    let settings = |rate| Settings { rate, ..Settings::default() };
    let mut pair = Pair::with_rates(31, 0.0, settings(our_rate), settings(peers_rate));
    // Many gaps make long reports.
    pair.down.loss = 0.3;
    pair.connect();
    let flow = pair.open(b"");
    let far = pair.accept();
    let (chunk, mut buffer) = ([7; 16 << 10], [0; 16 << 10]);
    let mut turn = |pair: &mut Pair| {
        let now = pair.now;
        let session = pair.hub.session(far.0).unwrap();
        while let Write::Taken(1..) = session.write(far.1, &chunk, now) {}
        let session = pair.air.session(flow.0).unwrap();
        while let Read::Taken(1..) = session.read(flow.1, &mut buffer, now) {}
    };
    let span = Duration::from_secs(30);
    pair.run_for(span, &mut turn);
    let reported = |pair: &mut Pair| pair.air.current().unwrap().1.counters().report_bytes;
    let (before, down) = (reported(&mut pair), pair.down.bytes);
    pair.run_for(span, &mut turn);
    let full = 8.0 * (pair.down.bytes - down) as f64 / span.as_secs_f64();
    assert!(full > 0.9 * peers_bps as f64, "it carries {full} bit/s of {peers_bps}");
    8.0 * (reported(&mut pair) - before) as f64 / span.as_secs_f64()
}

#[test]
fn reports_take_at_most_a_tenth_of_a_thin_uplink_and_a_fiftieth_of_a_thin_downlink() {
    // 8 Mbit/s down over 256 kbit/s up: a tenth of that is less than a fiftieth of 8 Mbit/s.
    let thin_up = reports_bps(256_000, 8_000_000);
    assert!((0.9 * 25_600.0..=25_600.0).contains(&thin_up), "{thin_up:.0} bit/s of 25,600");
    let thin_down = reports_bps(256_000, 400_000);
    assert!((0.9 * 8_000.0..=8_000.0).contains(&thin_down), "{thin_down:.0} bit/s of 8,000");
}

#[test]
fn a_hub_with_several_addresses_is_called_at_each_in_turn() {
    let mut pair = Pair::new(1, 0.0);
    let addresses: [SocketAddr; 2] =
        [HUB, "[2001:db8::2]:4500"].map(|address| address.parse().unwrap());
    pair.air.also_at(addresses);
    let mut now = Duration::ZERO;
    let mut called = Vec::new();
    while called.len() < 4 {
        match pair.air.transmit(now, &mut Vec::new()) {
            Some(to) => called.push((now, to)),
            None => now = pair.air.next_timeout(now),
        }
    }
    let [first, second] = addresses;
    assert_eq!(
        called.iter().map(|call| call.1).collect::<Vec<_>>(),
        [first, second, first, second]
    );
    // The second address has its turn when the first one's answer is overdue.
    assert_eq!(called[1].0, pair.settings.initial_rtt * 3 / 2);
}

#[test]
fn loss_is_remembered_over_a_reconnect() {
    // Repairs and duration of the second object after a reconnect at 40 % loss, when reports of the
    // first have arrived; `knows` if the hub had an earlier session.
    let second = |seed: u64, knows: bool| {
        let (mut pair, limit) = (Pair::new(seed, 0.4), Duration::from_secs(600));
        pair.run_until("the session", limit, |pair| pair.air.current().is_some());
        fetch(&mut pair, 300_000);
        if !knows {
            pair.restart_hub();
        }
        pair.restart_air();
        pair.run_until("the new session", limit, |pair| pair.air.current().is_some());
        fetch(&mut pair, 2_000);
        let repairs = |pair: &mut Pair| {
            let session = pair.hub.sessions().last().expect("it goes on").2;
            session.counters().repairs_sent
        };
        let before = repairs(&mut pair);
        let took = fetch(&mut pair, 10_000);
        (repairs(&mut pair) - before, took)
    };
    let sum = |knows: bool| {
        let all: Vec<_> = (0..20).map(|seed| second(100 + seed, knows)).collect();
        let repairs: u64 = all.iter().map(|(repairs, _)| repairs).sum();
        (repairs, all.iter().map(|(_, took)| *took).sum::<Duration>() / 20)
    };
    let (knows, knows_not) = (sum(true), sum(false));
    assert!(knows.0 > 2 * knows_not.0, "repairs: {knows:?} and {knows_not:?}");
    assert!(knows.1 * 4 < knows_not.1 * 3, "time: {knows:?} and {knows_not:?}");
}

#[test]
fn no_lease_is_exceeded_however_low_it_is() {
    for bps in [0, 100, 1_000, 3_000, 8_000] {
        let mut pair = Pair::new(60, 0.0);
        pair.connect();
        let (flow, body) = (pair.open(b""), bytes(1_000_000));
        let (far, mut sent) = (pair.accept(), 0);
        let (air, rate) = (pair.secrets.0.public(), BitRate::from_bps(bps));
        pair.run_for(Duration::from_secs(5), |_| {});
        // Handshakes are excluded: an air without an answer calls, and is answered.
        let sent_bytes = |pair: &mut Pair| {
            let session = pair.hub.session(far.0).expect("it goes on");
            session.counters().bytes_sent
        };
        let begin = sent_bytes(&mut pair);
        for _ in 0..10 {
            let told = ModemRate { rate, per_packet_overhead: 0, is_down: false };
            pair.hub.set_modem_rate(&air, Some(told), pair.now);
            pair.run_for(Duration::from_secs(30), |pair| {
                write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
            });
        }
        let data = sent_bytes(&mut pair) - begin;
        let (allowed, slack) = (rate.bytes_in(Duration::from_secs(300)), 3 * 1500);
        assert!(data <= allowed + slack, "{data} bytes at {rate}, {allowed} allowed");
        assert!(data + slack >= allowed, "{data} bytes at {rate}, {allowed} allowed");
        // The session recovers with a better lease.
        pair.hub.set_modem_rate(&air, None, pair.now);
        let mut got = Vec::new();
        pair.run_until("the rest", Duration::from_secs(60), |pair| {
            write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
            pair.flush();
            read_all(&mut pair.air, flow, pair.now, &mut got)
        });
        assert!(got == body);
    }
}
