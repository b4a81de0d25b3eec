//! Noise_IK_25519_ChaChaPoly_BLAKE2s: one round trip; the air knows the ground's key beforehand.
//!
//! Message 1 has no flow data. It has a counter that increases over the aircraft's whole life,
//! because its clock may be wrong, so that a recorded message is worthless. Both messages name
//! *instances*, random numbers: the air chooses one at its start, and the hub one for each session.
//! If the hub names the session that the air asked for, that resumes; otherwise the air's session
//! is over.

use std::hint::black_box;
use std::time::Duration;

use rand::RngCore;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher as NoiseCipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::cipher::{Cipher, burn_stack};
use super::keys::Pair;
use super::{Aead, Aeads, Keys, Rng};
use crate::curve;
use crate::key::{KEY_BYTES, PublicKey, SecretKey};
use crate::wire::codec::Reader;
use crate::wire::header::{
    INIT, INIT_BYTES, INIT_NOISE_BYTES, INIT_PAYLOAD_BYTES, MAX_PATHS, RESPONSE, RESPONSE_BYTES,
    RESPONSE_NOISE_BYTES, RESPONSE_PAYLOAD_BYTES,
};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// Pattern without keys, for a state that holds none.
const BLANK_PATTERN: &str = "Noise_NN_25519_ChaChaPoly_BLAKE2s";
/// Prologue of the link's handshakes, which separates them from other transports'.
pub(crate) const PROLOGUE: &[u8] = b"bentpipe link v1";

/// Position of the number of further paths in the last byte of either payload, three bits …
const PATHS_SHIFT: u8 = 1;
/// … and that of the message's path in message 1.
const PATH_SHIFT: u8 = 4;
/// Values of three bits.
const PATH_MASK: u8 = MAX_PATHS - 1;

/// Bits of a maximum number of paths. A peer that knows only one path sends and ignores zeros.
const fn paths_bits(max_paths: u8) -> u8 {
    (max_paths.saturating_sub(1) & PATH_MASK) << PATHS_SHIFT
}

const fn max_paths_of(options: u8) -> u8 {
    1 + (options >> PATHS_SHIFT & PATH_MASK)
}

/// Payload of the air in message 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitPayload {
    /// Counter, which increases with every message 1 of this key.
    pub counter: u64,
    /// The air's instance.
    pub instance: u64,
    /// Instance of the air's session; 0 for none.
    pub resumes: u64,
    /// The air's send rate in bit/s.
    pub rate_bps: u64,
    /// Credit of each flow towards the air before the first CREDIT, in bytes.
    pub reserve_bytes: u32,
    /// Algorithms that the air has for data packets.
    pub aeads: Aeads,
    /// Maximum number of paths that the air can use, 1 to 8.
    pub max_paths: u8,
    /// Path of this message, which becomes the first path of a new session.
    pub path: u8,
}

/// Payload of the hub in message 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponsePayload {
    /// Instance of the session: the requested one if it continues, otherwise a new one.
    pub instance: u64,
    /// The hub's send rate in bit/s.
    pub rate_bps: u64,
    /// Credit of each flow towards the hub before the first CREDIT, in bytes.
    pub reserve_bytes: u32,
    /// Maximum number of open flows.
    pub max_flows: u32,
    /// Algorithm of the session's data packets, which the air offered.
    pub aead: Aead,
    /// Maximum number of paths of the session.
    pub max_paths: u8,
}

impl InitPayload {
    pub(crate) fn encode(&self) -> [u8; INIT_PAYLOAD_BYTES] {
        let mut out = [0; INIT_PAYLOAD_BYTES];
        out[..8].copy_from_slice(&self.counter.to_le_bytes());
        out[8..16].copy_from_slice(&self.instance.to_le_bytes());
        out[16..24].copy_from_slice(&self.resumes.to_le_bytes());
        out[24..32].copy_from_slice(&self.rate_bps.to_le_bytes());
        out[32..36].copy_from_slice(&self.reserve_bytes.to_le_bytes());
        out[36] = self.aeads.to_byte() | paths_bits(self.max_paths) | self.path << PATH_SHIFT;
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (counter, instance) = (reader.u64().ok()?, reader.u64().ok()?);
        let (resumes, rate_bps) = (reader.u64().ok()?, reader.u64().ok()?);
        let (reserve_bytes, options) = (reader.u32().ok()?, reader.u8().ok()?);
        let (aeads, max_paths) = (Aeads::from_byte(options), max_paths_of(options));
        let path = options >> PATH_SHIFT & PATH_MASK;
        // A path beyond the own maximum is a mistake of the sender.
        (path < max_paths).then_some(())?;
        Some(Self { counter, instance, resumes, rate_bps, reserve_bytes, aeads, max_paths, path })
    }
}

impl ResponsePayload {
    pub(crate) fn encode(&self) -> [u8; RESPONSE_PAYLOAD_BYTES] {
        let mut out = [0; RESPONSE_PAYLOAD_BYTES];
        out[..8].copy_from_slice(&self.instance.to_le_bytes());
        out[8..16].copy_from_slice(&self.rate_bps.to_le_bytes());
        out[16..20].copy_from_slice(&self.reserve_bytes.to_le_bytes());
        out[20..24].copy_from_slice(&self.max_flows.to_le_bytes());
        out[24] = self.aead.to_byte() | paths_bits(self.max_paths);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (instance, rate_bps) = (reader.u64().ok()?, reader.u64().ok()?);
        let (reserve_bytes, max_flows) = (reader.u32().ok()?, reader.u32().ok()?);
        let options = reader.u8().ok()?;
        let max_paths = max_paths_of(options);
        let aead = Aead::from_byte(options & !paths_bits(MAX_PATHS))?;
        Some(Self { instance, rate_bps, reserve_bytes, max_flows, aead, max_paths })
    }
}

/// A message 1 that was sent and may still be answered.
pub struct SentInit {
    noise: Box<HandshakeState>,
    /// Our index in it.
    pub index: u32,
    /// Time of sending.
    pub sent_at: Duration,
    /// Algorithms and number of paths offered in it.
    aeads: Aeads,
    max_paths: u8,
    /// Path on which it was sent.
    pub path: u8,
}

impl SentInit {
    /// Writes message 1 of the protocol that `prologue` names, without its macs. It means nothing
    /// to another protocol.
    pub fn start(
        prologue: &[u8],
        secret: &SecretKey,
        peer: &PublicKey,
        payload: &InitPayload,
        now: Duration,
        rng: &mut Rng,
    ) -> (Self, Vec<u8>) {
        let index = rng.next_u32();
        let mut noise = builder(prologue, secret, rng)
            .remote_public_key(peer.as_bytes())
            .and_then(Builder::build_initiator)
            .expect("keys have the length that the pattern wants");
        let mut out = vec![0; INIT_BYTES];
        out[0] = INIT;
        out[4..8].copy_from_slice(&index.to_le_bytes());
        let written = noise
            .write_message(&payload.encode(), &mut out[8..8 + INIT_NOISE_BYTES])
            .expect("the buffer is sized for message 1");
        debug_assert_eq!(written, INIT_NOISE_BYTES);
        let InitPayload { aeads, max_paths, path, .. } = *payload;
        (Self { noise: Box::new(noise), index, sent_at: now, aeads, max_paths, path }, out)
    }

    /// Reads message 2. Returns the unchanged attempt if it is not the peer's answer: snow undoes
    /// the changes of a message that fails.
    pub fn finish(
        mut self,
        message: &[u8],
        now: Duration,
    ) -> Result<(Keys, ResponsePayload), Box<Self>> {
        let Some((remote, payload)) = self.read(message) else { return Err(Box::new(self)) };
        let pair = keys_of(self.noise, true, payload.aead);
        Ok((Keys::new(pair, payload.aead, self.index, remote, now), payload))
    }

    fn read(&mut self, message: &[u8]) -> Option<(u32, ResponsePayload)> {
        let mut reader = Reader::new(message);
        reader.take(4).ok()?;
        let remote = reader.u32().ok()?;
        (reader.u32().ok()? == self.index).then_some(())?;
        let mut payload = [0; RESPONSE_PAYLOAD_BYTES];
        let read = self.noise.read_message(reader.take(RESPONSE_NOISE_BYTES).ok()?, &mut payload);
        let payload = ResponsePayload::decode(&payload[..read.ok()?])?;
        let is_offered = self.aeads.offers(payload.aead) && payload.max_paths <= self.max_paths;
        is_offered.then_some((remote, payload))
    }

    /// Returns the index that a response or cookie reply names.
    pub fn named_in(message: &[u8]) -> Option<u32> {
        let at = if *message.first()? == RESPONSE { 8 } else { 4 };
        Reader::new(message.get(at..)?).u32().ok()
    }
}

/// A message 1 that the hub has read, with the sender known, ready to be answered.
pub struct ReceivedInit {
    noise: Box<HandshakeState>,
    /// The aircraft's key, proved by the message.
    pub from: PublicKey,
    /// Its payload.
    pub payload: InitPayload,
    sender: u32,
}

impl ReceivedInit {
    /// Returns the sender's index, before any decryption.
    pub fn sender(message: &[u8]) -> Option<u32> {
        Reader::new(message.get(4..)?).u32().ok()
    }

    /// Decrypts message 1 of the protocol that `prologue` names. Returns `None` for garbage.
    pub fn read(
        prologue: &[u8],
        secret: &SecretKey,
        message: &[u8],
        rng: &mut Rng,
    ) -> Option<Self> {
        let sender = Self::sender(message)?;
        let mut noise = builder(prologue, secret, rng).build_responder().ok()?;
        let mut payload = [0; INIT_PAYLOAD_BYTES];
        let read = noise.read_message(message.get(8..8 + INIT_NOISE_BYTES)?, &mut payload).ok()?;
        let payload = InitPayload::decode(&payload[..read])?;
        let from = PublicKey::from_bytes(noise.get_remote_static()?.try_into().ok()?);
        Some(Self { noise: Box::new(noise), from, payload, sender })
    }
}

/// Answers message 1. Returns the keys, and message 2 without its macs.
pub fn respond(
    received: ReceivedInit,
    payload: &ResponsePayload,
    index: u32,
    now: Duration,
) -> Option<(Keys, Vec<u8>)> {
    let mut noise = received.noise;
    let mut out = vec![0; RESPONSE_BYTES];
    out[0] = RESPONSE;
    out[4..8].copy_from_slice(&index.to_le_bytes());
    out[8..12].copy_from_slice(&received.sender.to_le_bytes());
    noise.write_message(&payload.encode(), &mut out[12..12 + RESPONSE_NOISE_BYTES]).ok()?;
    let pair = keys_of(noise, false, payload.aead);
    Some((Keys::new(pair, payload.aead, index, received.sender, now), out))
}

/// Returns the packet keys of a finished handshake, of which nothing else stays in memory.
fn keys_of(noise: Box<HandshakeState>, initiator: bool, aead: Aead) -> Box<Pair> {
    let pair = split(noise, initiator, aead);
    burn_stack();
    pair
}

/// Derives the keys, with copies on the stack.
#[inline(never)]
fn split(mut noise: Box<HandshakeState>, initiator: bool, aead: Aead) -> Box<Pair> {
    let (first, second) = noise.dangerously_get_raw_split();
    let (first, second) = (Zeroizing::new(first), Zeroizing::new(second));
    burn_stack();
    blank_out(noise);
    let (seal, open) = if initiator { (&first, &second) } else { (&second, &first) };
    #[cfg(test)]
    super::erasure_tests::note([&first, &second]);
    Box::new(Pair { seal: Cipher::new(aead, seal), open: Cipher::new(aead, open) })
}

/// Overwrites a finished handshake, because its chaining key would give the packet keys. No key may
/// stand on the stack below: a state has room for pre-shared keys, whose unused part holds what was
/// on the stack when the state was made.
#[inline(never)]
fn blank_out(mut noise: Box<HandshakeState>) {
    *noise = blank();
    black_box(&noise);
}

/// Returns a handshake that has not begun and holds no key.
fn blank() -> HandshakeState {
    let params = BLANK_PATTERN.parse().expect("the pattern's name is well formed");
    let resolver = Box::new(SeededResolver { seed: [0; 32], public: [0; KEY_BYTES] });
    Builder::with_resolver(params, resolver).build_initiator().expect("it needs no keys")
}

fn builder<'a>(prologue: &'a [u8], secret: &'a SecretKey, rng: &mut Rng) -> Builder<'a> {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    let params = PATTERN.parse().expect("the pattern's name is well formed");
    let resolver = SeededResolver { seed, public: *secret.public().as_bytes() };
    Builder::with_resolver(params, Box::new(resolver))
        .local_private_key(secret.as_bytes())
        .and_then(|builder| builder.prologue(prologue))
        .expect("each is set once")
}

/// Resolver with a seeded generator, so that a simulated handshake repeats to the byte, and with
/// ring's assembly for the cipher of every packet.
struct SeededResolver {
    seed: [u8; 32],
    /// Public key of our static key.
    public: [u8; KEY_BYTES],
}

impl CryptoResolver for SeededResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(rand::SeedableRng::from_seed(self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let pair = || KeyPair { own: self.public, ..KeyPair::default() };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(pair()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn NoiseCipher>> {
        let cipher = || {
            Box::new(Cipher::new(Aead::ChaCha20Poly1305, &[0; KEY_BYTES])) as Box<dyn NoiseCipher>
        };
        matches!(choice, CipherChoice::ChaChaPoly).then(cipher)
    }
}

/// A private key that is erased when dropped, and its public key.
#[derive(Default)]
struct KeyPair {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    public: [u8; KEY_BYTES],
    /// Public key of our static key, the only one that is set.
    own: [u8; KEY_BYTES],
}

impl Dh for KeyPair {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(secret);
        self.public = self.own;
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        random.try_fill_bytes(&mut *self.secret)?;
        self.public = curve::public_of(&self.secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let (Some(public), Some(out)) = (public.first_chunk(), out.first_chunk_mut()) else {
            return Err(snow::Error::Dh);
        };
        *out = curve::shared(&self.secret, *public);
        Ok(())
    }
}

struct SeededRandom(Rng);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::DataHeader;
    use rand::SeedableRng;

    const INIT_PAYLOAD: InitPayload = InitPayload {
        counter: 7,
        instance: 1,
        resumes: 0,
        rate_bps: 1,
        reserve_bytes: 2,
        aeads: Aeads::all(),
        max_paths: 1,
        path: 0,
    };
    const RESPONSE_PAYLOAD: ResponsePayload = ResponsePayload {
        instance: 9,
        rate_bps: 3,
        reserve_bytes: 4,
        max_flows: 5,
        aead: Aead::Aes256Gcm,
        max_paths: 1,
    };

    #[test]
    fn numbers_of_paths_survive_the_wire_and_a_path_beyond_them_is_refused() {
        for (max_paths, path) in [(1, 0), (2, 1), (MAX_PATHS, MAX_PATHS - 1)] {
            let init = InitPayload { max_paths, path, ..INIT_PAYLOAD };
            assert_eq!(InitPayload::decode(&init.encode()), Some(init));
            let response = ResponsePayload { max_paths, ..RESPONSE_PAYLOAD };
            assert_eq!(ResponsePayload::decode(&response.encode()), Some(response));
        }
        let beyond = InitPayload { max_paths: 2, path: 2, ..INIT_PAYLOAD };
        assert_eq!(InitPayload::decode(&beyond.encode()), None);
    }

    #[test]
    fn both_ends_agree_on_keys_and_payloads() {
        let mut rng = Rng::seed_from_u64(3);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let now = Duration::ZERO;
        let (initiator, init) =
            SentInit::start(PROLOGUE, &air, &hub.public(), &INIT_PAYLOAD, now, &mut rng);
        let received = ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).unwrap();
        assert_eq!((received.from, received.payload), (air.public(), INIT_PAYLOAD));
        let (mut hub_keys, response) = respond(received, &RESPONSE_PAYLOAD, 77, now).unwrap();
        assert_eq!(SentInit::named_in(&response), Some(initiator.index));
        let mut forged = response.clone();
        forged[50] ^= 1;
        let initiator = initiator.finish(&forged, now).err().expect("a forgery is refused");
        let (mut air_keys, payload) = initiator.finish(&response, now).ok().unwrap();
        assert_eq!(payload, RESPONSE_PAYLOAD);

        let (mut packet, mut plaintext) = (Vec::new(), Vec::new());
        assert!(air_keys.seal(2, 40, b"hello", &mut packet));
        let (header, sealed) = DataHeader::parse(&packet).unwrap();
        assert_eq!(header, DataHeader { path: 2, receiver: 77, number: 40 });
        assert!(hub_keys.open(&header, sealed, &mut plaintext));
        assert_eq!(plaintext, b"hello");
        assert!(!hub_keys.open(&header, sealed, &mut plaintext), "a replay");
        let moved = DataHeader { path: 3, ..header };
        assert!(!hub_keys.open(&moved, sealed, &mut plaintext), "another path");
    }

    #[test]
    fn an_algorithm_that_was_not_offered_is_no_answer() {
        let mut rng = Rng::seed_from_u64(6);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let (now, peer) = (Duration::ZERO, hub.public());
        let offers = InitPayload { aeads: Aeads::default(), ..INIT_PAYLOAD };
        let (initiator, init) = SentInit::start(PROLOGUE, &air, &peer, &offers, now, &mut rng);
        let received = ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).unwrap();
        let (_, response) = respond(received, &RESPONSE_PAYLOAD, 77, now).unwrap();
        assert!(initiator.finish(&response, now).is_err());
    }

    #[test]
    fn a_stranger_to_the_hubs_key_is_not_understood() {
        let mut rng = Rng::seed_from_u64(4);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let wrong = SecretKey::generate(&mut rng).public();
        let (_, init) =
            SentInit::start(PROLOGUE, &air, &wrong, &INIT_PAYLOAD, Duration::ZERO, &mut rng);
        assert!(ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).is_none());
    }

    #[test]
    fn a_message_of_another_protocol_is_not_understood() {
        let mut rng = Rng::seed_from_u64(5);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let (peer, now) = (hub.public(), Duration::ZERO);
        let (_, init) = SentInit::start(b"another", &air, &peer, &INIT_PAYLOAD, now, &mut rng);
        assert!(ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).is_none());
        assert!(ReceivedInit::read(b"another", &hub, &init, &mut rng).is_some());
    }
}
