use super::*;
use crate::testing::{ground, statement};
use proptest::prelude::*;

fn places() -> impl Strategy<Value = Option<Place>> {
    prop::option::of((-90.0..=90.0, -180.0..=180.0))
        .prop_map(|it| it.and_then(|(a, b)| Place::new(a, b)))
}

fn statements() -> impl Strategy<Value = Statement> {
    let addresses = prop::collection::vec(
        prop_oneof![
            Just("192.0.2.1:4433".parse::<Target>().unwrap()),
            Just("[2001:db8::1]:4433".parse().unwrap()),
            Just(format!("{}:1", vec!["a".repeat(63); 3].join(".")).parse().unwrap()),
        ],
        0..=MAX_ADDRESSES,
    );
    (any::<[bool; 3]>(), any::<u8>(), places(), addresses).prop_map(
        |([is_hub, is_egress, is_leaving], load, place, addresses)| Statement {
            is_hub,
            is_egress,
            is_leaving,
            load,
            place,
            addresses,
        },
    )
}

proptest! {
    #[test]
    fn entries_come_out_as_they_went_in(
        statement in statements(), version in 0..=MAX_VERSION, seconds in 0u64..=300, random: [u8; 64]
    ) {
        let lifetime = Duration::from_secs(seconds);
        let (secret, key) = ground(1);
        let entry = Entry::sign((&secret, key), version, lifetime, &statement, random);
        prop_assert!(entry.bytes().len() <= MAX_ENTRY_BYTES);
        let decoded = Claimed::decode(entry.bytes()).unwrap().verify().unwrap();
        prop_assert_eq!(&decoded, &entry);
        prop_assert_eq!(decoded.statement(), &statement);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        if let Ok(claimed) = Claimed::decode(&bytes) {
            prop_assert!(claimed.verify().is_err());
        }
    }

    #[test]
    fn a_changed_byte_is_noticed(at in 0usize..120, bit in 0u8..8) {
        let (secret, key) = ground(1);
        let entry = Entry::sign((&secret, key), 7, MAX_LIFETIME, &statement(), [1; 64]);
        let mut bytes = entry.bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let verified = Claimed::decode(&bytes).and_then(Claimed::verify);
        prop_assert!(verified.is_err());
    }
}

#[test]
fn only_places_on_the_earth_are_places() {
    for (latitude, longitude) in [
        (f64::NAN, 0.0),
        (0.0, f64::NAN),
        (f64::INFINITY, 0.0),
        (0.0, f64::NEG_INFINITY),
        (90.1, 0.0),
        (0.0, -180.1),
        (1e300, 1e300),
    ] {
        assert_eq!(Place::new(latitude, longitude), None, "{latitude} {longitude}");
    }
    let place = Place::new(-90.0, 180.0).unwrap();
    assert_eq!(place.degrees(), (-90.0, 180.0));
}

/// An entry with `body` after its lifetime, rightly signed by its hostile ground.
fn hostile(version: u64, body: &[u8]) -> Result<Entry, EntryError> {
    let (secret, key) = ground(1);
    let mut bytes = key.to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend([0xff, 0xff]);
    bytes.extend(body);
    bytes.extend(sign(&secret, &bytes, [1; 64]));
    Claimed::decode(&bytes)?.verify()
}

#[test]
fn signed_nonsense_is_refused() {
    let refused = |version, body: &[u8]| hostile(version, body).unwrap_err().0;
    let nowhere = [&[PLACE, 0][..], &i32::MAX.to_be_bytes(), &[0; 4], &[0]].concat();
    assert_eq!(refused(1, &nowhere), "its place is not on the Earth");
    assert_eq!(refused(1, &[0, 0, 3]), "it has too many addresses");
    assert_eq!(refused(1, &[0, 0, 1, 99]), "it has an invalid address");
    assert_eq!(refused(1, &[0, 0, 1, 4, 3, 0, 0]), "a service is not an address");
    assert_eq!(refused(1, &[0]), "it is too short");
    assert_eq!(refused(1, &[0; MAX_ENTRY_BYTES]), "it is too long");
    assert_eq!(refused(u64::MAX, &[0, 0, 0]), "its version is too high");
    let entry = hostile(1, &[HUB, 255, 0, 1, 2, 3]).unwrap();
    assert!(entry.statement().is_hub, "a later version may have more at the end");
    assert_eq!(entry.lifetime(), MAX_LIFETIME, "a lifetime of 18 hours is not granted");
}
