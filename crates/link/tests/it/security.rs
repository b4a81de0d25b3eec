//! Attacks and their effects, in one list. Tests that need the keys of a session, and so the inside
//! of the crate, are in `src/session/tests.rs`.
//!
//! | attack | test |
//! |---|---|
//! | a first message is replayed | [`a_replayed_first_message_is_met_with_silence`] |
//! | an unconfirmed first message is replayed | [`an_unconfirmed_message_is_answered_rarely_and_without_effect`] |
//! | a counter is used up in the aircraft's name | [`an_unconfirmed_counter_does_not_lock_the_aircraft_out`] |
//! | packets are replayed and reordered | [`replayed_and_reordered_packets_change_nothing`] |
//! | the address is moved by a captured packet | [`a_captured_packet_moves_nothing_and_draws_little`]; a genuine move: [`a_new_address_is_followed_after_it_proved_itself`] |
//! | a flood of handshakes | `a_flood_of_handshakes_costs_the_flooder_more` in `floods.rs` |
//! | … from one reachable address, with one message repeated or with new ones | `a_flooder_with_a_cookie_gets_no_more_than_the_share_of_an_address` in `floods.rs` |
//! | … from very many reachable addresses | `a_flood_with_cookies_from_everywhere_does_not_lock_the_aircraft_out` in `floods.rs` |
//! | an unknown key, garbage | [`garbage_and_strangers_are_met_with_silence`], [`an_unknown_key_is_met_with_silence`] |
//! | new keys under load | [`keys_are_replaced_while_bytes_flow`] |
//! | a key is kept in use by dropping handshakes | `a_pinned_key_ends_within_its_hour`; in an outage: `a_session_outlives_its_keys_in_an_outage`, both in `keys.rs` |
//! | a class beyond the key's grant | [`a_class_beyond_the_grant_is_lowered_to_it`] |
//! | a weight beyond the key's grant | no message names a weight; demands beyond it: `hostile_demands_are_limited_by_the_share` inside |
//! | malformed and hostile frames | `a_hostile_peer_cannot_panic_us_or_exceed_memory`, `datagrams_of_strangers_change_nothing` inside |
//! | flows opened twice or as two kinds, datagrams of no flow, slides of other lanes, too far or backwards | `violations_with_datagrams_end_the_session` inside |
//! | a report of packets that were never sent | `a_report_of_unsent_packets_ends_the_session` inside |
//! | a passenger who never reads | [`a_flow_nobody_reads_holds_only_its_credit_and_blocks_no_other`] |
//! | 40 % loss | [`two_of_five_lost_stay_within_the_memory`] |

use std::net::SocketAddr;
use std::time::Duration;

use super::common::{HUB, Pair, bytes, fetch, read_all, write_all};
use bentpipe_link::{AirConfig, AirCore, Class, Core, PublicKey, SecretKey, Settings};
use bentpipe_units::{BitRate, ByteSize};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

const ELSEWHERE: &str = "203.0.113.9:9";

/// Returns what the hub sends to `to` now, in packets and UDP bytes.
pub fn drawn(pair: &mut Pair, to: SocketAddr) -> (usize, usize) {
    let (mut packets, mut sent, mut out) = (0, 0, Vec::new());
    while let Some(address) = pair.hub.transmit(pair.now, &mut out) {
        if address == to {
            packets += 1;
            sent += out.len();
        }
        out.clear();
    }
    (packets, sent)
}

/// An attacker who knows the hub's public key, as anybody may.
pub fn initiator(secret: &SecretKey, hub: PublicKey, first_counter: u64, seed: u8) -> AirCore {
    let config = AirConfig {
        secret: secret.clone(),
        hub,
        address: HUB.parse().unwrap(),
        settings: Settings::default(),
        first_counter,
    };
    AirCore::new(config, [seed; 32])
}

pub fn first_message(initiator: &mut AirCore, now: Duration) -> Vec<u8> {
    let mut out = Vec::new();
    initiator.transmit(now, &mut out).unwrap();
    out
}

#[test]
fn a_replayed_first_message_is_met_with_silence() {
    let mut pair = Pair::new(31, 0.0);
    let (air, now) = (pair.air_address, pair.now);
    let message = first_message(&mut pair.air, now);
    pair.hub.handle_datagram(&message, air, false, now);
    let mut answer = Vec::new();
    assert_eq!(pair.hub.transmit(now, &mut answer), Some(air));
    let spent = pair.hub.curve_operations();
    for from in [air, ELSEWHERE.parse().unwrap()] {
        pair.hub.handle_datagram(&message, from, false, now);
        assert_eq!(drawn(&mut pair, from), (0, 0), "a recorded message was answered");
    }
    assert_eq!(pair.hub.curve_operations(), spent, "it was read once");
    // The first answer still counts, and the recording harms no later session.
    pair.air.handle_datagram(&answer, HUB.parse().unwrap(), false, now);
    pair.connect();
    fetch(&mut pair, 10_000);
    pair.run_for(Duration::from_secs(5), |_| {});
    pair.flush();
    let now = pair.now;
    pair.hub.handle_datagram(&message, air, false, now);
    assert_eq!(drawn(&mut pair, air), (0, 0));
    fetch(&mut pair, 10_000);
    assert_eq!(pair.hub.sessions().map(|(id, ..)| id).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_unconfirmed_message_is_answered_rarely_and_without_effect() {
    let mut pair = Pair::new(38, 0.0);
    let (air, attacker) = (pair.air_address, ELSEWHERE.parse().unwrap());
    // The answers to six messages are lost, and all six are recorded; the hub remembers four.
    let recorded: Vec<_> = (0..6)
        .map(|_| {
            let message = first_message(&mut pair.air, pair.now);
            pair.hub.handle_datagram(&message, air, false, pair.now);
            pair.now += Duration::from_secs(10);
            message
        })
        .collect();
    drawn(&mut pair, air);
    let (mut answers, seconds) = (0, 200);
    for _ in 0..seconds {
        pair.now += Duration::from_secs(1);
        for message in &recorded {
            pair.hub.handle_datagram(message, attacker, false, pair.now);
        }
        answers += drawn(&mut pair, attacker).0;
    }
    assert!(answers > 0 && answers <= 6 * seconds / 20, "{answers} answers in {seconds} s");
    assert_eq!(pair.hub.sessions().count(), 0);
    // During the replays the aircraft connects as usual; after that the recordings are worthless.
    let mut next = pair.now;
    pair.run_until("the session", Duration::from_secs(20), |pair| {
        if pair.now >= next {
            next += Duration::from_millis(100);
            let now = pair.now;
            recorded.iter().for_each(|it| pair.hub.handle_datagram(it, attacker, false, now));
        }
        pair.hub.sessions().count() == 1
    });
    drawn(&mut pair, attacker);
    pair.run_for(Duration::from_secs(60), |_| {});
    recorded.iter().for_each(|it| pair.hub.handle_datagram(it, attacker, false, pair.now));
    assert_eq!(drawn(&mut pair, attacker), (0, 0), "a later one took effect");
}

#[test]
fn an_unconfirmed_counter_does_not_lock_the_aircraft_out() {
    let mut pair = Pair::new(39, 0.0);
    pair.connect();
    // A message that an attacker with the hub's private key could also make: to the hub it is the
    // aircraft's.
    let mut forger = initiator(&pair.secrets.0, pair.secrets.1.public(), u64::MAX - 9, 1);
    let (from, now) = (ELSEWHERE.parse().unwrap(), pair.now);
    let message = first_message(&mut forger, now);
    pair.hub.handle_datagram(&message, from, false, now);
    assert_eq!(drawn(&mut pair, from).0, 1, "it is answered");
    fetch(&mut pair, 10_000);
    // A new process of the aircraft has a lower counter, and connects when the attacker's time is
    // over.
    pair.restart_air();
    let (began, air) = (pair.now, &mut pair.air);
    assert!(air.current().is_none());
    pair.connect();
    assert!(pair.now - began < Duration::from_secs(20 + 10), "{:?}", pair.now - began);
    fetch(&mut pair, 10_000);
}

#[test]
fn replayed_and_reordered_packets_change_nothing() {
    let mut rng = ChaCha8Rng::seed_from_u64(32);
    let mut pair = Pair::new(32, 0.0);
    pair.connect();
    let (flow, body) = (pair.open(b""), bytes(300_000));
    let far = pair.accept();
    let (from, hub_address) = (pair.air_address, HUB.parse().unwrap());
    let (mut sent, mut got, mut old, mut distinct) = (0, Vec::new(), Vec::new(), 0u64);
    let before = pair.air.current().unwrap().1.counters().packets_received;
    // Shuffled by hand: the hub's packets of 50 ms, with copies of them and of older ones.
    while got.len() < body.len() {
        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
        let mut batch = Vec::new();
        for _ in 0..50 {
            pair.now += Duration::from_millis(1);
            let now = pair.now;
            pair.hub.handle_timeout(now);
            let mut out = Vec::new();
            while pair.hub.transmit(now, &mut out).is_some() {
                batch.push(std::mem::take(&mut out));
            }
        }
        distinct += batch.len() as u64;
        old.extend(batch.clone());
        batch.extend(batch.clone());
        batch.extend(old.iter().rev().take(40).cloned());
        batch.shuffle(&mut rng);
        let now = pair.now;
        for datagram in &batch {
            pair.air.handle_datagram(datagram, hub_address, false, now);
        }
        read_all(&mut pair.air, flow, now, &mut got);
        pair.air.handle_timeout(now);
        let mut out = Vec::new();
        while pair.air.transmit(now, &mut out).is_some() {
            pair.hub.handle_datagram(&out, from, false, now);
            pair.hub.handle_datagram(&out, from, false, now);
            out.clear();
        }
        assert!(now < Duration::from_secs(60), "{} of {} bytes", got.len(), body.len());
    }
    assert!(got == body);
    let counters = pair.air.current().unwrap().1.counters();
    assert_eq!(counters.packets_received - before, distinct, "each counts once");
    assert_eq!(counters.violations, 0);
}

#[test]
fn a_captured_packet_moves_nothing_and_draws_little() {
    let mut pair = Pair::new(33, 0.0);
    pair.connect();
    fetch(&mut pair, 10_000);
    let far = {
        pair.open(b"");
        pair.accept()
    };
    pair.run_for(Duration::from_secs(3), |_| {});
    // The attacker holds back a genuine packet and sends it from elsewhere; the hub has much to
    // send.
    let (attacker, now) = (ELSEWHERE.parse().unwrap(), pair.now);
    let _ = pair.open(b"captured");
    let mut captured = Vec::new();
    pair.air.transmit(now, &mut captured).unwrap();
    pair.hub.handle_datagram(&captured, attacker, false, now);
    let (body, mut at, mut bytes_drawn) = (bytes(500_000), 0, 0);
    for _ in 0..20_000 {
        pair.now += Duration::from_millis(1);
        let now = pair.now;
        write_all(&mut pair.hub, far, now, &body, &mut at);
        pair.hub.handle_timeout(now);
        bytes_drawn += drawn(&mut pair, attacker).1;
        // Sent again it is a replay and draws nothing.
        pair.hub.handle_datagram(&captured, attacker, false, now);
    }
    assert!(bytes_drawn > 0, "the hub asks whether the aircraft has moved");
    assert!(bytes_drawn <= 3 * captured.len(), "{bytes_drawn} for {}", captured.len());
    let home = pair.air_address;
    assert_eq!(pair.hub.session(far.0).unwrap().address(), home);
}

#[test]
fn an_unknown_key_is_met_with_silence() {
    let mut pair = Pair::new(35, 0.0);
    pair.connect();
    let mut rng = ChaCha8Rng::seed_from_u64(1035);
    let stranger = SecretKey::generate(&mut rng);
    assert_ne!(stranger.public(), pair.secrets.0.public());
    let mut initiator = initiator(&stranger, pair.secrets.1.public(), 1, 1);
    let (from, now) = (ELSEWHERE.parse().unwrap(), pair.now);
    let message = first_message(&mut initiator, now);
    pair.hub.handle_datagram(&message, from, false, now);
    assert_eq!(drawn(&mut pair, from), (0, 0), "a stranger with a right mac1 was answered");
}

#[test]
fn a_class_beyond_the_grant_is_lowered_to_it() {
    let mut pair = Pair::new(36, 0.0);
    pair.connect();
    let target = "origin.example:80".parse().unwrap();
    for class in Class::ALL {
        pair.air.open(&target, class, 1, b"", pair.now).unwrap();
    }
    pair.run_until("all openings", Duration::from_secs(9), |pair| {
        pair.opened.len() == Class::ALL.len()
    });
    // Pairs grant best effort.
    let [best, lower] = [Class::BestEffort, Class::LowerEffort];
    assert_eq!(pair.classes, [best, best, best, best, lower]);
}

const CODE_MEMORY: u64 = 2 << 20;

#[test]
fn two_of_five_lost_stay_within_the_memory() {
    let memory = ByteSize::from_bytes(2 << 20);
    let settings = Settings {
        rate: BitRate::from_bps(4_000_000),
        receive_memory: memory,
        send_memory: memory,
        code_memory: ByteSize::from_bytes(CODE_MEMORY),
        max_flows: 16,
        ..Settings::default()
    };
    settings.check().unwrap();
    let mut pair = Pair::with(37, 0.4, settings);
    pair.connect();
    let flows: Vec<_> = (0..8).map(|_| pair.open(b"")).collect();
    pair.run_until("all openings", Duration::from_secs(60), |pair| pair.opened.len() == 8);
    let (fars, body) = (pair.opened.clone(), bytes(400_000));
    let (mut sent, mut got, mut max) = ([0; 8], vec![Vec::new(); 8], (0, 0));
    pair.run_until("every byte", Duration::from_secs(300), |pair| {
        for (far, sent) in fars.iter().zip(&mut sent) {
            write_all(&mut pair.hub, *far, pair.now, &body, sent);
        }
        pair.flush();
        // The air receives nearly everything, and the hub sends it.
        for session in [pair.air.session(flows[0].0), pair.hub.session(fars[0].0)] {
            let session = session.unwrap();
            let (held, coded) = (session.held_bytes(), session.coded_bytes());
            max = (max.0.max(held), max.1.max(coded));
            assert!(held <= memory.bytes(), "{held} bytes held");
            assert!(coded <= CODE_MEMORY, "{coded} bytes kept for repairs");
        }
        let (air, now) = (&mut pair.air, pair.now);
        let read = |(flow, got): (&(u64, u64), &mut Vec<u8>)| read_all(air, *flow, now, got);
        flows.iter().zip(&mut got).map(read).fold(true, |a, b| a & b)
    });
    assert!(got.iter().all(|got| *got == body));
    assert!(max.0 > memory.bytes() / 8 && max.1 > CODE_MEMORY / 8, "they were put to use: {max:?}");
}

#[test]
fn garbage_and_strangers_are_met_with_silence() {
    let mut pair = Pair::new(14, 0.0);
    pair.connect();
    let stranger = Pair::new(99, 0.0);
    let (mut other, mut datagram) = (stranger.air, Vec::new());
    other.transmit(pair.now, &mut datagram);
    let from = "203.0.113.9:9".parse().unwrap();
    for len in [0, 1, 3, 5, 12, 27, 40, 1400] {
        let garbage: Vec<u8> = bytes(len);
        for first in [0, 1, 2, 3, 0x40, 0x4f, 0xff] {
            let mut garbage = garbage.clone();
            if let Some(byte) = garbage.first_mut() {
                *byte = first
            }
            pair.hub.handle_datagram(&garbage, from, false, pair.now);
            pair.air.handle_datagram(&garbage, from, false, pair.now);
        }
    }
    pair.hub.handle_datagram(&datagram, from, false, pair.now);
    let now = pair.now;
    let mut out = Vec::new();
    while let Some(to) = pair.hub.transmit(now, &mut out) {
        assert_ne!(to, from, "a stranger was answered");
    }
    fetch(&mut pair, 10_000);
}

#[test]
fn keys_are_replaced_while_bytes_flow() {
    let rate = BitRate::from_bps(1_890_000);
    let key_lifetime = Duration::from_secs(5);
    let mut pair = Pair::with(11, 0.06, Settings { rate, key_lifetime, ..Settings::default() });
    pair.connect();
    let took = fetch(&mut pair, 8_000_000);
    assert!(took > Duration::from_secs(30), "several lifetimes passed: {took:?}");
    assert_eq!(pair.hub.sessions().count(), 1);
}

#[test]
fn a_flow_nobody_reads_holds_only_its_credit_and_blocks_no_other() {
    let mut pair = Pair::new(8, 0.06);
    pair.connect();
    let unread = pair.open(b"");
    let far = pair.accept();
    let (body, mut sent) = (bytes(4_000_000), 0);
    pair.run_for(Duration::from_secs(60), |pair| {
        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
    });
    let held = pair.air.session(unread.0).unwrap().held_bytes();
    let bdp = BitRate::from_bps(1_890_000).bytes_in(Duration::from_millis(900));
    assert!(held > 100_000 && held < 9 * bdp, "{held} bytes held");
    // Others are served as if it were not there, to within the time of a report that is due anyway.
    let alone = |loss: f64| {
        let mut pair = Pair::new(8, loss);
        pair.connect();
        pair.run_for(Duration::from_secs(60), |_| {});
        [1_000, 10_000, 100_000, 1_000_000].map(|len| fetch(&mut pair, len))
    };
    let beside = |loss: f64| {
        let mut pair = Pair::new(8, loss);
        pair.connect();
        pair.open(b"");
        let (far, mut sent) = (pair.accept(), 0);
        pair.run_for(Duration::from_secs(60), |pair| {
            write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
        });
        [1_000, 10_000, 100_000, 1_000_000].map(|len| fetch(&mut pair, len))
    };
    let (alone, beside) = (alone(0.0), beside(0.0));
    let packet = BitRate::from_bps(1_890_000).time_for(1500);
    for (alone, beside) in alone.into_iter().zip(beside) {
        assert!(beside <= alone + packet, "{beside:?} beside it, {alone:?} alone");
    }
}

#[test]
fn a_new_address_is_followed_after_it_proved_itself() {
    let mut pair = Pair::new(10, 0.06);
    pair.connect();
    fetch(&mut pair, 10_000);
    pair.air_address = "198.18.0.77:1234".parse().unwrap();
    let flow = pair.open(b"");
    let far = pair.accept();
    assert_eq!(pair.hub.session(far.0).unwrap().address(), "198.18.0.1:40000".parse().unwrap());
    let (body, mut sent, mut got) = (bytes(50_000), 0, Vec::new());
    pair.run_until("the answer", Duration::from_secs(60), |pair| {
        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
        pair.flush();
        read_all(&mut pair.air, flow, pair.now, &mut got)
    });
    assert_eq!(pair.hub.session(far.0).unwrap().address(), pair.air_address);
}
