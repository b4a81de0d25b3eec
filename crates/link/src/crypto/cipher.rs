//! ChaCha20-Poly1305 (RFC 8439) as Noise uses it, by ring's assembly, under a key that is erased.

use std::hint::black_box;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};

use crate::key::KEY_BYTES;
use crate::wire::header::TAG_BYTES;

/// Stack that calls of the cipher and of the handshake may have left key material on.
const BURNT_STACK_BYTES: usize = 32 << 10;

/// One direction's key. It is overwritten when dropped. Keep it boxed: a move leaves a copy behind.
pub struct Cipher(LessSafeKey);

impl Cipher {
    /// A cipher under `key`.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(ring_key(key))
    }

    /// Seals what stands in `buffer` from `start` on, and appends the tag.
    pub fn seal(&self, nonce: u64, buffer: &mut Vec<u8>, start: usize) -> bool {
        let sealed =
            self.0.seal_in_place_separate_tag(nonce_of(nonce), Aad::empty(), &mut buffer[start..]);
        sealed.map(|tag| buffer.extend_from_slice(tag.as_ref())).is_ok()
    }

    /// Replaces the content of `plaintext` by what `sealed` holds; `false` for a forgery.
    pub fn open(&self, nonce: u64, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        plaintext.clear();
        let Some((body, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else { return false };
        plaintext.extend_from_slice(body);
        let (nonce, tag) = (nonce_of(nonce), Tag::from(*tag));
        self.0.open_in_place_separate_tag(nonce, Aad::empty(), tag, plaintext, 0..).is_ok()
    }
}

/// The handshake's own use of it, whose last step puts the packet keys into two of them.
impl snow::types::Cipher for Cipher {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0 = ring_key(key);
    }

    fn encrypt(&self, nonce: u64, associated: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (body, rest) = out.split_at_mut(plaintext.len());
        body.copy_from_slice(plaintext);
        let sealed =
            self.0.seal_in_place_separate_tag(nonce_of(nonce), Aad::from(associated), body);
        let tag = sealed.expect("messages of the handshake are short");
        rest[..TAG_BYTES].copy_from_slice(tag.as_ref());
        plaintext.len() + TAG_BYTES
    }

    fn decrypt(
        &self,
        nonce: u64,
        associated: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        let (body, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(snow::Error::Decrypt)?;
        let out = out.get_mut(..body.len()).ok_or(snow::Error::Decrypt)?;
        out.copy_from_slice(body);
        let (nonce, tag) = (nonce_of(nonce), Tag::from(*tag));
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(associated), tag, out, 0..);
        opened.map(|body| body.len()).map_err(|_| snow::Error::Decrypt)
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        self.0 = ring_key(&[0; KEY_BYTES]);
        black_box(&self.0);
        burn_stack();
    }
}

fn ring_key(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    let unbound = UnboundKey::new(&CHACHA20_POLY1305, key);
    LessSafeKey::new(unbound.expect("the key has the algorithm's length"))
}

/// Overwrites the stack below the caller, where calls that have returned left key material.
#[inline(never)]
pub fn burn_stack() {
    let mut burnt = [0_u8; BURNT_STACK_BYTES];
    black_box(&mut burnt);
}

/// Noise's nonce: four zero bytes, then the number (revision 34, section 12.3).
fn nonce_of(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}
