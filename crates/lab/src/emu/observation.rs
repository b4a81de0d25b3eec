//! Observation of one direction of an emulated link: the passage of every packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bentpipe_channel::Fate;
use parking_lot::Mutex;

use super::error::EmuError;
use crate::record::Passage;

/// Maximum number of recorded passages: 2,097,152 × 64 bytes = 128 MiB, which is 20 minutes of
/// 20 Mbit/s.
pub const MAX_PASSAGES: usize = 1 << 21;

/// Recorder of a direction. It is off until an [`Observation`] starts.
#[derive(Debug, Default)]
pub(super) struct Observer {
    is_on: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    passages: Vec<Passage>,
    is_full: bool,
}

impl Observer {
    /// Returns `true` if passages are recorded.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records a passage, if there is room.
    pub fn see(&self, passage: Passage) {
        let mut seen = self.seen.lock();
        if seen.passages.len() < MAX_PASSAGES {
            seen.passages.push(passage);
        } else {
            seen.is_full = true;
        }
    }
}

/// A running observation. Dropping it ends the recording.
#[derive(Debug)]
pub struct Observation {
    observer: Arc<Observer>,
    /// Beginning, on the link's own clock.
    began: Duration,
}

impl Observation {
    pub(super) fn start(observer: Arc<Observer>, began: Duration) -> Self {
        *observer.seen.lock() = Seen::default();
        observer.is_on.store(true, Ordering::Relaxed);
        Self { observer, began }
    }

    /// Passages so far. Times are since the observation began.
    pub fn passages(&self) -> Result<Vec<Passage>, EmuError> {
        let seen = self.observer.seen.lock();
        if seen.is_full {
            return Err(EmuError::LongObservation(MAX_PASSAGES));
        }
        let since = |at: Duration| at.saturating_sub(self.began);
        let moved = seen.passages.iter().map(|passage| Passage {
            at: since(passage.at),
            fate: match passage.fate {
                Fate::Delivered { at } => Fate::Delivered { at: since(at) },
                fate => fate,
            },
            ..*passage
        });
        Ok(moved.collect())
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.observer.is_on.store(false, Ordering::Relaxed);
        *self.observer.seen.lock() = Seen::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_start_of_the_observation() {
        let observer: Arc<Observer> = Arc::default();
        let ms = Duration::from_millis;
        assert!(!observer.is_on());
        let observation = Observation::start(observer.clone(), ms(500));
        assert!(observer.is_on());
        let fate = Fate::Delivered { at: ms(900) };
        observer.see(Passage { flow: 0, at: ms(600), bytes: 100, waited: ms(1), fate });
        let seen = observation.passages().unwrap();
        assert_eq!((seen[0].at, seen[0].fate), (ms(100), Fate::Delivered { at: ms(400) }));
        drop(observation);
        assert!(!observer.is_on() && observer.seen.lock().passages.is_empty());
    }
}
