//! Vectors: handshake, cookie and sealed packets between two fixed keys.

use std::net::SocketAddr;
use std::time::Duration;

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use rand::{RngCore, SeedableRng};

use super::Vectors;
use super::noise::{self, Bytes, Inputs, Outputs};
use crate::crypto::{
    Aead, Aeads, CookieJar, CookieMonitor, InitPayload, Keys, MacKey, PROLOGUE, ReceivedInit,
    ResponsePayload, Rng, SentInit, respond,
};
use crate::key::SecretKey;
use crate::wire::header::{COOKIE_BYTES, DataHeader, INIT_BYTES, INIT_NOISE_BYTES, RESPONSE_BYTES};

const NOW: Duration = Duration::ZERO;
const HUB_INDEX: u32 = 0x0807_0605;
const INIT: InitPayload = InitPayload {
    counter: 0x0102_0304,
    instance: 0x1112_1314_1516_1718,
    resumes: 0,
    rate_bps: 512_000,
    reserve_bytes: 65_536,
    aeads: Aeads::all(),
    max_paths: 1,
    path: 0,
};
const RESPONSE: ResponsePayload = ResponsePayload {
    instance: 0x2122_2324_2526_2728,
    rate_bps: 1_890_000,
    reserve_bytes: 65_536,
    max_flows: 4096,
    aead: Aead::ChaCha20Poly1305,
    max_paths: 1,
};

/// Returns 32 bytes that increase from `first`.
fn rising(first: u8) -> Bytes {
    std::array::from_fn(|at| first + at as u8)
}

fn secrets() -> (SecretKey, SecretKey) {
    (SecretKey::from_bytes(rising(0x01)), SecretKey::from_bytes(rising(0x21)))
}

/// Returns the ephemeral key of a handshake with this seed.
fn ephemeral(rng: &mut Rng) -> Bytes {
    let (mut seed, mut key) = ([0; 32], [0; 32]);
    rng.fill_bytes(&mut seed);
    Rng::from_seed(seed).fill_bytes(&mut key);
    key
}

/// Both messages, the keys of both ends, and the specification's results for them.
struct Exchange {
    index: u32,
    ephemerals: (Bytes, Bytes),
    init: Vec<u8>,
    response: Vec<u8>,
    air: Keys,
    hub: Keys,
    expected: Outputs,
}

fn exchange(aead: Aead) -> Exchange {
    let answer = ResponsePayload { aead, ..RESPONSE };
    let (air, hub) = secrets();
    let (mut air_rng, mut hub_rng) = (Rng::from_seed([0x61; 32]), Rng::from_seed([0x62; 32]));
    let mut drawn = air_rng.clone();
    let index = drawn.next_u32();
    let ephemerals = (ephemeral(&mut drawn), ephemeral(&mut hub_rng.clone()));
    let (initiator, mut init) =
        SentInit::start(PROLOGUE, &air, &hub.public(), &INIT, NOW, &mut air_rng);
    MacKey::new(&hub.public()).sign(&mut init, None);
    let received = ReceivedInit::read(PROLOGUE, &hub, &init, &mut hub_rng).expect("it is ours");
    assert_eq!((received.from, received.payload), (air.public(), INIT));
    let (hub_keys, mut response) =
        respond(received, &answer, HUB_INDEX, NOW).expect("it is answered");
    MacKey::new(&air.public()).sign(&mut response, None);
    let (air_keys, payload) = initiator.finish(&response, NOW).ok().expect("it is the answer");
    assert_eq!(payload, answer);
    let expected = noise::ik(&Inputs {
        air: *air.as_bytes(),
        hub: *hub.as_bytes(),
        air_ephemeral: ephemerals.0,
        hub_ephemeral: ephemerals.1,
        init: &INIT.encode(),
        response: &answer.encode(),
    });
    Exchange { index, ephemerals, init, response, air: air_keys, hub: hub_keys, expected }
}

#[test]
fn handshake() {
    let (air, hub) = secrets();
    let mut out =
        Vectors::new("handshake.txt", "A handshake between two fixed keys. See docs/protocol.md.");
    let Exchange { index, ephemerals, init, response, air: mut keys, hub: mut hub_keys, expected } =
        exchange(Aead::ChaCha20Poly1305);
    out.note("\nStatic and ephemeral X25519 keys.");
    out.put("air_static_secret", air.as_bytes());
    out.put("air_static_public", air.public().as_bytes());
    out.put("hub_static_secret", hub.as_bytes());
    out.put("hub_static_public", hub.public().as_bytes());
    out.put("air_ephemeral_secret", &ephemerals.0);
    out.put("air_ephemeral_public", &noise::public(&ephemerals.0));
    out.put("hub_ephemeral_secret", &ephemerals.1);
    out.put("hub_ephemeral_public", &noise::public(&ephemerals.1));
    out.note("\nINIT. Indices and payloads as they stand in the messages, little-endian.");
    out.put("prologue", b"bentpipe link v1");
    out.put("air_index", &index.to_le_bytes());
    out.put("init_payload", &INIT.encode());
    out.put("init_noise", &expected.message_1);
    out.put("handshake_hash_after_init", &expected.hash_1);
    out.put("init", &init);
    out.note("\nRESPONSE.");
    out.put("hub_index", &HUB_INDEX.to_le_bytes());
    out.put("response_payload", &RESPONSE.encode());
    out.put("response_noise", &expected.message_2);
    out.put("handshake_hash_after_response", &expected.hash_2);
    out.put("response", &response);
    out.note("\nSplit(): the keys of data packets.");
    out.put("chaining_key", &expected.chaining_key);
    out.put("key_air_to_hub", &expected.to_hub);
    out.put("key_hub_to_air", &expected.to_air);

    assert_eq!((init.len(), response.len()), (INIT_BYTES, RESPONSE_BYTES));
    assert_eq!(init[8..8 + INIT_NOISE_BYTES], expected.message_1);
    assert_eq!(response[12..12 + expected.message_2.len()], expected.message_2);

    out.note("\nThe first data packet: path 0, number 0, a PING from the air.");
    let first = (0, 0, &[0x05][..]);
    let sealed = packet(&mut out, "first", &mut keys, &mut hub_keys, first);
    assert_eq!(sealed, noise::seal(&expected.to_hub, 0, &[], first.2));
    out.note("\nA packet of the hub's: path 0, number 0x01020304050607, a SYMBOL with a CREDIT.");
    let number = 0x0001_0203_0405_0607;
    let plaintext = [0x10, 0x2a, 0x08, 0x03, 0x80, 0x80, 0x04];
    let later = (0, number, &plaintext[..]);
    let sealed = packet(&mut out, "later", &mut hub_keys, &mut keys, later);
    assert_eq!(sealed, noise::seal(&expected.to_air, number, &[], &plaintext));
    out.note(
        "\nThe same packets after a RESPONSE that chooses AES-256-GCM: the keys are the same.",
    );
    let Exchange { air: mut keys, hub: mut hub_keys, expected: again, .. } =
        exchange(Aead::Aes256Gcm);
    assert_eq!((again.to_hub, again.to_air), (expected.to_hub, expected.to_air));
    packet(&mut out, "first_aes", &mut keys, &mut hub_keys, first);
    packet(&mut out, "later_aes", &mut hub_keys, &mut keys, later);
    out.check();
}

/// Seals a packet and opens it again. Returns what follows its header.
fn packet(
    out: &mut Vectors,
    name: &str,
    from: &mut Keys,
    to: &mut Keys,
    (path, number, plaintext): (u8, u64, &[u8]),
) -> Vec<u8> {
    let (mut sealed, mut opened) = (Vec::new(), Vec::new());
    assert!(from.seal(path, number, plaintext, &mut sealed));
    let (header, body) = DataHeader::parse(&sealed).expect("it has a header");
    assert!(to.open(&header, body, &mut opened));
    assert_eq!(opened, plaintext);
    out.put(&format!("{name}_plaintext"), plaintext);
    out.put(&format!("{name}_nonce"), &[&[0; 4][..], &header.nonce().to_le_bytes()].concat());
    out.put(&format!("{name}_packet"), &sealed);
    body.to_vec()
}

#[test]
fn cookie() {
    let (_, hub) = secrets();
    let mut out = Vectors::new(
        "cookie.txt",
        "The INIT of handshake.txt, from 192.0.2.1 port 40000, is answered with a cookie reply.",
    );
    let from: SocketAddr = "192.0.2.1:40000".parse().expect("it is an address");
    let key = MacKey::new(&hub.public());
    let mut init = exchange(Aead::ChaCha20Poly1305).init;
    let mut monitor = CookieMonitor::default();
    monitor.sign(&key, &mut init, NOW);
    let mut rng = Rng::from_seed([0x63; 32]);
    let mut secret = [0; 32];
    rng.clone().fill_bytes(&mut secret);
    let mut jar = CookieJar::new(&hub.public(), NOW, &mut rng);
    let sender = ReceivedInit::sender(&init).expect("it names its sender");
    let reply = jar.reply(&init, sender, from, NOW, &mut rng);
    assert_eq!(reply.len(), COOKIE_BYTES);
    assert!(!jar.accepts(&init, from, NOW));
    monitor.take(&key, &reply, NOW).expect("it answers our message");
    let mut again = init.clone();
    monitor.sign(&key, &mut again, NOW);
    assert!(jar.accepts(&again, from, NOW));

    let address = [&[192, 0, 2, 1][..], &40_000u16.to_le_bytes()].concat();
    let cookie = keyed(&secret, &address);
    assert_eq!(keyed(&cookie, &again[..INIT_BYTES - 16])[..], again[INIT_BYTES - 16..]);
    out.put("hub_secret", &secret);
    out.put("cookie", &cookie);
    out.put("reply_nonce", &reply[8..32]);
    out.put("reply", &reply);
    out.note("\nThe same INIT with mac2.");
    out.put("init", &again);
    out.check();
}

fn keyed(key: &[u8], message: &[u8]) -> [u8; 16] {
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(key).expect("the key is short");
    Update::update(&mut mac, message);
    mac.finalize_fixed().into()
}
