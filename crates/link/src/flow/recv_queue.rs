//! Received datagrams of one flow that wait to be read, bounded in bytes and time.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::limits::DATAGRAM_COST_BYTES;

/// Maximum of unread bytes: 170 datagrams of 1,472 bytes, or one second at 1.89 Mbit/s. Readers are
/// woken at once, so more means that the reader has stopped.
pub const MAX_UNREAD_BYTES: usize = 256 << 10;

/// Unread datagrams, each with its time of arrival.
#[derive(Debug, Default)]
pub struct RecvQueue {
    waiting: VecDeque<(Bytes, Duration)>,
    bytes: usize,
}

impl RecvQueue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that a payload counts.
    pub fn cost(payload: &Bytes) -> usize {
        payload.len() + DATAGRAM_COST_BYTES
    }

    pub fn push(&mut self, payload: Bytes, now: Duration) {
        self.bytes += Self::cost(&payload);
        self.waiting.push_back((payload, now));
    }

    /// Takes the oldest datagram.
    pub fn pop(&mut self) -> Option<Bytes> {
        let (payload, _) = self.waiting.pop_front()?;
        self.bytes -= Self::cost(&payload);
        Some(payload)
    }

    /// Drops datagrams that arrived at least `lifetime` ago. Returns their number.
    pub fn expire(&mut self, lifetime: Duration, now: Duration) -> u64 {
        let is_old = |(_, arrived): &(Bytes, Duration)| now.saturating_sub(*arrived) >= lifetime;
        let mut dropped = 0;
        while self.waiting.front().is_some_and(is_old) {
            self.pop();
            dropped += 1;
        }
        dropped
    }
}
