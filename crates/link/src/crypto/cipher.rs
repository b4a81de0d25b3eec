//! The AEADs as Noise uses them, with ring's assembly and erased keys.

use std::hint::black_box;

use ring::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey,
};

use super::Aead;
use crate::key::KEY_BYTES;
use crate::wire::header::TAG_BYTES;

/// Stack on which calls of the cipher and of the handshake may have left key material.
const BURNT_STACK_BYTES: usize = 32 << 10;

/// Key of one direction, overwritten when dropped. It has to stay boxed, because a move leaves a
/// copy.
pub struct Cipher(LessSafeKey);

impl Cipher {
    /// Creates a cipher with `key`.
    pub fn new(aead: Aead, key: &[u8; KEY_BYTES]) -> Self {
        let algorithm = match aead {
            Aead::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Aead::Aes256Gcm => &AES_256_GCM,
        };
        Self(ring_key(algorithm, key))
    }

    /// Seals the bytes of `buffer` from `start` on, and appends the tag.
    pub fn seal(&self, nonce: u64, buffer: &mut Vec<u8>, start: usize) -> bool {
        let sealed =
            self.0.seal_in_place_separate_tag(nonce_of(nonce), Aad::empty(), &mut buffer[start..]);
        sealed.map(|tag| buffer.extend_from_slice(tag.as_ref())).is_ok()
    }

    /// Decrypts `sealed` into `plaintext`. Returns `false` for a forgery.
    pub fn open(&self, nonce: u64, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        plaintext.clear();
        let Some((body, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else { return false };
        plaintext.extend_from_slice(body);
        let (nonce, tag) = (nonce_of(nonce), Tag::from(*tag));
        self.0.open_in_place_separate_tag(nonce, Aad::empty(), tag, plaintext, 0..).is_ok()
    }
}

/// Use by the handshake, whose last step puts the packet keys into two ciphers.
impl snow::types::Cipher for Cipher {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0 = ring_key(&CHACHA20_POLY1305, key);
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
        // A key of ChaCha20-Poly1305 leaves most of its place unused, with a copy of what was on the stack.
        // A key of AES-256-GCM covers the whole place.
        burn_stack();
        self.0 = ring_key(&AES_256_GCM, &[0; KEY_BYTES]);
        black_box(&self.0);
        burn_stack();
    }
}

fn ring_key(algorithm: &'static Algorithm, key: &[u8; KEY_BYTES]) -> LessSafeKey {
    let unbound = UnboundKey::new(algorithm, key);
    LessSafeKey::new(unbound.expect("the key has the algorithm's length"))
}

/// Overwrites the stack below the caller, where returned calls have left key material.
#[inline(never)]
pub fn burn_stack() {
    let mut burnt = [0_u8; BURNT_STACK_BYTES];
    black_box(&mut burnt);
}

/// Nonce of Noise's ChaChaPoly for both AEADs: four zero bytes, then the number (revision 34, section
/// 12.3).
fn nonce_of(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn aes_256_gcm_is_that_of_its_specification() {
        // McGrew and Viega, The Galois/Counter Mode of Operation, test case 14.
        let cipher = Cipher::new(Aead::Aes256Gcm, &[0; KEY_BYTES]);
        let (mut sealed, mut opened) = (vec![0; 16], Vec::new());
        assert!(cipher.seal(0, &mut sealed, 0));
        assert_eq!(
            hex(&sealed),
            "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
        );
        assert!(cipher.open(0, &sealed, &mut opened));
        assert_eq!(opened, [0; 16]);
        sealed[0] ^= 1;
        assert!(!cipher.open(0, &sealed, &mut opened));
    }
}
