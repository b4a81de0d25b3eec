//! Trains: packets of ordinary data that are sent faster than the capacity for a short time. Their
//! arrival rate is the capacity, or the train's own rate if the path carries that.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::loss::LossRounds;

/// Divisor of a round trip for the length of a train …
const PART: u32 = 10;
/// … its minimum, which timers disturb little …
const MIN_LENGTH: Duration = Duration::from_millis(20);
/// … its maximum …
const MAX_LENGTH: Duration = Duration::from_millis(60);
/// … and its minimum in packets.
const MIN_PACKETS: u64 = 24;
const PACKET_BITS: f64 = 12_000.0;
/// Part of a train whose arrivals do not count, because the queue begins with them.
const BEGINNING: u32 = 3;
/// Share of the sending rate at which arrivals show that the path carries the train.
pub const CARRIED: f64 = 0.95;
/// Minimum share of its possible bytes that a train must have, unless a queue shows.
const FILLED: f64 = 0.7;
/// Bytes of padding in a train.
const FILLING_BYTES: u64 = 7 * 1400;
/// Bytes whose arrivals confirm a rate.
const CONFIRMING_BYTES: u64 = 6 * 1200;

/// A train.
#[derive(Debug, Clone, Copy)]
pub struct Train {
    pub from: Duration,
    length: Duration,
    /// Rate ÷ capacity.
    pub gain: f64,
    capacity_bps: f64,
    sent_bytes: u64,
    judged: u64,
    lost: u64,
    is_over: bool,
}

/// Result of a train.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub bps: f64,
    pub gain: f64,
    /// The path carried the train.
    pub succeeded: bool,
    /// The train arrived as fast as it was sent, but with losses beyond the channel's.
    pub polices: bool,
}

/// Length of a train at `rate_bps` on a path with this round trip.
pub fn length(rtt: Duration, rate_bps: f64) -> Duration {
    let packets = Duration::from_secs_f64(MIN_PACKETS as f64 * PACKET_BITS / rate_bps.max(1.0));
    (rtt / PART).clamp(MIN_LENGTH, MAX_LENGTH).max(packets.min(Duration::from_secs(2)))
}

impl Train {
    /// Creates a train whose first packet is sent at `from`.
    pub fn new(from: Duration, length: Duration, gain: f64, capacity_bps: f64) -> Self {
        Self { from, length, gain, capacity_bps, sent_bytes: 0, judged: 0, lost: 0, is_over: false }
    }

    pub fn until(&self) -> Duration {
        self.from + self.length
    }

    pub fn is_sent_at(&self, now: Duration) -> bool {
        now < self.until()
    }

    /// Returns `true` if it has enough packets to be measured.
    pub fn is_filled(&self) -> bool {
        self.is_over || self.sent_bytes >= FILLING_BYTES
    }

    /// Counts a packet.
    pub fn sent(&mut self, bytes: usize, now: Duration) {
        if self.is_sent_at(now) {
            self.sent_bytes += bytes as u64;
        }
    }

    /// Counts a report about its packets.
    pub fn reported(&mut self, judged: u64, lost: u64) {
        self.judged += judged;
        self.lost += lost;
    }

    /// Returns `true` if enough packets have arrived to compare two rates.
    pub fn confirms(&self, arrivals: &Arrivals) -> bool {
        let passage = arrivals.between(self.from, self.until());
        passage.is_some_and(|passage| passage.bytes >= CONFIRMING_BYTES)
    }

    /// Time to rest after the train's last packet, at a rate lower by `by` of the capacity. `None`
    /// before its end and after the first call.
    pub fn rest(&mut self, now: Duration, by: f64) -> Option<Duration> {
        if self.is_over || self.is_sent_at(now) {
            return None;
        }
        self.is_over = true;
        Some(self.length.mul_f64((self.gain - 1.0).max(0.0) / by))
    }

    /// Largest queue that the train itself may cause for a packet sent at `sent`.
    pub fn queue_at(&self, sent: Duration) -> Duration {
        if sent < self.from {
            return Duration::ZERO;
        }
        self.length.mul_f64(1.5 * (self.gain - 1.0).max(0.0))
    }

    /// Result, once the whole train is reported. `None` if too little was sent to say anything.
    pub fn result(&self, arrivals: &Arrivals, loss: &LossRounds) -> Option<Measured> {
        let (from, until) = (self.from + self.length / BEGINNING, self.until());
        let passage =
            arrivals.between(from, until).or_else(|| arrivals.between(self.from, until))?;
        let succeeded = passage.arrived_bps >= CARRIED * passage.sent_bps;
        let could = self.gain * self.capacity_bps * self.length.as_secs_f64() / 8.0;
        let is_filled = self.sent_bytes as f64 >= FILLED * could;
        if self.gain > 1.0 && succeeded && !is_filled {
            return None;
        }
        let bps = passage.arrived_bps.min(self.gain * self.capacity_bps);
        let polices = self.gain > 1.0 && succeeded && loss.exceeds(self.judged, self.lost);
        Some(Measured { bps, gain: self.gain, succeeded, polices })
    }
}
