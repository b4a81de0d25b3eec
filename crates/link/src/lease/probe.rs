//! A train of ordinary packets at a higher rate, which finds out whether the link carries that.

use std::time::Duration;

use bentpipe_units::BitRate;

/// A probe that makes a queue of this part of its length has failed.
const QUEUE_PART: u32 = 5;
/// A probe without so much of what it could have sent says nothing.
const FILLED: f64 = 0.7;

/// One that is sent or waited for.
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
    most_queue: Duration,
}

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Succeeded,
    Failed,
    /// There was not enough to send.
    Nothing,
}

impl Probe {
    /// One whose first packet leaves at `from`, when the last reported packet waited for `queue`.
    pub fn new(from: Duration, length: Duration, rate: BitRate, queue: Duration) -> Self {
        let most_queue = Duration::ZERO;
        let (queue_before, until) = (queue, from + length);
        Self { from, until, rate, queue_before, sent_bytes: 0, judged: 0, lost: 0, most_queue }
    }

    /// A report judged `judged` packets of the probe, `lost` of them lost; the newest waited for `queue`.
    pub fn reported(&mut self, judged: u64, lost: u64, queue: Duration) {
        self.judged += judged;
        self.lost += lost;
        self.most_queue = self.most_queue.max(queue);
    }

    /// Result, once all of it is reported.
    pub fn verdict(&self, excess_loss: bool) -> Verdict {
        let length = self.until - self.from;
        let grown = self.most_queue.saturating_sub(self.queue_before);
        if excess_loss || grown > length / QUEUE_PART {
            return Verdict::Failed;
        }
        let could = self.rate.bytes_in(length) as f64;
        if (self.sent_bytes as f64) < FILLED * could {
            Verdict::Nothing
        } else {
            Verdict::Succeeded
        }
    }
}
