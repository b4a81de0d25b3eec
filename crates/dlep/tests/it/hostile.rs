//! Hostile input causes no panic and exceeds no bound.

use std::time::Duration;

use bentpipe_dlep::{
    MacAddress, Modem, ModemDiscovery, ModemSettings, Rates, Router, RouterDiscovery, RouterEvent,
    RouterSettings, TTL,
};
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: Duration = Duration::from_secs(1);

fn modem() -> Modem {
    let rates = Rates { transmit_bps: 4, receive_bps: 4, latency: Duration::ZERO };
    let heartbeat = Duration::from_secs(1);
    Modem::new(&ModemSettings { description: "m".into(), heartbeat, rates }, NOW)
}

/// Bytes that modem and router send in a session with updates and a destination.
fn transcript() -> (Vec<u8>, Vec<u8>) {
    let (mut router, mut modem) = (Router::new(&RouterSettings::default(), NOW), modem());
    let (mut from_modem, mut from_router) = (Vec::new(), Vec::new());
    for round in 0..8_u64 {
        let out = router.take_output();
        from_router.extend_from_slice(&out);
        modem.receive(NOW, &out);
        let rates = Rates { transmit_bps: round, receive_bps: 5, latency: Duration::ZERO };
        modem.set_session(NOW, rates);
        let mac = MacAddress::new_eui48([2; 6]);
        if round == 6 {
            modem.drop_destination(NOW, mac);
        } else {
            modem.set_destination(NOW, mac, rates);
        }
        let back = modem.take_output();
        from_modem.extend_from_slice(&back);
        router.receive(NOW, &back);
    }
    (from_modem, from_router)
}

fn events(router: &mut Router) -> Vec<RouterEvent> {
    std::iter::from_fn(|| router.poll_event()).collect()
}

/// Transcript with some bytes changed.
fn damaged(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = whole.len();
    vec((0..length, any::<u8>()), 0..6).prop_map(move |changes| {
        let mut bytes = whole.clone();
        for (index, value) in changes {
            bytes[index] = value;
        }
        bytes
    })
}

/// Messages of known types with items of known types, in any combination.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let item = (0_u16..23, vec(any::<u8>(), 0..20)).prop_map(|(kind, value)| tlv(kind, &value));
    let message = (0_u16..18, vec(item, 0..6)).prop_map(|(kind, items)| tlv(kind, &items.concat()));
    vec(message, 0..8).prop_map(|messages| messages.concat())
}

fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    [&kind.to_be_bytes(), &length.to_be_bytes(), value].concat()
}

/// Runs a router and a modem on `bytes` and advances time. Each must reach its end.
fn survive(bytes: &[u8]) {
    let mut router = Router::new(&RouterSettings::default(), NOW);
    for part in bytes.chunks(100) {
        router.receive(NOW, part);
        assert_short(router.take_output().len());
        assert!(events(&mut router).len() < 8 * 100);
    }
    router.advance(NOW * 100);
    router.disconnected(NOW * 100);
    assert!(router.is_closed() && router.next_due().is_none());

    let mut modem = modem();
    modem.receive(NOW, bytes);
    modem.advance(NOW * 100);
    modem.disconnected(NOW * 100);
    assert!(modem.is_closed() && modem.next_due().is_none());
}

/// Checks that an answer is at most five times its input: 100 bytes and the tail of a message.
fn assert_short(answer_bytes: usize) {
    assert!(answer_bytes < 1_000, "{answer_bytes} bytes in answer to 100");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..600)) {
        survive(&bytes);
    }

    #[test]
    fn any_messages_before_the_session(bytes in messages()) {
        survive(&bytes);
    }

    #[test]
    fn any_messages_in_a_session(bytes in messages()) {
        let (from_modem, from_router) = transcript();
        survive(&[&from_modem, &bytes[..]].concat());
        survive(&[&from_router, &bytes[..]].concat());
    }

    #[test]
    fn a_damaged_transcript(bytes in damaged(transcript().0), back in damaged(transcript().1)) {
        survive(&bytes);
        survive(&back);
    }

    #[test]
    fn any_signal(bytes in vec(any::<u8>(), 0..80), items in messages()) {
        let from = "192.0.2.1:854".parse().unwrap();
        for kind in 0..4 {
            let body = tlv(kind, &items[..items.len().min(1000)]);
            for signal in [&bytes[..], &[b"DLEP", &body[..]].concat()] {
                RouterDiscovery::new("x", NOW).receive(NOW, signal, TTL, from);
                ModemDiscovery::new("x", from).receive(signal, TTL, from);
            }
        }
    }

    #[test]
    fn splitting_the_stream_changes_nothing(cut in 1_usize..200) {
        let (from_modem, _) = transcript();
        let run = |size: usize| {
            let mut router = Router::new(&RouterSettings::default(), NOW);
            let mut out = Vec::new();
            let mut last = None;
            for part in from_modem.chunks(size) {
                router.receive(NOW, part);
                out.extend_from_slice(&router.take_output());
                last = events(&mut router).pop().or(last);
            }
            (out, last)
        };
        prop_assert_eq!(run(cut), run(from_modem.len()));
        prop_assert!(matches!(run(cut).1, Some(RouterEvent::Rates(Some(_)))));
    }
}
