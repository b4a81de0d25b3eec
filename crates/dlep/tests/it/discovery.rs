//! Both sides of discovery, in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_dlep::{DISCOVERY_INTERVAL, ModemDiscovery, RouterDiscovery, TTL};

const ROUTER: &str = "192.0.2.1:40000";
const MODEM: &str = "192.0.2.9:854";

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

#[test]
fn a_modem_is_found() {
    let mut router = RouterDiscovery::new("us", Duration::ZERO);
    let signal = router.take_signal().expect("sends at once");
    // Sections 11.1 and 12.3: prefix, Peer Discovery, length, Peer Type.
    assert_eq!(signal[..], *b"DLEP\0\x01\0\x07\0\x04\0\x03\0us");
    assert!(router.take_signal().is_none());
    assert_eq!(router.next_due(), Some(DISCOVERY_INTERVAL));
    router.advance(DISCOVERY_INTERVAL);
    assert_eq!(router.take_signal().as_ref(), Some(&signal), "and again");

    let mut modem = ModemDiscovery::new("modem", at("192.0.2.9:8540"));
    assert!(modem.receive(&signal, TTL - 1, at(ROUTER)).is_none(), "a forwarded signal is ignored");
    let answer = modem.receive(&signal, TTL, at(ROUTER)).expect("an offer");
    assert!(modem.receive(&answer, TTL, at(ROUTER)).is_none(), "modems do not answer modems");
    assert!(router.receive(DISCOVERY_INTERVAL, &answer, 64, at(MODEM)).is_none());
    let offer = router.receive(DISCOVERY_INTERVAL, &answer, TTL, at(MODEM)).expect("found");
    assert_eq!((offer.modem.as_str(), &offer.points[..]), ("modem", &[at("192.0.2.9:8540")][..]));
}

#[test]
fn offers_are_decoded_as_rfc_8175_defines() {
    let points = |items: &[u8]| {
        let mut signal = b"DLEP\0\x02\0".to_vec();
        signal.push(items.len() as u8);
        signal.extend_from_slice(items);
        let mut router = RouterDiscovery::new("us", Duration::ZERO);
        router.receive(Duration::ZERO, &signal, TTL, at(MODEM)).map(|offer| offer.points)
    };
    // Section 7.1: without a connection point, the offer's source and the default port.
    assert_eq!(points(&[0, 4, 0, 1, 0]), Some(vec![at(MODEM)]));
    assert_eq!(points(&[]), Some(vec![at(MODEM)]));
    // Section 13.2: the default port; TLS, which is not supported; a port.
    assert_eq!(points(&[0, 2, 0, 5, 0, 192, 0, 2, 7]), Some(vec![at("192.0.2.7:854")]));
    assert_eq!(points(&[0, 2, 0, 5, 1, 192, 0, 2, 7]), Some(vec![]));
    assert_eq!(points(&[0, 2, 0, 7, 0, 192, 0, 2, 7, 0, 80]), Some(vec![at("192.0.2.7:80")]));
    // Section 12.1: invalid and unrecognized signals are ignored.
    assert_eq!(points(&[0, 2, 0, 4, 0, 192, 0, 2]), None);
    assert_eq!(points(&[0, 20, 0, 2, 5, 220]), None);
    assert_eq!(points(&[0, 2, 0, 5, 0, 224, 0, 0, 1]), None);
    assert_eq!(points(&[0, 99, 0, 0]), None);
}
