//! The two packet keys that one handshake makes.

use std::time::Duration;

use super::ReplayWindow;
use super::cipher::Cipher;
use crate::wire::header::{DataHeader, MAX_PACKET_NUMBER};

/// Most packets sealed under one key: far below what ChaCha20-Poly1305 allows (RFC 9001, 6.6),
/// and 14 hours of packets of 1,500 bytes at 1 Gbit/s. New keys are asked for at half of it.
pub const MAX_PACKETS_PER_KEY: u64 = 1 << 32;

/// Most packets that may fail to open under one key: the integrity limit of ChaCha20-Poly1305 (RFC
/// 9001, section 6.6). New keys are asked for at half of it.
pub const MAX_FORGERIES_PER_KEY: u64 = 1 << 36;

/// Packet keys, what they are called, and which packets they have opened.
pub struct Keys {
    /// `None` once they are erased. Boxed, so that a move leaves no copy of them.
    pair: Option<Box<Pair>>,
    /// Our name for them: the receiver index of packets that come.
    pub local: u32,
    /// The peer's name for them: the receiver index of packets that go.
    pub remote: u32,
    /// Time at which the handshake ended.
    pub made_at: Duration,
    sealed: u64,
    failed: u64,
    replay: ReplayWindow,
}

/// One key for each direction.
pub struct Pair {
    /// For what is sent.
    pub seal: Cipher,
    /// For what is received.
    pub open: Cipher,
}

impl Keys {
    pub(super) fn new(pair: Box<Pair>, local: u32, remote: u32, now: Duration) -> Self {
        let replay = ReplayWindow::default();
        Self { pair: Some(pair), local, remote, made_at: now, sealed: 0, failed: 0, replay }
    }

    /// Opens a packet into `plaintext`; `false` for one that is forged, replayed or too old, and for
    /// all once the keys are erased.
    pub fn open(&mut self, header: &DataHeader, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        let Some(pair) = self.pair.as_ref().filter(|_| self.replay.is_fresh(header.number)) else {
            return false;
        };
        if !pair.open.open(header.nonce(), sealed, plaintext) {
            self.failed += 1;
            if self.failed >= MAX_FORGERIES_PER_KEY {
                self.erase();
            }
            return false;
        }
        self.replay.take(header.number);
        true
    }

    /// Appends header and sealed `plaintext` to `out`; `false` when the key is used up or erased.
    pub fn seal(&mut self, path: u8, number: u64, plaintext: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(pair) = self.pair.as_ref().filter(|_| !self.is_used_up()) else { return false };
        if number > MAX_PACKET_NUMBER {
            return false;
        }
        let header = DataHeader { path, receiver: self.remote, number };
        header.put(out);
        let start = out.len();
        out.extend_from_slice(plaintext);
        self.sealed += 1;
        pair.seal.seal(header.nonce(), out, start)
    }

    /// Overwrites them: nothing is sealed or opened any more.
    pub fn erase(&mut self) {
        self.pair = None;
    }

    /// Returns `true` if nothing more may be sealed under them.
    pub fn is_used_up(&self) -> bool {
        self.pair.is_none() || self.sealed >= MAX_PACKETS_PER_KEY
    }

    /// Returns `true` if new keys should be made soon.
    pub fn is_worn(&self, now: Duration, lifetime: Duration) -> bool {
        self.pair.is_none()
            || self.sealed >= MAX_PACKETS_PER_KEY / 2
            || self.failed >= MAX_FORGERIES_PER_KEY / 2
            || now.saturating_sub(self.made_at) >= lifetime
    }

    /// As if so many packets had failed to open.
    #[cfg(test)]
    pub fn fail(&mut self, packets: u64) {
        self.failed += packets;
    }
}
