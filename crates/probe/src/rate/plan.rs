//! Trains to send.

use super::Packet;

/// Longest time of all trains of a measurement together, in microseconds.
pub const MAX_TRAFFIC: u64 = 3_000_000;

/// Maximum number of bytes of a train.
pub const MAX_TRAIN_BYTES: u64 = 360_000;

/// Maximum number of packets of a train.
pub const MAX_TRAIN_PACKETS: u16 = 1000;

/// Smallest and largest packet, with the IP header. The smallest has room for a message over IPv6, the largest fits
/// into every tunnel.
pub const MIN_PACKET_BYTES: u16 = 120;
const MAX_PACKET_BYTES: u16 = 1200;

/// Slowest and fastest rate of a train in bits per second.
const MIN_BPS: u32 = 10_000;
const MAX_BPS: u32 = 40_000_000;

/// Trains of the search, each four times as fast as the one before.
pub(super) const STAGES: [Part; 4] = [
    Part { bps: 200_000, bytes: 200, count: 96 },
    Part { bps: 800_000, bytes: 200, count: 240 },
    Part { bps: 3_200_000, bytes: 600, count: 192 },
    Part { bps: 12_800_000, bytes: 1200, count: 192 },
];

/// Packets of the last train that pass a policer, about.
const PASSED: u64 = 200;

/// Length of the last train's steady part in microseconds.
const STEADY_US: u64 = 1_200_000;

/// Maximum number of bytes that empty a bucket, and those of the steady part after them.
const MAX_DRAIN_BYTES: u64 = 60_000;
const MAX_STEADY_BYTES: u64 = MAX_TRAIN_BYTES - MAX_DRAIN_BYTES;

/// Packets of one size at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Rate in IP bits per second.
    pub bps: u32,
    /// Bytes of a packet with the IP header.
    pub bytes: u16,
    /// Number of packets.
    pub count: u16,
}

impl Part {
    const NOTHING: Self = Self { bps: MIN_BPS, bytes: MIN_PACKET_BYTES, count: 0 };

    fn total(self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }

    fn time_us(self, packets: u16) -> u64 {
        u64::from(packets) * u64::from(self.bytes) * 8_000_000 / u64::from(self.bps.max(1))
    }

    fn is_valid(self) -> bool {
        (MIN_BPS..=MAX_BPS).contains(&self.bps)
            && (MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&self.bytes)
    }
}

/// A train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Packets that empty a bucket.
    pub drain: Part,
    /// Packets that measure.
    pub steady: Part,
}

impl Plan {
    /// A train of the search.
    pub(super) fn stage(part: Part) -> Self {
        Self { drain: Part::NOTHING, steady: part }
    }

    /// The train that measures a rate of about `rate_bps`, sent `factor` times as fast. A bucket of `burst_bytes` is
    /// emptied before it, at the rate of a train that was too fast.
    pub(super) fn last(rate_bps: u64, factor: f64, burst_bytes: u64, drain_bps: u32) -> Self {
        let limit = |bps: f64| (bps as u32).clamp(MIN_BPS, MAX_BPS);
        let bps = limit(rate_bps as f64 * factor);
        let time_us =
            STEADY_US.min(MAX_STEADY_BYTES.saturating_mul(8_000_000) / u64::from(bps.max(1)));
        let passing = rate_bps.saturating_mul(time_us) / 8_000_000;
        let size = |bytes: u64| {
            (bytes.min(u64::from(u16::MAX)) as u16).clamp(MIN_PACKET_BYTES, MAX_PACKET_BYTES)
        };
        let bytes = size(passing / PASSED);
        let sent = u64::from(bps) * time_us / 8_000_000;
        let count = (sent / u64::from(bytes)).clamp(1, u64::from(MAX_TRAIN_PACKETS) * 2 / 3) as u16;
        let steady = Part { bps, bytes, count };
        let drain_bps = f64::from(drain_bps).max(f64::from(bps));
        // The bucket fills meanwhile.
        let part = 1.0 - rate_bps as f64 / drain_bps;
        let drained = (burst_bytes as f64 / part.max(0.1)) as u64;
        let drained = drained.min(MAX_DRAIN_BYTES);
        let bytes = size(drained / 60);
        let drain =
            Part { bps: limit(drain_bps), bytes, count: (drained / u64::from(bytes)) as u16 };
        Self { drain, steady }
    }

    /// Number of packets.
    pub fn count(self) -> u16 {
        self.drain.count.saturating_add(self.steady.count)
    }

    /// Bytes of all packets.
    pub fn bytes(self) -> u64 {
        self.drain.total() + self.steady.total()
    }

    /// Time from the first packet to the end of the last one, in microseconds.
    pub fn time_us(self) -> u64 {
        self.drain.time_us(self.drain.count) + self.steady.time_us(self.steady.count)
    }

    /// Returns `true` if the train is within all bounds. An origin sends no other train.
    pub fn is_valid(self) -> bool {
        self.drain.is_valid()
            && self.steady.is_valid()
            && (1..=MAX_TRAIN_PACKETS).contains(&self.count())
            && self.bytes() <= MAX_TRAIN_BYTES
            && self.time_us() <= MAX_TRAFFIC
    }

    /// The packets with their times of sending, not arrived yet.
    pub fn packets(self) -> Vec<Packet> {
        let drained_us = self.drain.time_us(self.drain.count);
        let part = |part: Part, start_us: u64| {
            (0..part.count).map(move |number| Packet {
                sent_us: u32::try_from(start_us + part.time_us(number)).unwrap_or(u32::MAX),
                bytes: part.bytes,
                arrived_us: None,
            })
        };
        part(self.drain, 0).chain(part(self.steady, drained_us)).collect()
    }
}
