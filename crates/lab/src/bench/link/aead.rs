//! The link's AEAD alone: ChaCha20-Poly1305 as ring has it, called as the packet keys call it.

use std::hint::black_box;
use std::time::Duration;

use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::Cipher;

use super::super::cpu;

/// Packets sealed before the same are opened: 90 KB, which stay in the nearest caches, as a packet
/// does that was just put together or has just come.
const BATCH: usize = 64;

/// Larger than any packet.
const BUFFER_BYTES: usize = 2048;

const TAG_BYTES: usize = 16;

/// A key, and room for packets.
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
    /// `None` if ring has no such cipher.
    pub fn new() -> Option<Self> {
        let mut cipher = RingResolver.resolve_cipher(&CipherChoice::ChaChaPoly)?;
        cipher.set(&[7; 32]);
        let buffer = || vec![0x5a; BUFFER_BYTES];
        let sealed = std::iter::repeat_with(buffer).take(BATCH).collect();
        Some(Self { cipher, plaintext: buffer(), sealed })
    }

    /// Seals and opens packets with so many bytes of plaintext each. `None` where one is too long,
    /// or does not open.
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
