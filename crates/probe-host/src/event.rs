//! Messages from the measuring threads to the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use bentpipe_probe::clock::Moment;
use bentpipe_probe::record::Measurement;
use bentpipe_probe::recorder::Activity;

/// Maximum number of messages that wait for a slow disk: at 20 a second, 8 minutes. 10,000 × 400 bytes = 4 MB.
const MAX_WAITING: usize = 10_000;

/// A message.
#[derive(Debug)]
pub enum Event {
    /// A measurement ended.
    Measured {
        /// Begin.
        began: Moment,
        /// Duration in microseconds.
        runtime_us: u64,
        /// Run of the job that it belongs to.
        own: Option<Activity>,
        /// The value.
        measurement: Measurement,
    },
    /// A run of a job begins.
    Begin(Activity, Moment),
    /// A run of a job ended.
    End(Activity, Moment),
}

/// Sender of a measuring thread. It never waits: a disk that hangs must not delay a ping.
#[derive(Clone, Debug)]
pub struct Events {
    sender: SyncSender<Event>,
    dropped: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Events {
    /// Makes a sender and the session's receiver.
    pub fn new() -> (Self, Receiver<Event>) {
        let (sender, receiver) = mpsc::sync_channel(MAX_WAITING);
        (Self { sender, dropped: Arc::default(), stopped: Arc::default() }, receiver)
    }

    /// Sends a message, or counts it if too many wait.
    pub fn send(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the number of messages that did not fit.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Tells the threads to end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the threads are to end.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_probe::schedule::Job;

    #[test]
    fn a_full_queue_counts_and_does_not_wait() {
        let (events, receiver) = Events::new();
        let activity = Activity { job: Job::Dns, number: 1 };
        for _ in 0..MAX_WAITING + 3 {
            events.send(Event::Begin(activity, Moment::default()));
        }
        assert_eq!((events.take_dropped(), events.take_dropped()), (3, 0));
        assert_eq!(receiver.try_iter().count(), MAX_WAITING);
    }
}
