//! A hostile peer with the right key.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_coding::Span;
use bentpipe_flow::{OpenDatagrams, ResetCode};
use bentpipe_units::{BitRate, ByteSize};
use proptest::prelude::*;
use rand::SeedableRng;

use super::Session;
use super::sent::SentContents;
use crate::Class;
use crate::crypto::Rng;
use crate::endpoint::{AirConfig, AirCore, Aircraft, Core, HubConfig, HubCore};
use crate::key::SecretKey;
use crate::lane::Lane;
use crate::lease::{Demand, Grant};
use crate::settings::Settings;
use crate::wire::frame::{self, Slide};
use crate::wire::report::{LaneReport, MAX_EQUATIONS, MAX_GROUPS, Report};
use crate::{ClassSettings, PerClass};

const MEMORY: u64 = 1 << 20;

fn settings(rate_bps: u64) -> Settings {
    Settings {
        rate: BitRate::from_bps(rate_bps),
        receive_memory: ByteSize::from_bytes(MEMORY),
        send_memory: ByteSize::from_bytes(MEMORY),
        code_memory: ByteSize::from_bytes(MEMORY),
        classes: PerClass::new(|_| ClassSettings {
            memory: ByteSize::from_bytes(MEMORY / 40),
            ..ClassSettings::default()
        }),
        datagram_memory: ByteSize::from_bytes(MEMORY / 8),
        max_flows: 8,
        flow_reserve: ByteSize::from_bytes(16 << 10),
        ..Settings::default()
    }
}

/// Both ends after a real handshake; flows are open, and bytes wait to be sent at both.
pub(super) struct Ends {
    pub(super) air: AirCore,
    hub: HubCore,
    addresses: [SocketAddr; 2],
    pub(super) now: Duration,
}

impl Ends {
    pub(super) fn connected(seed: u64, peers_rate_bps: u64, air_is_evil: bool) -> Self {
        let mut rng = Rng::seed_from_u64(seed);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let addresses = [([198, 18, 0, 1], 1).into(), ([198, 18, 0, 2], 2).into()];
        let rate = |evil| settings(if evil { peers_rate_bps } else { 1_890_000 });
        let config = AirConfig {
            secret: air.clone(),
            hub: hub.public(),
            address: addresses[1],
            settings: rate(air_is_evil),
            first_counter: 1,
        };
        let aircraft = vec![Aircraft {
            key: air.public(),
            settings: rate(!air_is_evil),
            highest_class: Class::BestEffort,
        }];
        let mut ends = Self {
            air: AirCore::new(config, [1; 32]),
            hub: HubCore::new(HubConfig { secret: hub, aircraft }, [2; 32]),
            addresses,
            now: Duration::ZERO,
        };
        ends.exchange();
        let target = "origin.example:80".parse().unwrap();
        for passenger in 0..3 {
            let first = [7; 5000];
            ends.air.open(&target, Class::BestEffort, passenger, &first, ends.now).unwrap();
        }
        ends.exchange();
        let (_, _, session) = ends.hub.sessions().next().unwrap();
        for flow in 0..3 {
            session.write(flow, &[8; 5000], ends.now);
        }
        ends
    }

    /// Sends everything that may be sent within a while, with immediate arrival.
    pub(super) fn exchange(&mut self) {
        for _ in 0..20 {
            let mut datagram = Vec::new();
            while self.air.transmit(self.now, &mut datagram).is_some() {
                self.hub.handle_datagram(&datagram, self.addresses[0], false, self.now);
                datagram.clear();
            }
            while self.hub.transmit(self.now, &mut datagram).is_some() {
                self.air.handle_datagram(&datagram, self.addresses[1], false, self.now);
                datagram.clear();
            }
            self.now += Duration::from_millis(10);
        }
    }
}

/// Seals `plaintext` as the session's own next packet.
fn seal(session: &mut Session, plaintext: &[u8], now: Duration) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    session.plaintext = plaintext.to_vec();
    session
        .seal(SentContents { asks: true, ..SentContents::default() }, None, now, &mut out)
        .map(|_| out)
}

/// Delivers a packet to the attacked end and handles all its consequences.
fn receive_hostile(
    core: &mut impl Core<Session = Session>,
    datagram: &[u8],
    from: SocketAddr,
    now: Duration,
) {
    core.handle_datagram(datagram, from, false, now);
    core.handle_timeout(now);
    let (mut out, mut sent) = (Vec::new(), 0);
    while core.transmit(now, &mut out).is_some() {
        sent += 1;
        assert!(sent < 1000, "no end of packets");
        out.clear();
    }
    while core.next_event().is_some() {}
    core.next_timeout(now);
    for id in 1..=core.sessions_begun() {
        let (held, coded) = core
            .session(id)
            .map_or((0, 0), |session| (session.held_bytes(), session.coded_bytes()));
        assert!(held <= 2 * MEMORY, "{held} bytes held");
        // Equations are additional to the contents, and their lanes are nearly idle here.
        assert!(coded <= 2 * MEMORY, "{coded} bytes kept for repairs");
    }
}

fn open_datagrams(protocol: u8, source: u16) -> OpenDatagrams {
    let target = "origin.example:53".parse().expect("it is one");
    OpenDatagrams { target, protocol, source, class: Class::BestEffort, passenger: 1 }
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let flow = || prop_oneof![0u64..10, Just(70_000), any::<u64>()];
    let offset = prop_oneof![0u64..20_000, 0u64..20, any::<u64>()];
    let code = || any::<u8>().prop_map(ResetCode::from_u8);
    let stream =
        (flow(), offset, any::<bool>(), 0usize..1200).prop_map(|(flow, offset, fin, len)| {
            let mut out = Vec::new();
            frame::put_stream_head(&mut out, flow, offset, fin, Some(len as u64));
            out.resize(out.len() + len, 9);
            out
        });
    let put = |put: fn(&mut Vec<u8>, u64, ResetCode)| {
        (flow(), code()).prop_map(move |(flow, code)| {
            let mut out = Vec::new();
            put(&mut out, flow, code);
            out
        })
    };
    let credit = (flow(), any::<u64>()).prop_map(|(flow, limit)| {
        let mut out = Vec::new();
        frame::put_credit(&mut out, flow, limit);
        out
    });
    let open = (flow(), any::<u32>(), any::<u64>()).prop_map(|(flow, passenger, credit)| {
        let (mut target, mut out) = (Vec::new(), Vec::new());
        let origin: bentpipe_flow::Target = "origin.example:80".parse().expect("it is one");
        origin.encode(&mut target).expect("the name is short");
        frame::put_open(&mut out, flow, Class::Assured, passenger, credit, &target);
        out
    });
    let open_datagrams =
        (flow(), any::<u8>(), any::<u16>()).prop_map(|(flow, protocol, source)| {
            let mut out = Vec::new();
            crate::wire::open::put(&open_datagrams(protocol, source), flow, &mut out)
                .expect("the name is short");
            out
        });
    let datagram = (flow(), 0usize..1200).prop_map(|(flow, len)| {
        let mut out = Vec::new();
        frame::put_datagram(&mut out, flow, &vec![9; len], false);
        out
    });
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        8 => stream,
        2 => open,
        2 => open_datagrams,
        6 => datagram,
        2 => credit,
        1 => put(frame::put_reset),
        1 => put(frame::put_stop),
        1 => noise,
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let number = || prop_oneof![0u64..20, any::<u64>()];
    let lane = (0usize..Lane::ALL.len(), number(), 0u64..10, prop::option::of((1u64..5, 1u64..5)))
        .prop_map(|(lane, largest, base, run)| {
            let runs = run.map(|(gap, length)| (base + gap, base + gap + length));
            let (runs, lane) = (runs.into_iter().collect(), Lane::ALL[lane]);
            let held = vec![(base + 1, largest % 600)];
            LaneReport { lane, largest, base, runs, truncated: base % 2 == 0, held }
        });
    let lanes = prop::collection::vec(lane, 0..=Lane::ALL.len());
    let largest = number().prop_map(|largest| largest.min(u64::MAX - 1));
    (largest, any::<u64>(), any::<prop::sample::Index>(), number(), number(), lanes).prop_map(
        |(largest, age_us, from, late_by, marked, mut lanes)| {
            // A lane ahead of its path is refused before anything else of it is checked.
            lanes.iter_mut().for_each(|lane| lane.largest = lane.largest.min(largest));
            let age = Duration::from_micros(age_us);
            let packets = vec![(from.index(largest.min(1 << 40) as usize + 1) as u64, largest + 1)];
            let arrived = Duration::from_micros(age_us.rotate_left(32));
            Report { path: 0, largest, age, arrived, late_by, marked, packets, lanes }
        },
    )
}

#[test]
fn a_report_of_unsent_packets_ends_the_session() {
    let honest = |session: &Session| Report {
        path: 0,
        largest: session.path.next_packet() - 1,
        age: Duration::ZERO,
        arrived: Duration::ZERO,
        late_by: 0,
        marked: 0,
        packets: vec![(0, session.path.next_packet())],
        lanes: Vec::new(),
    };
    let lie = |change: &dyn Fn(&mut Report, &Session)| {
        let mut ends = Ends::connected(7, 1_890_000, true);
        let (_, _, session) = ends.hub.sessions().next().expect("it is connected");
        let mut report = honest(session);
        change(&mut report, session);
        let mut plaintext = Vec::new();
        frame::put_report(&mut plaintext, &report);
        let (now, from) = (ends.now, ends.addresses[0]);
        let (_, evil) = ends.air.current().expect("it is connected");
        let datagram = seal(evil, &plaintext, now).expect("the key is fresh");
        ends.hub.handle_datagram(&datagram, from, false, now);
        let (_, _, session) = ends.hub.sessions().next().expect("its goodbye has not left");
        (session.closing, session.counters().violations)
    };
    assert_eq!(lie(&|_, _| ()), (false, 0), "the truth is believed");
    let packet = |report: &mut Report, _: &Session| {
        report.largest += 1;
        report.packets[0].1 += 1;
    };
    assert_eq!(lie(&packet), (true, 1), "a packet");
    assert_eq!(lie(&|report, _| report.marked = report.largest + 2), (true, 1), "a count");
    let of_lane = |report: &mut Report, base: u64, ahead: u64, held: Vec<(u64, u64)>| {
        let (lane, largest) = (Lane::Urgent, report.largest + ahead);
        let (runs, truncated) = (Vec::new(), false);
        report.lanes = vec![LaneReport { lane, largest, base, runs, truncated, held }];
    };
    let held = |equations: u64| vec![(0, equations); MAX_GROUPS];
    let truth = lie(&|report, _| of_lane(report, 0, 0, held(MAX_EQUATIONS)));
    assert_eq!(truth, (false, 0), "as much as a lane may say");
    let symbol = |report: &mut Report, session: &Session| {
        of_lane(report, session.send.next_number(Lane::Urgent) + 1, 0, Vec::new());
    };
    assert_eq!(lie(&symbol), (true, 1), "a symbol");
    let packet = lie(&|report, _| of_lane(report, 0, 1, Vec::new()));
    assert_eq!(packet, (true, 1), "a packet of a lane");
    let equations = lie(&|report, _| of_lane(report, 0, 0, held(MAX_EQUATIONS + 1)));
    assert_eq!(equations, (true, 1), "equations");
}

/// Returns a symbol far above those of the handshake, with the contents that `put` writes.
fn symbol(lane: Lane, put: &dyn Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_symbol_head(&mut out, lane, 100);
    put(&mut out);
    out
}

fn slide(lane: Lane, base: u64) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_slide(&mut out, Slide { lane, base });
    out
}

/// Returns how a session ends that receives `plaintexts` from a peer with the right key.
fn violations(air_is_evil: bool, plaintexts: &[Vec<u8>]) -> (bool, u64, u64) {
    let mut ends = Ends::connected(8, 1_890_000, air_is_evil);
    let (now, [air, hub]) = (ends.now, ends.addresses);
    for plaintext in plaintexts {
        if air_is_evil {
            let (_, evil) = ends.air.current().expect("it is connected");
            let datagram = seal(evil, plaintext, now).expect("the key is fresh");
            ends.hub.handle_datagram(&datagram, air, false, now);
        } else {
            let (_, _, evil) = ends.hub.sessions().next().expect("it is connected");
            let datagram = seal(evil, plaintext, now).expect("the key is fresh");
            ends.air.handle_datagram(&datagram, hub, false, now);
        }
    }
    let session = if air_is_evil {
        ends.hub.sessions().next().map(|(_, _, session)| session)
    } else {
        ends.air.current().map(|(_, session)| session)
    };
    let session = session.expect("its goodbye has not left");
    (session.closing, session.counters().violations, session.counters().datagrams_unknown)
}

#[test]
fn violations_with_datagrams_end_the_session() {
    type Put<'a> = &'a dyn Fn(&mut Vec<u8>);
    let open: Put<'_> =
        &|out| crate::wire::open::put(&open_datagrams(17, 5), 3, out).expect("the name is short");
    let datagram =
        |flow| move |out: &mut Vec<u8>| frame::put_datagram(out, flow, b"payload", false);
    let stream = |flow| {
        move |out: &mut Vec<u8>| {
            let mut target = Vec::new();
            open_datagrams(17, 5).target.encode(&mut target).expect("the name is short");
            frame::put_open(out, flow, Class::BestEffort, 1, 1000, &target);
        }
    };
    let both = |lane, puts: &[Put<'_>]| symbol(lane, &|out| puts.iter().for_each(|put| put(out)));
    let [urgent, lane] = [Lane::Urgent, Lane::Datagram];
    let no_name: Put<'_> = &|out| out.extend([0x0b, 3, 2, 1, 17, 5, 3, 0, 0, 53]);
    let evil: [(&str, Vec<Vec<u8>>); 15] = [
        ("a name of no bytes", vec![both(urgent, &[no_name])]),
        ("opened twice", vec![both(urgent, &[open, open])]),
        ("opened as two kinds", vec![both(urgent, &[open, &stream(3)])]),
        ("opened as two kinds, the other way round", vec![both(urgent, &[&stream(3), open])]),
        ("an early datagram of a stream", vec![both(urgent, &[&datagram(3), &stream(3)])]),
        ("a datagram in a stream", vec![both(lane, &[&datagram(0)])]),
        (
            "bytes in datagrams",
            vec![both(
                urgent,
                &[open, &|out| {
                    frame::put_stream_head(out, 3, 0, false, Some(0));
                }],
            )],
        ),
        ("credit for datagrams", vec![both(urgent, &[open, &|out| frame::put_credit(out, 3, 9)])]),
        (
            "datagrams stopped",
            vec![both(
                urgent,
                &[open, &|out| {
                    frame::put_stop(out, 3, ResetCode::Aborted);
                }],
            )],
        ),
        ("a flow far ahead", vec![both(lane, &[&datagram(70_000)])]),
        ("a slide of the urgent lane", vec![slide(Lane::Urgent, 1)]),
        ("a slide of bulk", vec![slide(Lane::Bulk, 1)]),
        ("a slide of no lane", vec![vec![0x08, 3, 1]]),
        ("a slide too far", vec![slide(lane, 7), slide(lane, 8 + (1 << 18))]),
        ("a slide to the end", vec![slide(lane, u64::MAX)]),
    ];
    for (what, plaintexts) in evil {
        assert_eq!(violations(true, &plaintexts), (true, 1, 0), "{what}");
    }
    assert_eq!(violations(false, &[both(urgent, &[open])]), (true, 1, 0), "only the air opens");
    assert_eq!(violations(false, &[both(lane, &[&datagram(9)])]), (true, 1, 0), "of no flow");

    let reset: Put<'_> = &|out| frame::put_reset(out, 3, ResetCode::Aborted);
    let honest: [(&str, Vec<Vec<u8>>, u64); 5] = [
        ("a slide, and one that was overtaken", vec![slide(lane, 1 << 18), slide(lane, 3)], 0),
        ("an early datagram", vec![both(lane, &[&datagram(3)]), both(urgent, &[open])], 0),
        ("one that nothing follows", vec![both(lane, &[&datagram(5)])], 0),
        ("late ones", vec![both(urgent, &[open, reset]), both(lane, &[&datagram(3)])], 1),
        ("an end before the beginning", vec![both(urgent, &[reset, open, &datagram(3)])], 1),
    ];
    for (what, plaintexts, unknown) in honest {
        assert_eq!(violations(true, &plaintexts), (false, 0, unknown), "{what}");
    }
}

/// Frames before the symbols; lane, distance ahead and number of symbols of a repair; frames.
type Sent = (Vec<u8>, Option<(Lane, u64, u16)>, Vec<u8>);

/// A packet with or without a report, and with a symbol or a repair, consecutive or not.
fn packet() -> impl Strategy<Value = Sent> {
    let uncoded = prop_oneof![
        4 => Just(Vec::new()),
        1 => report().prop_map(|report| {
            let mut out = Vec::new();
            frame::put_report(&mut out, &report);
            out
        }),
        1 => any::<[u64; 8]>().prop_map(|[sequence, answers, bps, ms, number, follows, waiting_bytes, useful]| {
            let (rate, lifetime) = (BitRate::from_bps(bps), Duration::from_millis(ms));
            let useful = BitRate::from_bps(useful);
            let mut out = Vec::new();
            frame::put_grant(&mut out, &Grant { sequence, answers, rate, lifetime });
            frame::put_demand(&mut out, &Demand { number, follows, waiting_bytes, useful });
            out
        }),
        1 => (0usize..9, prop_oneof![0u64..300, any::<u64>()]).prop_map(|(lane, base)| {
            let lane = *Lane::ALL.get(lane).unwrap_or(&Lane::Datagram);
            let mut out = Vec::new();
            frame::put_slide(&mut out, Slide { lane, base });
            out
        }),
        1 => any::<[u8; 8]>().prop_map(|challenge| {
            let mut out = Vec::new();
            frame::put_challenge(&mut out, &challenge);
            frame::put_response(&mut out, &challenge);
            out
        }),
        1 => Just(vec![frame::PADDING; 9]),
    ];
    let fragment = (0u64..4, 2usize..3000, 0usize..3000, 1usize..900);
    let fragment = fragment.prop_map(|(first, total, offset, len)| {
        let mut out = Vec::new();
        frame::put_fragment_head(&mut out, first, total, offset);
        // The padding may look like a symbol.
        out.resize(out.len() + len, 0x10);
        out
    });
    let ahead = prop_oneof![8 => Just(0u64), 2 => 0u64..100, 1 => any::<u64>()];
    let lane = (0usize..Lane::ALL.len()).prop_map(|lane| Lane::ALL[lane]);
    let count = prop_oneof![4 => Just(0u16), 1 => 1u16..=512];
    let symbol = prop::option::weighted(0.9, (lane, ahead, count));
    let whole = (uncoded, symbol, prop::collection::vec(frames(), 0..6).prop_map(|it| it.concat()));
    prop_oneof![8 => whole, 1 => fragment.prop_map(|out| (out, None, Vec::new()))]
}

proptest! {
    #[test]
    fn a_hostile_peer_cannot_panic_us_or_exceed_memory(
        seed: u64, air_is_evil: bool, rate_bps in prop_oneof![Just(u64::MAX), 1u64..1 << 40],
        packets in prop::collection::vec((packet(), 0u64..3000), 1..60),
    ) {
        let mut ends = Ends::connected(seed, rate_bps, air_is_evil);
        // Above the numbers that the handshake's flows have used.
        let mut next = [100u64; Lane::ALL.len()];
        for ((uncoded, symbol, frames), pause_ms) in packets {
            ends.now += Duration::from_millis(pause_ms);
            let (now, mut plaintext) = (ends.now, uncoded);
            if let Some((lane, ahead, count)) = symbol {
                let number = next[lane as usize].wrapping_add(ahead);
                match Span::new(number.saturating_sub(count.into()), count) {
                    None => {
                        next[lane as usize] += 1;
                        frame::put_symbol_head(&mut plaintext, lane, number);
                    }
                    Some(span) => frame::put_repair_head(&mut plaintext, lane, span),
                }
                plaintext.extend_from_slice(&frames);
            }
            if air_is_evil {
                let Some((_, session)) = ends.air.current() else { break };
                let Some(datagram) = seal(session, &plaintext, now) else { break };
                receive_hostile(&mut ends.hub, &datagram, ends.addresses[0], now);
            } else {
                let Some((_, _, session)) = ends.hub.sessions().next() else { break };
                let Some(datagram) = seal(session, &plaintext, now) else { break };
                receive_hostile(&mut ends.air, &datagram, ends.addresses[1], now);
            }
        }
    }

    #[test]
    fn datagrams_of_strangers_change_nothing(datagrams in prop::collection::vec((0u8..0x50, prop::collection::vec(any::<u8>(), 0..200)), 1..40)) {
        let mut ends = Ends::connected(1, 1_890_000, true);
        let stranger = ([203, 0, 113, 9], 9).into();
        for (first, mut rest) in datagrams {
            // Handshake messages are recognized by their lengths.
            let length = match first {
                1 => crate::wire::header::INIT_BYTES,
                2 => crate::wire::header::RESPONSE_BYTES,
                3 => crate::wire::header::COOKIE_BYTES,
                _ => rest.len() + 1,
            };
            rest.resize(length - 1, 0);
            let datagram = [vec![first], rest].concat();
            ends.hub.handle_datagram(&datagram, stranger, false, ends.now);
            ends.air.handle_datagram(&datagram, stranger, false, ends.now);
        }
        prop_assert_eq!(ends.hub.sessions().count(), 1);
        prop_assert!(ends.air.current().is_some());
    }
}
