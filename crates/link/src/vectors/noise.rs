//! The handshake written a second time from the Noise specification (revision 34), without `snow`,
//! so that the vectors agree with the specification and not only with themselves.

use blake2::{Blake2s256, Digest};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use x25519_dalek::StaticSecret;

pub type Bytes = [u8; 32];

/// Block length of BLAKE2s.
const BLOCK_BYTES: usize = 64;

/// Inputs of both ends.
pub struct Inputs<'a> {
    pub air: Bytes,
    pub hub: Bytes,
    pub air_ephemeral: Bytes,
    pub hub_ephemeral: Bytes,
    pub init: &'a [u8],
    pub response: &'a [u8],
}

/// Results of the handshake.
#[derive(Default)]
pub struct Outputs {
    pub message_1: Vec<u8>,
    pub hash_1: Bytes,
    pub message_2: Vec<u8>,
    pub hash_2: Bytes,
    pub chaining_key: Bytes,
    pub to_hub: Bytes,
    pub to_air: Bytes,
}

/// Noise_IK_25519_ChaChaPoly_BLAKE2s, section 7.5.
pub fn ik(inputs: &Inputs<'_>) -> Outputs {
    let hub = public(&inputs.hub);
    let mut out = Outputs::default();
    let mut state = State::new(b"Noise_IK_25519_ChaChaPoly_BLAKE2s");
    state.mix_hash(b"bentpipe link v1");
    state.mix_hash(&hub);

    let ephemeral = public(&inputs.air_ephemeral);
    out.message_1.extend(ephemeral);
    state.mix_hash(&ephemeral);
    state.mix_key(&dh(&inputs.air_ephemeral, &hub));
    out.message_1.extend(state.seal(&public(&inputs.air)));
    state.mix_key(&dh(&inputs.air, &hub));
    out.message_1.extend(state.seal(inputs.init));
    out.hash_1 = state.hash;

    let ephemeral = public(&inputs.hub_ephemeral);
    out.message_2.extend(ephemeral);
    state.mix_hash(&ephemeral);
    state.mix_key(&dh(&inputs.hub_ephemeral, &public(&inputs.air_ephemeral)));
    state.mix_key(&dh(&inputs.hub_ephemeral, &public(&inputs.air)));
    out.message_2.extend(state.seal(inputs.response));
    out.hash_2 = state.hash;

    out.chaining_key = state.chaining_key;
    [out.to_hub, out.to_air] = hkdf(&state.chaining_key, &[]);
    out
}

/// Seals a data packet: no associated data, the nonce as Noise writes it for ChaChaPoly.
pub fn seal(key: &Bytes, nonce: u64, associated: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let mut full = [0; 12];
    full[4..].copy_from_slice(&nonce.to_le_bytes());
    let payload = Payload { msg: plaintext, aad: associated };
    ChaCha20Poly1305::new(key.into()).encrypt(&Nonce::from(full), payload).expect("it is short")
}

pub fn public(secret: &Bytes) -> Bytes {
    x25519_dalek::PublicKey::from(&StaticSecret::from(*secret)).to_bytes()
}

struct State {
    hash: Bytes,
    chaining_key: Bytes,
    key: Bytes,
    nonce: u64,
}

impl State {
    fn new(name: &[u8]) -> Self {
        assert!(name.len() > 32, "a shorter name would be padded, not hashed");
        let hash = digest(&[name]);
        Self { hash, chaining_key: hash, key: [0; 32], nonce: 0 }
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = digest(&[&self.hash, data]);
    }

    fn mix_key(&mut self, input: &Bytes) {
        [self.chaining_key, self.key] = hkdf(&self.chaining_key, input);
        self.nonce = 0;
    }

    fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let sealed = seal(&self.key, self.nonce, &self.hash, plaintext);
        self.nonce += 1;
        self.mix_hash(&sealed);
        sealed
    }
}

fn dh(secret: &Bytes, public: &Bytes) -> Bytes {
    let public = x25519_dalek::PublicKey::from(*public);
    StaticSecret::from(*secret).diffie_hellman(&public).to_bytes()
}

fn digest(parts: &[&[u8]]) -> Bytes {
    let mut hash = Blake2s256::new();
    parts.iter().for_each(|part| Digest::update(&mut hash, part));
    hash.finalize().into()
}

/// HMAC (RFC 2104) with BLAKE2s; the key is never longer than a block.
fn hmac(key: &[u8], parts: &[&[u8]]) -> Bytes {
    let pad = |with: u8| {
        let mut block = [with; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let (inner, outer) = (pad(0x36), pad(0x5c));
    let inner = digest(&[&[&inner[..]], parts].concat());
    digest(&[&outer, &inner])
}

fn hkdf(chaining_key: &Bytes, input: &[u8]) -> [Bytes; 2] {
    let secret = hmac(chaining_key, &[input]);
    let first = hmac(&secret, &[&[1]]);
    [first, hmac(&secret, &[&first, &[2]])]
}
