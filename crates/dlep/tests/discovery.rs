//! Both ends of discovery, in virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_dlep::{DISCOVERY_INTERVAL, Offerer, Seeker, TTL};

const ROUTER: &str = "192.0.2.1:40000";
const MODEM: &str = "192.0.2.9:854";

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

#[test]
fn a_modem_is_found() {
    let mut seeker = Seeker::new("us", Duration::ZERO);
    let signal = seeker.take_signal().expect("looks at once");
    // Section 11.1 and 12.3: prefix, Peer Discovery, length, Peer Type.
    assert_eq!(signal[..], *b"DLEP\0\x01\0\x07\0\x04\0\x03\0us");
    assert!(seeker.take_signal().is_none());
    assert_eq!(seeker.next_due(), Some(DISCOVERY_INTERVAL));
    seeker.advance(DISCOVERY_INTERVAL);
    assert_eq!(seeker.take_signal().as_ref(), Some(&signal), "and again");

    let mut offerer = Offerer::new("modem", at("192.0.2.9:8540"));
    assert!(offerer.receive(&signal, TTL - 1, at(ROUTER)).is_none(), "it was forwarded");
    let answer = offerer.receive(&signal, TTL, at(ROUTER)).expect("an offer");
    assert!(offerer.receive(&answer, TTL, at(ROUTER)).is_none(), "modems do not answer modems");
    assert!(seeker.receive(DISCOVERY_INTERVAL, &answer, 64, at(MODEM)).is_none());
    let offer = seeker.receive(DISCOVERY_INTERVAL, &answer, TTL, at(MODEM)).expect("found");
    assert_eq!((offer.modem.as_str(), &offer.points[..]), ("modem", &[at("192.0.2.9:8540")][..]));
}

#[test]
fn offers_are_read_as_the_standard_has_them() {
    let points = |items: &[u8]| {
        let mut signal = b"DLEP\0\x02\0".to_vec();
        signal.push(items.len() as u8);
        signal.extend_from_slice(items);
        let mut seeker = Seeker::new("us", Duration::ZERO);
        seeker.receive(Duration::ZERO, &signal, TTL, at(MODEM)).map(|offer| offer.points)
    };
    // Section 7.1: without a connection point, the offer's source and the default port.
    assert_eq!(points(&[0, 4, 0, 1, 0]), Some(vec![at(MODEM)]));
    assert_eq!(points(&[]), Some(vec![at(MODEM)]));
    // Section 13.2: the default port; TLS, which is not supported; a port.
    assert_eq!(points(&[0, 2, 0, 5, 0, 192, 0, 2, 7]), Some(vec![at("192.0.2.7:854")]));
    assert_eq!(points(&[0, 2, 0, 5, 1, 192, 0, 2, 7]), Some(vec![]));
    assert_eq!(points(&[0, 2, 0, 7, 0, 192, 0, 2, 7, 0, 80]), Some(vec![at("192.0.2.7:80")]));
    // Section 12.1: what is not valid or not recognized is ignored.
    assert_eq!(points(&[0, 2, 0, 4, 0, 192, 0, 2]), None);
    assert_eq!(points(&[0, 20, 0, 2, 5, 220]), None);
    assert_eq!(points(&[0, 2, 0, 5, 0, 224, 0, 0, 1]), None);
    assert_eq!(points(&[0, 99, 0, 0]), None);
}
