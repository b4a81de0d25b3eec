//! Entry point of the fuzz target and of a property test.

use crate::address::{echoed, network, stun};
use crate::dns::message;
use crate::gps;
use crate::ping::echo;
use crate::portal::{Api, networkd_api};
use crate::rate::wire::Message;
use crate::record::opened;
use crate::target::{Family, Target};
use crate::trace::packet;
use crate::track::Track;
use crate::upload::{Batch, Name, digest};

/// Reads arbitrary bytes as everything that comes from the network.
///
/// # Panics
///
/// If an invariant is broken.
pub fn fuzz_packet(bytes: &[u8]) {
    for family in [Family::V4, Family::V6] {
        let _ = echo::reply(family, 0, bytes);
        let _ = packet::answer(family, 0, bytes);
    }
    if let Some(inner) = echo::without_ipv4_header(bytes) {
        assert!(inner.len() + 20 <= bytes.len(), "an IPv4 header has 20 bytes");
    }
    let id = bytes.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    if let Ok(response) = message::response(id, "example.com", Family::V4, bytes) {
        let addresses =
            message::addresses(id, "example.com", Family::V4, bytes).expect("the same message");
        assert!(addresses.len() <= response.answers.into(), "more addresses than answers");
    }
    let id = bytes.first_chunk().copied().unwrap_or_default();
    for address in [stun::response(id, bytes), echoed(bytes)].into_iter().flatten() {
        assert_eq!(network(network(address)), network(address), "a network of a network");
    }
    let _ = (Api::parse(bytes), gps::answer(bytes));
    if let Some(message) = Message::decode(bytes) {
        let again = Message::decode(&message.encode(bytes.len()));
        assert_eq!(again, Some(message), "a message is read as it was written");
    }
    let text = String::from_utf8_lossy(bytes);
    assert!(networkd_api(&text).is_none_or(|api| !api.chars().any(char::is_control)));
    if let Ok(track) = Track::parse("fuzz", &text) {
        let middle = track.fixes[track.fixes.len() / 2].wall_us;
        let position = track.position(middle).expect("a position at a fix");
        assert!(position.latitude.abs() <= 90.0 && position.longitude.abs() <= 180.0);
    }
    if let Some(name) = Name::parse(&"0".repeat(32), &text) {
        assert!(!name.to_string().contains(['/', '.']), "a name is one part of a path");
    }
    let name = Name { session: "0".repeat(32), first: 1, last: 1, records: 1 };
    let _ = Batch { name, digest: digest(bytes), body: bytes.to_vec() }.check();
    let _ = opened(&text);
    if let Ok(target) = text.parse::<Target>() {
        assert!(!target.methods.is_empty(), "a target without a method");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            super::fuzz_packet(&bytes);
        }
    }
}
