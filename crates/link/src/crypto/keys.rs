//! The two packet keys that one handshake makes.

use std::time::Duration;

use snow::StatelessTransportState;

use super::ReplayWindow;
use crate::wire::header::{DataHeader, MAX_PACKET_NUMBER, TAG_BYTES};

/// Most packets sealed under one key: far below what ChaCha20-Poly1305 allows (RFC 9001, 6.6),
/// and 14 hours of packets of 1,500 bytes at 1 Gbit/s. New keys are asked for at half of it.
pub const MAX_PACKETS_PER_KEY: u64 = 1 << 32;

/// Packet keys, what they are called, and which packets they have opened.
pub struct Keys {
    state: Box<StatelessTransportState>,
    /// Our name for them: the receiver index of packets that come.
    pub local: u32,
    /// The peer's name for them: the receiver index of packets that go.
    pub remote: u32,
    /// When the handshake ended.
    pub made_at: Duration,
    sealed: u64,
    replay: ReplayWindow,
}

impl Keys {
    pub(super) fn new(
        state: StatelessTransportState,
        local: u32,
        remote: u32,
        now: Duration,
    ) -> Self {
        let state = Box::new(state);
        Self { state, local, remote, made_at: now, sealed: 0, replay: ReplayWindow::default() }
    }

    /// Opens a packet into `plaintext`; `false` for one that is forged, replayed or too old.
    pub fn open(&mut self, header: &DataHeader, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        if sealed.len() < TAG_BYTES || !self.replay.is_fresh(header.number) {
            return false;
        }
        plaintext.resize(sealed.len() - TAG_BYTES, 0);
        if self.state.read_message(header.nonce(), sealed, plaintext).is_err() {
            return false;
        }
        self.replay.take(header.number);
        true
    }

    /// Appends header and sealed `plaintext` to `out`; `false` when the key is used up.
    pub fn seal(&mut self, path: u8, number: u64, plaintext: &[u8], out: &mut Vec<u8>) -> bool {
        if self.sealed >= MAX_PACKETS_PER_KEY || number > MAX_PACKET_NUMBER {
            return false;
        }
        let header = DataHeader { path, receiver: self.remote, number };
        header.put(out);
        let start = out.len();
        out.resize(start + plaintext.len() + TAG_BYTES, 0);
        let sealed = self.state.write_message(header.nonce(), plaintext, &mut out[start..]);
        self.sealed += 1;
        sealed.is_ok()
    }

    /// Whether new keys should be made soon.
    pub fn is_worn(&self, now: Duration, lifetime: Duration) -> bool {
        self.sealed >= MAX_PACKETS_PER_KEY / 2 || now.saturating_sub(self.made_at) >= lifetime
    }
}
