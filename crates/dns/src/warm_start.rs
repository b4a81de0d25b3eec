//! Start with an empty cache: requests the answers that this aircraft used frequently.

use std::time::Duration;

use crate::answer::{Answer, key_of};
use crate::key::Key;
use crate::push;

/// Interval between announcements until the ground acknowledges one.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// Maximum number of announcements.
const MAX_TRIES: u32 = 5;

/// Announcement of an empty cache, and the part of the push that is still accepted.
pub struct WarmStart {
    left_bytes: usize,
    tries: u32,
    /// Time of the next announcement; `None` after an acknowledgement or the last try.
    due: Option<Duration>,
}

impl WarmStart {
    /// Accepts pushed answers of `bytes` in all and announces this from `now` on.
    pub fn new(bytes: u32, now: Duration) -> Self {
        Self { left_bytes: bytes as usize, tries: 0, due: Some(now) }
    }

    /// Time of the next announcement.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Returns the announcement of `bytes` if it is due and the ground is reachable.
    pub fn poll(&mut self, bytes: u32, is_reachable: bool, now: Duration) -> Option<Vec<u8>> {
        self.due.filter(|at| *at <= now)?;
        self.due = (self.tries < MAX_TRIES).then_some(now + RETRY_INTERVAL);
        if !is_reachable || self.tries >= MAX_TRIES {
            return None;
        }
        self.tries += 1;
        Some(push::start(bytes, false))
    }

    /// Records that the ground acknowledged the announcement.
    pub fn acknowledge(&mut self) {
        self.due = None;
    }

    /// Accepts a pushed `message` if it is an answer and fits into the remaining bytes.
    pub fn accept(&mut self, message: &[u8]) -> Option<(Key, Answer)> {
        let left_bytes = self.left_bytes.checked_sub(message.len())?;
        let key = key_of(message).ok()?;
        let answer = Answer::parse(&key, message).ok()?;
        self.left_bytes = left_bytes;
        Some((key, answer))
    }
}
