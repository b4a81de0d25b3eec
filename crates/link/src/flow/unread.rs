//! Datagrams of one flow that came and were not read yet: bounded in bytes, and in time as they are
//! anywhere else.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::queues::DATAGRAM_COST_BYTES;

/// Maximum of waiting bytes: 170 of 1,472 bytes, or one second at 1.89 Mbit/s. Readers are woken at
/// once, so more means a reader that has stopped.
pub const MOST_UNREAD_BYTES: usize = 256 << 10;

/// They, and when each came.
#[derive(Debug, Default)]
pub struct Unread {
    waiting: VecDeque<(Bytes, Duration)>,
    bytes: usize,
}

impl Unread {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size for which a payload counts.
    pub fn cost(payload: &Bytes) -> usize {
        payload.len() + DATAGRAM_COST_BYTES
    }

    pub fn push(&mut self, payload: Bytes, now: Duration) {
        self.bytes += Self::cost(&payload);
        self.waiting.push_back((payload, now));
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<Bytes> {
        let (payload, _) = self.waiting.pop_front()?;
        self.bytes -= Self::cost(&payload);
        Some(payload)
    }

    /// Drops those that came `lifetime` ago; how many.
    pub fn expire(&mut self, lifetime: Duration, now: Duration) -> u64 {
        let old = |(_, came): &(Bytes, Duration)| now.saturating_sub(*came) >= lifetime;
        let mut dropped = 0;
        while self.waiting.front().is_some_and(old) {
            self.pop();
            dropped += 1;
        }
        dropped
    }
}
