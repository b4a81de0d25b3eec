//! Attacks, and their effects. One list for all of them; those that need the keys of a session, and
//! so the inside of the crate, are in `src/session/tests.rs`.
//!
//! | attack | test |
//! |---|---|
//! | a first message is replayed | [`a_replayed_first_message_is_met_with_silence`] |
//! | one that was never confirmed is replayed | [`a_message_that_was_never_confirmed_is_answered_rarely_and_in_vain`] |
//! | a counter is used up in the aircraft's name | [`a_counter_that_was_never_confirmed_does_not_keep_the_aircraft_out`] |
//! | packets are replayed and reordered | [`replayed_and_reordered_packets_change_nothing`] |
//! | the address is moved by a captured packet | [`a_captured_packet_moves_nothing_and_draws_little`]; a true move: [`a_new_address_is_followed_after_it_proved_itself`] |
//! | a flood of handshakes | [`a_flood_of_handshakes_costs_the_flooder_more`] |
//! | … by one with a true address, who repeats one message or makes new ones | [`a_flooder_with_a_cookie_gets_no_more_than_the_share_of_an_address`] |
//! | … from very many true addresses | [`a_flood_with_cookies_from_everywhere_does_not_shut_the_aircraft_out`] |
//! | an unknown key, garbage | [`garbage_and_strangers_are_met_with_silence`], [`an_unknown_key_is_met_with_silence`] |
//! | new keys under load | [`keys_are_replaced_while_bytes_flow`] |
//! | a key is kept in use by dropping handshakes | [`a_key_that_is_pinned_ends_within_its_hour`]; in an outage: [`a_session_outlives_its_keys_in_an_outage`] |
//! | a class beyond the key's grant | [`a_class_beyond_the_grant_is_lowered_to_it`] |
//! | a weight beyond the key's grant | none can be named; wishes beyond it: `hostile_wishes_are_clamped_by_the_share` inside |
//! | malformed and hostile frames | `an_evil_peer_is_closed_and_neither_panics_us_nor_fills_our_memory`, `datagrams_of_strangers_change_nothing` inside |
//! | flows opened twice or as two kinds, datagrams of no flow, slides of other lanes, too far or backwards | `what_no_peer_does_with_datagrams_ends_the_session` inside |
//! | a report of what was never sent | `a_report_of_what_was_never_sent_ends_the_session` inside |
//! | a passenger who never reads | [`a_flow_nobody_reads_holds_only_its_credit_and_blocks_no_other`] |
//! | 40 % loss | [`two_of_five_lost_stay_within_the_memory`] |

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::common::{HUB, Pair, bytes, fetch, read_all, write_all};
use bentpipe_link::secure::Caller;
use bentpipe_link::{
    AirConfig, AirCore, Class, Core, PublicKey, SecretKey, SessionId, Settings, Write,
};
use bentpipe_units::{BitRate, ByteSize};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::{ChaCha8Rng, ChaCha20Rng};

const ELSEWHERE: &str = "203.0.113.9:9";

/// All that the hub sends to `to` now, in packets and UDP bytes.
fn drawn(pair: &mut Pair, to: SocketAddr) -> (usize, usize) {
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

/// Somebody who knows the hub's public key, as everybody may.
fn caller(secret: &SecretKey, hub: PublicKey, first_counter: u64, seed: u8) -> AirCore {
    let config = AirConfig {
        secret: secret.clone(),
        hub,
        address: HUB.parse().unwrap(),
        settings: Settings::default(),
        first_counter,
    };
    AirCore::new(config, [seed; 32])
}

fn first_message(caller: &mut AirCore, now: Duration) -> Vec<u8> {
    let mut out = Vec::new();
    caller.transmit(now, &mut out).unwrap();
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
    // The first answer still counts, and later the recording harms no session.
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
fn a_message_that_was_never_confirmed_is_answered_rarely_and_in_vain() {
    let mut pair = Pair::new(38, 0.0);
    let (air, attacker) = (pair.air_address, ELSEWHERE.parse().unwrap());
    // The answers to six messages are lost, and all are recorded; the hub remembers four.
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
    // While they are repeated the aircraft comes as ever, and then they are worth nothing.
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
fn a_counter_that_was_never_confirmed_does_not_keep_the_aircraft_out() {
    let mut pair = Pair::new(39, 0.0);
    pair.connect();
    // As whoever has the hub's private key can make it, too: to the hub it is the aircraft's.
    let mut forger = caller(&pair.secrets.0, pair.secrets.1.public(), u64::MAX - 9, 1);
    let (from, now) = (ELSEWHERE.parse().unwrap(), pair.now);
    let message = first_message(&mut forger, now);
    pair.hub.handle_datagram(&message, from, false, now);
    assert_eq!(drawn(&mut pair, from).0, 1, "it is answered");
    fetch(&mut pair, 10_000);
    // A new process of the aircraft has a counter below that, and comes when its time is over.
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
    // By hand: what the hub sends within 50 ms comes shuffled, with copies of it and of older ones.
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
    // The attacker holds back a true packet and sends it from elsewhere; the hub has much to send.
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
        // Sent again it is a replay and earns nothing.
        pair.hub.handle_datagram(&captured, attacker, false, now);
    }
    assert!(bytes_drawn > 0, "the hub asks whether the aircraft has moved");
    assert!(bytes_drawn <= 3 * captured.len(), "{bytes_drawn} for {}", captured.len());
    let home = pair.air_address;
    assert_eq!(pair.hub.session(far.0).unwrap().address(), home);
}

#[test]
fn a_flood_of_handshakes_costs_the_flooder_more() {
    let mut pair = Pair::new(34, 0.0);
    pair.connect();
    let hub = pair.secrets.1.public();
    let mut rng = ChaCha8Rng::seed_from_u64(1034);
    let stranger = SecretKey::generate(&mut rng);
    let own = pair.secrets.0.clone();
    assert_ne!(stranger.public(), own.public());
    let before = pair.hub.curve_operations();
    let (mut asked, mut answered) = ((0, 0), (0, 0));
    // A second: 2,000 first messages with a right mac1, from a thousand addresses, half of them by
    // one who even has the aircraft's key.
    for index in 0..2000u32 {
        let secret = if index % 2 == 0 { &own } else { &stranger };
        let mut caller = caller(secret, hub, 1000 + u64::from(index), index as u8);
        pair.now += Duration::from_micros(400);
        let now = pair.now;
        let message = first_message(&mut caller, now);
        let from = SocketAddr::from(([203, 0, 113, (index % 250) as u8], 1 + (index / 250) as u16));
        pair.hub.handle_datagram(&message, from, false, now);
        asked = (asked.0 + 1, asked.1 + message.len());
        let (packets, sent) = drawn(&mut pair, from);
        answered = (answered.0 + packets, answered.1 + sent);
    }
    assert!(answered.0 > 0 && answered.0 <= asked.0 && answered.1 <= asked.1, "{answered:?}");
    // Two windows of a second may begin in it, with 50 handshakes of five operations each.
    let spent = pair.hub.curve_operations() - before;
    assert!(spent <= 2 * 50 * 5, "{spent} curve operations");
    // Under it the aircraft goes on, and comes back with a cookie.
    fetch(&mut pair, 10_000);
}

/// Somebody with a true address, who calls as fast as he likes and heeds the hub's cookies.
struct Flooder {
    caller: Caller,
    from: SocketAddr,
    rng: ChaCha20Rng,
}

impl Flooder {
    fn new(pair: &Pair, from: SocketAddr, seed: u64) -> Self {
        let (mut rng, mut keys) =
            (ChaCha20Rng::seed_from_u64(seed), ChaCha8Rng::seed_from_u64(seed));
        let (secret, hub) = (SecretKey::generate(&mut keys), pair.secrets.1.public());
        let caller = Caller::new(b"bentpipe link v1", secret, hub, 1, &mut rng);
        Self { caller, from, rng }
    }

    fn fresh(&mut self, now: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        self.caller.call((1_000_000, 0), Duration::ZERO, now, &mut self.rng, &mut out);
        out
    }

    /// Sends `message`, and takes the cookie that may be answered: `true` when there is one.
    fn send(&mut self, pair: &mut Pair, message: &[u8]) -> bool {
        let now = pair.now;
        pair.hub.handle_datagram(message, self.from, false, now);
        let (mut reply, mut answered) = (Vec::new(), false);
        while let Some(to) = pair.hub.transmit(now, &mut reply) {
            if to == self.from {
                answered = true;
                assert!(self.caller.take(&reply, now).is_none(), "a stranger is not let in");
            }
            reply.clear();
        }
        answered
    }
}

#[test]
fn a_flooder_with_a_cookie_gets_no_more_than_the_share_of_an_address() {
    let mut pair = Pair::new(40, 0.0);
    pair.connect();
    let mut flooder = Flooder::new(&pair, "203.0.113.7:7".parse().unwrap(), 1);
    // 2,500 new messages a second, for a second, as one who heeds cookies makes them. Two windows of
    // a second begin in it, in which 50 are read unasked, and of those with mac2 16 and 4 a second.
    let before = pair.hub.curve_operations();
    let (mut cookies, mut last) = (0, Vec::new());
    for _ in 0..2500 {
        pair.now += Duration::from_micros(400);
        last = flooder.fresh(pair.now);
        cookies += u32::from(flooder.send(&mut pair, &last));
    }
    let spent = pair.hub.curve_operations() - before;
    assert!(cookies > 0, "the flood was asked for cookies");
    assert!(spent <= 2 * (2 * 50 + 16 + 4), "{spent} curve operations");
    // The last message, which carries mac2, again and again: it is read once.
    pair.now += Duration::from_secs(5);
    let before = pair.hub.curve_operations();
    for _ in 0..5000 {
        pair.now += Duration::from_micros(400);
        flooder.send(&mut pair, &last);
    }
    let spent = pair.hub.curve_operations() - before;
    assert!(spent <= 2, "{spent} curve operations for one message");
    fetch(&mut pair, 10_000);
}

#[test]
fn a_flood_with_cookies_from_everywhere_does_not_shut_the_aircraft_out() {
    let mut pair = Pair::new(41, 0.0);
    pair.connect();
    let network = |index: u32| SocketAddr::from((Ipv6Addr::from(u128::from(index) << 64), 9));
    let mut flooders: Vec<_> =
        (1..=400).map(|index| Flooder::new(&pair, network(index), index.into())).collect();
    // The aircraft's process ends, and while it comes back each of 400 networks calls twice a second.
    pair.restart_air();
    let (before, began) = (pair.hub.curve_operations(), pair.now);
    let mut round = 0;
    let mut back = None;
    while pair.now < began + Duration::from_secs(6) {
        pair.run_for(Duration::from_micros(1250), |_| {});
        let flooder = &mut flooders[round % 400];
        let message = flooder.fresh(pair.now);
        flooder.send(&mut pair, &message);
        round += 1;
        if back.is_none() && pair.air.current().is_some() {
            back = Some(pair.now - began);
        }
    }
    let spent = pair.hub.curve_operations() - before;
    let most = 1000 + 1000 * (pair.now - began).as_secs() + 1000;
    assert!(spent <= most, "{spent} curve operations in {:?}", pair.now - began);
    assert!(back.is_some_and(|back| back < Duration::from_secs(4)), "back after {back:?}");
    fetch(&mut pair, 10_000);
}

#[test]
fn an_unknown_key_is_met_with_silence() {
    let mut pair = Pair::new(35, 0.0);
    pair.connect();
    let mut rng = ChaCha8Rng::seed_from_u64(1035);
    let stranger = SecretKey::generate(&mut rng);
    assert_ne!(stranger.public(), pair.secrets.0.public());
    let mut caller = caller(&stranger, pair.secrets.1.public(), 1, 1);
    let (from, now) = (ELSEWHERE.parse().unwrap(), pair.now);
    let message = first_message(&mut caller, now);
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
    let (mut sent, mut got, mut most) = ([0; 8], vec![Vec::new(); 8], (0, 0));
    pair.run_until("every byte", Duration::from_secs(300), |pair| {
        for (far, sent) in fars.iter().zip(&mut sent) {
            write_all(&mut pair.hub, *far, pair.now, &body, sent);
        }
        pair.flush();
        // The air receives all but everything, and the hub sends it.
        for session in [pair.air.session(flows[0].0), pair.hub.session(fars[0].0)] {
            let session = session.unwrap();
            let (held, coded) = (session.held_bytes(), session.coded_bytes());
            most = (most.0.max(held), most.1.max(coded));
            assert!(held <= memory.bytes(), "{held} bytes held");
            assert!(coded <= CODE_MEMORY, "{coded} bytes kept for repairs");
        }
        let (air, now) = (&mut pair.air, pair.now);
        let read = |(flow, got): (&(u64, u64), &mut Vec<u8>)| read_all(air, *flow, now, got);
        flows.iter().zip(&mut got).map(read).fold(true, |a, b| a & b)
    });
    assert!(got.iter().all(|got| *got == body));
    assert!(
        most.0 > memory.bytes() / 8 && most.1 > CODE_MEMORY / 8,
        "they were put to use: {most:?}"
    );
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
    // Others are served as if it were not there: to within what a report that is due anyhow takes.
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

/// Returns `true` for the messages that make new keys: somebody who drops them keeps one key in use.
fn is_handshake(datagram: &[u8]) -> bool {
    matches!(datagram[0], 0x01 | 0x02)
}

fn nothing(_: &[u8]) -> bool {
    false
}

/// Keys are erased at this age (`docs/protocol.md`, section 4.4).
const REJECT_AFTER: Duration = Duration::from_secs(3600);

/// A flow by which the hub writes a few bytes every ten seconds.
struct Trickle {
    flow: (SessionId, u64),
    far: (SessionId, u64),
    written: usize,
    got: Vec<u8>,
}

impl Trickle {
    fn new(pair: &mut Pair) -> Self {
        Self { flow: pair.open(b""), far: pair.accept(), written: 0, got: Vec::new() }
    }

    fn run(&mut self, pair: &mut Pair, span: Duration) {
        let mut next = pair.now;
        pair.run_for(span, |pair| {
            let now = pair.now;
            read_all(&mut pair.air, self.flow, now, &mut self.got);
            if now >= next {
                next = now + Duration::from_secs(10);
                let session = pair.hub.session(self.far.0).expect("the session goes on");
                match session.write(self.far.1, b"tick", now) {
                    Write::Taken(bytes) => self.written += bytes,
                    other => panic!("{other:?}"),
                }
            }
        });
    }

    /// Waits until all that was written has come.
    fn catch_up(&mut self, pair: &mut Pair) {
        pair.run_until("the rest", Duration::from_secs(30), |pair| {
            read_all(&mut pair.air, self.flow, pair.now, &mut self.got);
            self.got.len() == self.written
        });
        assert!(self.got.chunks(4).all(|tick| tick == b"tick"));
    }
}

#[test]
fn a_key_that_is_pinned_ends_within_its_hour() {
    let mut pair = Pair::new(42, 0.0);
    pair.connect();
    let mut trickle = Trickle::new(&mut pair);
    (pair.up.drops, pair.down.drops) = (is_handshake, is_handshake);
    trickle.run(&mut pair, REJECT_AFTER / 2 + Duration::from_secs(60));
    let now = pair.now;
    for session in [pair.air.session(trickle.flow.0), pair.hub.session(trickle.far.0)] {
        let session = session.expect("it goes on");
        assert!(session.has_overdue_keys(now) && !session.is_quiet());
    }
    trickle.run(&mut pair, REJECT_AFTER / 2 + Duration::from_secs(60));
    for (at, pipe) in [("the air", &pair.up), ("the hub", &pair.down)] {
        assert_eq!(pipe.keys.len(), 1, "{at} has no other keys");
        for (first, last) in pipe.keys.values() {
            let used = *last - *first;
            assert!(used <= REJECT_AFTER, "{at} used a key for {used:?}");
            assert!(used > REJECT_AFTER / 2, "{at} stopped after {used:?}");
        }
    }
    assert!(pair.air.current().is_some_and(|(_, session)| session.is_quiet()));
    // When the handshakes pass again, the flow goes on, and nothing of it is lost.
    (pair.up.drops, pair.down.drops) = (nothing, nothing);
    trickle.catch_up(&mut pair);
    assert_eq!((pair.up.keys.len(), pair.down.keys.len()), (2, 2));
    let now = pair.now;
    assert!(pair.air.current().is_some_and(|(_, session)| !session.has_overdue_keys(now)));
}

#[test]
fn a_session_outlives_its_keys_in_an_outage() {
    let mut pair = Pair::new(43, 0.0);
    pair.connect();
    let mut trickle = Trickle::new(&mut pair);
    (pair.up.drops, pair.down.drops) = (is_handshake, is_handshake);
    trickle.run(&mut pair, REJECT_AFTER - Duration::from_secs(120));
    (pair.up.cut, pair.down.cut) = (true, true);
    trickle.run(&mut pair, Duration::from_secs(480));
    (pair.up.drops, pair.down.drops) = (nothing, nothing);
    (pair.up.cut, pair.down.cut) = (false, false);
    trickle.catch_up(&mut pair);
    assert_eq!((pair.hub.sessions_begun(), pair.air.sessions_begun()), (1, 1));
}
