//! Noise_IK_25519_ChaChaPoly_BLAKE2s: one round trip, the air knows the ground's key beforehand.
//!
//! Message 1 carries a counter that rises over the aircraft's whole life (its clock may lie), so
//! that a recorded one is worthless, and no flow data. Both messages name *instances*, random
//! numbers: the air's is made at its start, the session's by the hub. When the hub names the session
//! that the air asked for, it resumes; else what the air had of it is over.

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
use super::{Keys, Rng};
use crate::curve;
use crate::key::{KEY_BYTES, PublicKey, SecretKey};
use crate::wire::codec::Reader;
use crate::wire::header::{
    INIT, INIT_BYTES, INIT_NOISE_BYTES, INIT_PAYLOAD_BYTES, RESPONSE, RESPONSE_BYTES,
    RESPONSE_NOISE_BYTES, RESPONSE_PAYLOAD_BYTES,
};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// A pattern that needs no keys, for a state that holds none.
const BLANK_PATTERN: &str = "Noise_NN_25519_ChaChaPoly_BLAKE2s";
/// Prologue of the link's handshakes, which sets them apart from those of other transports.
pub(crate) const PROLOGUE: &[u8] = b"bentpipe link v1";

/// Payload of the air in message 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitPayload {
    /// Rises with every message 1 that this key ever sent.
    pub counter: u64,
    /// The air's instance.
    pub instance: u64,
    /// The instance of the session it has; 0 for none.
    pub resumes: u64,
    /// The rate it sends at, bit/s.
    pub rate_bps: u64,
    /// Bytes that each flow may send to it before the first CREDIT.
    pub reserve_bytes: u32,
}

/// Payload of the hub in message 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponsePayload {
    /// The session's instance: the one asked for if it goes on, else a fresh one.
    pub instance: u64,
    /// The rate it sends at, bit/s.
    pub rate_bps: u64,
    /// Bytes that each flow may send to it before the first CREDIT.
    pub reserve_bytes: u32,
    /// Number of flows that may be open at once.
    pub max_flows: u32,
}

impl InitPayload {
    pub(crate) fn encode(&self) -> [u8; INIT_PAYLOAD_BYTES] {
        let mut out = [0; INIT_PAYLOAD_BYTES];
        out[..8].copy_from_slice(&self.counter.to_le_bytes());
        out[8..16].copy_from_slice(&self.instance.to_le_bytes());
        out[16..24].copy_from_slice(&self.resumes.to_le_bytes());
        out[24..32].copy_from_slice(&self.rate_bps.to_le_bytes());
        out[32..].copy_from_slice(&self.reserve_bytes.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        Some(Self {
            counter: reader.u64().ok()?,
            instance: reader.u64().ok()?,
            resumes: reader.u64().ok()?,
            rate_bps: reader.u64().ok()?,
            reserve_bytes: reader.u32().ok()?,
        })
    }
}

impl ResponsePayload {
    pub(crate) fn encode(&self) -> [u8; RESPONSE_PAYLOAD_BYTES] {
        let mut out = [0; RESPONSE_PAYLOAD_BYTES];
        out[..8].copy_from_slice(&self.instance.to_le_bytes());
        out[8..16].copy_from_slice(&self.rate_bps.to_le_bytes());
        out[16..20].copy_from_slice(&self.reserve_bytes.to_le_bytes());
        out[20..].copy_from_slice(&self.max_flows.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        Some(Self {
            instance: reader.u64().ok()?,
            rate_bps: reader.u64().ok()?,
            reserve_bytes: reader.u32().ok()?,
            max_flows: reader.u32().ok()?,
        })
    }
}

/// One message 1 that was sent and may still be answered.
pub struct Initiator {
    noise: Box<HandshakeState>,
    /// Our index in it.
    pub index: u32,
    /// Time of sending.
    pub sent_at: Duration,
}

impl Initiator {
    /// Writes message 1 of the protocol that `prologue` names, without its macs: a message of one
    /// means nothing to another.
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
        (Self { noise: Box::new(noise), index, sent_at: now }, out)
    }

    /// Reads message 2. What is not the peer's answer gives the attempt back, unharmed: snow undoes
    /// what a message that fails has changed.
    pub fn finish(
        mut self,
        message: &[u8],
        now: Duration,
    ) -> Result<(Keys, ResponsePayload), Box<Self>> {
        let Some((remote, payload)) = self.read(message) else { return Err(Box::new(self)) };
        Ok((Keys::new(keys_of(self.noise, true), self.index, remote, now), payload))
    }

    fn read(&mut self, message: &[u8]) -> Option<(u32, ResponsePayload)> {
        let mut reader = Reader::new(message);
        reader.take(4).ok()?;
        let remote = reader.u32().ok()?;
        (reader.u32().ok()? == self.index).then_some(())?;
        let mut payload = [0; RESPONSE_PAYLOAD_BYTES];
        let read = self.noise.read_message(reader.take(RESPONSE_NOISE_BYTES).ok()?, &mut payload);
        Some((remote, ResponsePayload::decode(&payload[..read.ok()?])?))
    }

    /// The index that a response or cookie reply names.
    pub fn named_in(message: &[u8]) -> Option<u32> {
        let at = if *message.first()? == RESPONSE { 8 } else { 4 };
        Reader::new(message.get(at..)?).u32().ok()
    }
}

/// Message 1 as the hub read it: it knows who asks, and can answer.
pub struct ReceivedInit {
    noise: Box<HandshakeState>,
    /// The aircraft's key, proved by the message.
    pub from: PublicKey,
    /// Its payload.
    pub payload: InitPayload,
    sender: u32,
}

impl ReceivedInit {
    /// The sender's index, before anything is decrypted.
    pub fn sender(message: &[u8]) -> Option<u32> {
        Reader::new(message.get(4..)?).u32().ok()
    }

    /// Decrypts message 1 of the protocol that `prologue` names; `None` for garbage.
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

/// Answers message 1: the keys, and message 2 without its macs.
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
    Some((Keys::new(keys_of(noise, false), index, received.sender, now), out))
}

/// The packet keys of a finished handshake, of which nothing else stays in memory.
fn keys_of(noise: Box<HandshakeState>, initiator: bool) -> Box<Pair> {
    let pair = split(noise, initiator);
    burn_stack();
    pair
}

/// The same, with copies on the stack. The state is overwritten: its chaining key would give the
/// keys again.
#[inline(never)]
fn split(mut noise: Box<HandshakeState>, initiator: bool) -> Box<Pair> {
    let (first, second) = noise.dangerously_get_raw_split();
    let (first, second) = (Zeroizing::new(first), Zeroizing::new(second));
    let (seal, open) = if initiator { (&first, &second) } else { (&second, &first) };
    #[cfg(test)]
    super::erasure_tests::note([&first, &second]);
    let pair = Box::new(Pair { seal: Cipher::new(seal), open: Cipher::new(open) });
    *noise = blank();
    black_box(&noise);
    pair
}

/// A handshake that has not begun and knows no key.
fn blank() -> HandshakeState {
    let params = BLANK_PATTERN.parse().expect("the pattern's name is well formed");
    let resolver = Box::new(SeededResolver([0; 32]));
    Builder::with_resolver(params, resolver).build_initiator().expect("it needs no keys")
}

fn builder<'a>(prologue: &'a [u8], secret: &'a SecretKey, rng: &mut Rng) -> Builder<'a> {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    let params = PATTERN.parse().expect("the pattern's name is well formed");
    Builder::with_resolver(params, Box::new(SeededResolver(seed)))
        .local_private_key(secret.as_bytes())
        .and_then(|builder| builder.prologue(prologue))
        .expect("each is set once")
}

/// Our own generator, so that a simulated handshake repeats to the byte, and ring's assembly for the
/// cipher, which every packet passes.
struct SeededResolver([u8; 32]);

impl CryptoResolver for SeededResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(rand::SeedableRng::from_seed(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<KeyPair>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn NoiseCipher>> {
        let cipher = || Box::new(Cipher::new(&[0; KEY_BYTES])) as Box<dyn NoiseCipher>;
        matches!(choice, CipherChoice::ChaChaPoly).then(cipher)
    }
}

/// A private key that is erased when dropped, and its public key.
#[derive(Default)]
struct KeyPair {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    public: [u8; KEY_BYTES],
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
        self.public = curve::public_of(&self.secret);
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

    const INIT_PAYLOAD: InitPayload =
        InitPayload { counter: 7, instance: 1, resumes: 0, rate_bps: 1, reserve_bytes: 2 };
    const RESPONSE_PAYLOAD: ResponsePayload =
        ResponsePayload { instance: 9, rate_bps: 3, reserve_bytes: 4, max_flows: 5 };

    #[test]
    fn both_ends_agree_on_keys_and_payloads() {
        let mut rng = Rng::seed_from_u64(3);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let now = Duration::ZERO;
        let (initiator, init) =
            Initiator::start(PROLOGUE, &air, &hub.public(), &INIT_PAYLOAD, now, &mut rng);
        let received = ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).unwrap();
        assert_eq!((received.from, received.payload), (air.public(), INIT_PAYLOAD));
        let (mut hub_keys, response) = respond(received, &RESPONSE_PAYLOAD, 77, now).unwrap();
        assert_eq!(Initiator::named_in(&response), Some(initiator.index));
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
    fn a_stranger_to_the_hubs_key_is_not_understood() {
        let mut rng = Rng::seed_from_u64(4);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let wrong = SecretKey::generate(&mut rng).public();
        let (_, init) =
            Initiator::start(PROLOGUE, &air, &wrong, &INIT_PAYLOAD, Duration::ZERO, &mut rng);
        assert!(ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).is_none());
    }

    #[test]
    fn a_message_of_another_protocol_is_not_understood() {
        let mut rng = Rng::seed_from_u64(5);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let (peer, now) = (hub.public(), Duration::ZERO);
        let (_, init) = Initiator::start(b"another", &air, &peer, &INIT_PAYLOAD, now, &mut rng);
        assert!(ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).is_none());
        assert!(ReceivedInit::read(b"another", &hub, &init, &mut rng).is_some());
    }
}
