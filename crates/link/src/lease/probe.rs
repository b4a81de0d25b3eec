//! Probes: trains of ordinary packets at a higher rate, which test whether the link carries it.

use std::time::Duration;

use bentpipe_units::BitRate;

/// Divisor of a probe's length for the queue that makes it fail.
const QUEUE_PART: u32 = 5;
/// Minimum share of its possible bytes that a probe must send to have a result.
const FILLED: f64 = 0.7;

/// A probe that is being sent or awaits its reports.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    pub from: Duration,
    pub until: Duration,
    pub rate: BitRate,
    /// Queueing delay of the last reported packet before the probe.
    pub queue_before: Duration,
    pub sent_bytes: u64,
    pub judged: u64,
    pub lost: u64,
    max_queue: Duration,
}

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    Succeeded,
    Failed,
    /// Too little data was sent.
    Nothing,
}

impl Probe {
    /// Creates a probe whose first packet is sent at `from`, with a queue of `queue` before it.
    pub fn new(from: Duration, length: Duration, rate: BitRate, queue: Duration) -> Self {
        let max_queue = Duration::ZERO;
        let (queue_before, until) = (queue, from + length);
        Self { from, until, rate, queue_before, sent_bytes: 0, judged: 0, lost: 0, max_queue }
    }

    /// Adds a report that judged `judged` packets of the probe, with `lost` lost; the newest waited
    /// for `queue`.
    pub fn reported(&mut self, judged: u64, lost: u64, queue: Duration) {
        self.judged += judged;
        self.lost += lost;
        self.max_queue = self.max_queue.max(queue);
    }

    /// Result, once the whole probe is reported.
    pub fn result(&self, excess_loss: bool) -> ProbeResult {
        let length = self.until - self.from;
        let grown = self.max_queue.saturating_sub(self.queue_before);
        if excess_loss || grown > length / QUEUE_PART {
            return ProbeResult::Failed;
        }
        let could = self.rate.bytes_in(length) as f64;
        if (self.sent_bytes as f64) < FILLED * could {
            ProbeResult::Nothing
        } else {
            ProbeResult::Succeeded
        }
    }
}
