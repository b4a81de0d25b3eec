//! Cost of the link's AEAD alone: the cipher that this machine's packets use, from ring, called as
//! the packet keys call it.

use std::hint::black_box;
use std::time::Duration;

use bentpipe_link::secure;
use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::Cipher;

use super::super::cpu;

/// Packets sealed before the same packets are opened. Their 90 KB stay in the nearest caches, like
/// a packet that was just built or has just arrived.
const BATCH: usize = 64;

/// Size of a buffer, larger than any packet.
const BUFFER_BYTES: usize = 2048;

const TAG_BYTES: usize = 16;

/// A key, and buffers for packets.
pub struct Aead {
    cipher: Box<dyn Cipher>,
    plaintext: Vec<u8>,
    sealed: Vec<Vec<u8>>,
}

/// Cost of sealing and of opening.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bare {
    pub seal: Duration,
    pub open: Duration,
}

impl Aead {
    /// Returns `None` if ring lacks the cipher.
    pub fn new() -> Option<Self> {
        let own = secure::Aeads::of_this_machine();
        let choice = match own.best_with(own) {
            secure::Aead::ChaCha20Poly1305 => CipherChoice::ChaChaPoly,
            secure::Aead::Aes256Gcm => CipherChoice::AESGCM,
        };
        let mut cipher = RingResolver.resolve_cipher(&choice)?;
        cipher.set(&[7; 32]);
        let buffer = || vec![0x5a; BUFFER_BYTES];
        let sealed = std::iter::repeat_with(buffer).take(BATCH).collect();
        Some(Self { cipher, plaintext: buffer(), sealed })
    }

    /// Seals and opens packets with these plaintext sizes. Returns `None` if one is too long or
    /// does not open.
    pub fn run(&mut self, plaintext_bytes: &[usize]) -> Option<Bare> {
        let mut bare = Bare::default();
        if plaintext_bytes.iter().any(|bytes| bytes + TAG_BYTES > BUFFER_BYTES) {
            return None;
        }
        for (index, batch) in plaintext_bytes.chunks(BATCH).enumerate() {
            let numbers = (index * BATCH) as u64..;
            let began = cpu::now();
            for ((bytes, sealed), number) in batch.iter().zip(&mut self.sealed).zip(numbers.clone())
            {
                black_box(self.cipher.encrypt(number, &[], &self.plaintext[..*bytes], sealed));
            }
            bare.seal += cpu::since(began);
            let began = cpu::now();
            for ((bytes, sealed), number) in batch.iter().zip(&self.sealed).zip(numbers) {
                let sealed = &sealed[..bytes + TAG_BYTES];
                black_box(self.cipher.decrypt(number, &[], sealed, &mut self.plaintext).ok()?);
            }
            bare.open += cpu::since(began);
        }
        Some(bare)
    }
}
