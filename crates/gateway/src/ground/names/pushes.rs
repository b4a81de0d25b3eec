//! Unasked answers to aircraft that begin.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_dns::Key;
use bentpipe_dns::push::{Pusher, mark_pushed};
use bentpipe_units::BitRate;
use tokio::time::Instant;

use crate::counters::Counters;

/// Answers for one aircraft that are looked up at once.
pub const MOST_AT_ONCE: usize = 4;

/// Frequent questions of each aircraft, and the pace of its pushes. Only aircraft of the
/// configuration have flows here.
pub struct Pushes {
    bytes_per_second: f64,
    began: Instant,
    aircraft: Mutex<HashMap<[u8; 32], Pusher>>,
}

impl Pushes {
    /// Each aircraft gets no more than `rate`.
    pub fn new(rate: BitRate) -> Self {
        let bytes_per_second = rate.bps() as f64 / 8.0;
        Self { bytes_per_second, began: Instant::now(), aircraft: Mutex::default() }
    }

    /// `aircraft` has asked for `key`.
    pub fn asked(&self, aircraft: &[u8; 32], key: &Key) {
        self.lock().entry(*aircraft).or_default().asked(key, self.began.elapsed());
    }

    /// `aircraft` begins, and takes so many `bytes`.
    pub fn begins(&self, aircraft: &[u8; 32], bytes: u32) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.lock().entry(*aircraft).or_default().begins(bytes, self.began.elapsed());
    }

    /// Time of the next push to `aircraft`.
    pub fn next_at(&self, aircraft: &[u8; 32]) -> Option<Instant> {
        Some(self.began + self.lock().get(aircraft)?.next_at()?)
    }

    /// Next answer to push.
    pub fn next(&self, aircraft: &[u8; 32]) -> Option<Key> {
        self.lock().get_mut(aircraft)?.next(self.began.elapsed())
    }

    /// `answer` as it goes to `aircraft`, if it still may.
    pub fn ready(
        &self,
        aircraft: &[u8; 32],
        mut answer: Vec<u8>,
        counters: &Counters,
    ) -> Option<Vec<u8>> {
        let (now, bytes): (Duration, _) = (self.began.elapsed(), answer.len());
        let mut all = self.lock();
        let pusher = all.get_mut(aircraft)?;
        if !pusher.may_push(bytes, self.bytes_per_second, now) {
            return None;
        }
        counters.names_pushed.add(1);
        counters.names_pushed_bytes.add(bytes as u64);
        mark_pushed(&mut answer);
        Some(answer)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Pusher>> {
        // Nothing in there panics half-way.
        self.aircraft.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
