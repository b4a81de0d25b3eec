//! Pushes of frequent answers to aircraft that connect.

use std::collections::HashMap;
use std::time::Duration;

use bentpipe_dns::Key;
use bentpipe_dns::push::{Pusher, mark_pushed};
use bentpipe_units::BitRate;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use bentpipe_metering::counters::Counters;

/// Maximum number of parallel lookups for one aircraft.
pub const MAX_AT_ONCE: usize = 4;

/// Frequent queries of each aircraft, and the pacing of its pushes. Only configured aircraft have
/// entries.
pub struct Pushes {
    bytes_per_second: f64,
    began: Instant,
    aircraft: Mutex<HashMap<[u8; 32], Pusher>>,
}

impl Pushes {
    /// Creates pushes limited to `rate` for each aircraft.
    pub fn new(rate: BitRate) -> Self {
        let bytes_per_second = rate.bps() as f64 / 8.0;
        Self { bytes_per_second, began: Instant::now(), aircraft: Mutex::default() }
    }

    /// Counts a query of `aircraft` for `key`.
    pub fn asked(&self, aircraft: &[u8; 32], key: &Key) {
        self.lock().entry(*aircraft).or_default().count_query(key, self.began.elapsed());
    }

    /// Starts the pushes to `aircraft`, which accepts `bytes`.
    pub fn begins(&self, aircraft: &[u8; 32], bytes: u32) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.lock().entry(*aircraft).or_default().start_push(bytes, self.began.elapsed());
    }

    /// Time of the next push to `aircraft`.
    pub fn next_at(&self, aircraft: &[u8; 32]) -> Option<Instant> {
        Some(self.began + self.lock().get(aircraft)?.next_at()?)
    }

    /// Returns the name whose answer is pushed next.
    pub fn next(&self, aircraft: &[u8; 32]) -> Option<Key> {
        self.lock().get_mut(aircraft)?.next(self.began.elapsed())
    }

    /// Marks `answer` as pushed and returns it if the budget of `aircraft` allows.
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
        self.aircraft.lock()
    }
}
