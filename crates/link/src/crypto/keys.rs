//! The two packet keys of one handshake.

use std::time::Duration;

use super::cipher::Cipher;
use super::{Aead, ReplayWindow};
use crate::wire::header::{DataHeader, MAX_PACKET_NUMBER, MAX_PATHS};

/// Maximum number of packets that fail to open with one key: the integrity limit of
/// ChaCha20-Poly1305, which is below that of AES-256-GCM (RFC 9001, section 6.6). New keys are
/// requested at half of it.
pub const MAX_FORGERIES_PER_KEY: u64 = 1 << 36;

/// Packet keys, their indices, and the packets they have opened.
pub struct Keys {
    /// `None` once erased. Boxed, so that a move leaves no copy.
    pair: Option<Box<Pair>>,
    aead: Aead,
    /// Our index of them: the receiver index of received packets.
    pub local: u32,
    /// The peer's index of them: the receiver index of sent packets.
    pub remote: u32,
    /// Time at which the handshake ended.
    pub made_at: Duration,
    sealed: u64,
    failed: u64,
    /// Windows of the paths, as far as packets have been opened: at most 8 × 552 bytes.
    opened: Vec<Opened>,
}

/// Packets opened on one path.
#[derive(Default)]
struct Opened {
    /// Number of the first one.
    first: Option<u64>,
    replay: ReplayWindow,
}

/// One key for each direction.
pub struct Pair {
    /// Key for sending.
    pub seal: Cipher,
    /// Key for receiving.
    pub open: Cipher,
}

impl Keys {
    pub(super) fn new(
        pair: Box<Pair>,
        aead: Aead,
        local: u32,
        remote: u32,
        made_at: Duration,
    ) -> Self {
        let (pair, opened) = (Some(pair), vec![Opened::default()]);
        Self { pair, aead, local, remote, made_at, sealed: 0, failed: 0, opened }
    }

    /// Algorithm of the packets.
    pub fn aead(&self) -> Aead {
        self.aead
    }

    /// Opens a packet into `plaintext`. Returns `false` for one that is forged, replayed or too
    /// old, and for all once the keys are erased.
    pub fn open(&mut self, header: &DataHeader, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        let (path, number) = (usize::from(header.path), header.number);
        let is_fresh = self.opened.get(path).is_none_or(|it| it.replay.is_fresh(number));
        let is_fresh = is_fresh && header.path < MAX_PATHS;
        let Some(pair) = self.pair.as_ref().filter(|_| is_fresh) else { return false };
        if !pair.open.open(header.nonce(), sealed, plaintext) {
            self.failed += 1;
            if self.failed >= MAX_FORGERIES_PER_KEY {
                self.erase();
            }
            return false;
        }
        while self.opened.len() <= path {
            self.opened.push(Opened::default());
        }
        let opened = &mut self.opened[path];
        opened.replay.take(number);
        opened.first.get_or_insert(number);
        true
    }

    /// Appends header and sealed `plaintext` to `out`. Returns `false` if the key is used up or
    /// erased.
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

    /// Erases the keys: nothing is sealed or opened any more.
    pub fn erase(&mut self) {
        self.pair = None;
    }

    /// Returns `true` if nothing more may be sealed.
    pub fn is_used_up(&self) -> bool {
        self.pair.is_none() || self.sealed >= self.aead.max_packets_per_key()
    }

    /// Returns `true` if new keys should be requested.
    pub fn needs_rekey(&self, now: Duration, lifetime: Duration) -> bool {
        self.pair.is_none()
            || self.sealed.max(self.peer_sealed()) >= self.aead.max_packets_per_key() / 2
            || self.failed >= MAX_FORGERIES_PER_KEY / 2
            || now.saturating_sub(self.made_at) >= lifetime
    }

    /// Number of packets that the peer sealed with them, by packet numbers.
    fn peer_sealed(&self) -> u64 {
        let numbers = self.opened.iter().filter_map(|it| it.replay.newest().zip(it.first));
        numbers.map(|(newest, first)| newest.saturating_sub(first) + 1).sum()
    }

    /// Counts failed packets, for tests.
    #[cfg(test)]
    pub fn fail(&mut self, packets: u64) {
        self.failed += packets;
    }
}
