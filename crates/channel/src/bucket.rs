//! Token buckets before a link's queue: the policer, which drops, and the shaper, which delays.
//!
//! A bucket holds tokens for `bucket` bytes and is filled at `rate`. It starts full. A packet takes
//! as many tokens as it has IP bytes.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::{BitRate, ByteSize, TokenBucket, TokenRate};

use crate::error::SpecError;
use crate::queue::Queue;

/// Minimum bucket: one full packet. A smaller bucket would never pass a full packet.
const MIN_BUCKET_BYTES: u64 = 1500;
/// Maximum number of packets in a shaper, and behind it: 65,536 × 16 bytes = 1 MB each.
const MAX_WAITING: usize = 65_536;

/// Policer: packets that exceed the bucket are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PolicerSpec {
    pub rate: BitRate,
    pub bucket: ByteSize,
}

/// Shaper as written: packets that exceed the bucket wait in the shaper's own queue.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawShaper {
    rate: BitRate,
    bucket: ByteSize,
    queue: Option<Queue>,
}

/// Shaper with its queue in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShaperSpec {
    pub rate: BitRate,
    pub bucket: ByteSize,
    pub queue_bytes: u64,
}

impl PolicerSpec {
    pub fn check(self) -> Result<Self, SpecError> {
        check_bucket("policer", self.rate, self.bucket)?;
        Ok(self)
    }
}

impl RawShaper {
    /// Checks the values. Bandwidth-delay products refer to the shaper's rate and to `rtt`.
    pub fn check(self, rtt: Duration) -> Result<ShaperSpec, SpecError> {
        let Self { rate, bucket, queue } = self;
        check_bucket("shaper", rate, bucket)?;
        let queue = queue.unwrap_or(Queue::Bdp(1.0));
        let queue_bytes = queue.bytes(rate, rtt).max(MIN_BUCKET_BYTES);
        Ok(ShaperSpec { rate, bucket, queue_bytes })
    }
}

fn check_bucket(field: &str, rate: BitRate, bucket: ByteSize) -> Result<(), SpecError> {
    if rate.bps() == 0 {
        let why = "has a rate of 0: use an outage for a link that carries nothing";
        return Err(SpecError::new(field, why.into()));
    }
    if bucket.bytes() < MIN_BUCKET_BYTES {
        let why = format!(
            "has a bucket of {bucket}, which never passes a full packet: at least \
             {MIN_BUCKET_BYTES} bytes"
        );
        return Err(SpecError::new(field, why));
    }
    Ok(())
}

/// Policer with its state.
#[derive(Debug, Clone)]
pub(crate) struct Policer {
    /// In bits.
    rate: TokenRate,
    bucket: TokenBucket,
}

impl Policer {
    pub fn new(spec: &PolicerSpec) -> Self {
        let rate = TokenRate::bits(spec.rate, spec.bucket.bytes());
        Self { rate, bucket: TokenBucket::default() }
    }

    /// Returns `true` and takes the tokens if the packet conforms.
    pub fn admits(&mut self, now_ns: u64, bytes: usize) -> bool {
        self.bucket.take(self.rate, bits(bytes), Duration::from_nanos(now_ns))
    }
}

/// Tokens of a packet.
fn bits(bytes: usize) -> u64 {
    (bytes as u64).saturating_mul(8)
}

/// Shaper with its state. It stores the sizes of waiting packets.
#[derive(Debug, Clone)]
pub(crate) struct Shaper {
    /// In bits.
    rate: TokenRate,
    bucket: TokenBucket,
    limit_bytes: u64,
    /// Packets in the shaper.
    inside: Waiting,
    /// Packets that the link has not sent yet, those in the shaper included.
    unsent: Waiting,
}

impl Shaper {
    pub fn new(spec: &ShaperSpec) -> Self {
        Self {
            rate: TokenRate::bits(spec.rate, spec.bucket.bytes()),
            bucket: TokenBucket::default(),
            limit_bytes: spec.queue_bytes,
            inside: Waiting::default(),
            unsent: Waiting::default(),
        }
    }

    /// Queues a packet offered at `now_ns`. Returns the time at which it leaves the shaper; `None`
    /// if the queue is full. As at a link, an empty queue accepts any packet.
    pub fn offer(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        let inside = self.inside.bytes(now_ns);
        let full = inside.saturating_add(bytes as u64) > self.limit_bytes;
        let too_many = self.inside.packets.len() >= MAX_WAITING;
        if inside > 0 && full || too_many || self.unsent.packets.len() >= MAX_WAITING {
            return None;
        }
        // A packet larger than the bucket leaves when the bucket is full.
        let wanted = bits(bytes).min(self.rate.burst());
        self.bucket.refill(self.rate, Duration::from_nanos(now_ns));
        let leave = self.bucket.holds_at(self.rate, wanted).unwrap_or(Duration::MAX);
        self.bucket.refill(self.rate, leave);
        self.bucket.spend(wanted);
        let leave_ns = u64::try_from(leave.as_nanos()).unwrap_or(u64::MAX);
        self.inside.push(leave_ns, bytes);
        Some(leave_ns)
    }

    /// Records the time at which the link has sent the last packet of [`Self::offer`].
    pub fn sent(&mut self, finish_ns: u64, bytes: usize) {
        self.unsent.push(finish_ns, bytes);
    }

    /// Bytes that the link has not sent completely: whole packets, in the shaper and behind it.
    pub fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        self.unsent.bytes(now_ns)
    }
}

/// Packets until a time each, in order of time.
#[derive(Debug, Clone, Default)]
struct Waiting {
    packets: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Waiting {
    fn push(&mut self, until_ns: u64, bytes: usize) {
        self.packets.push_back((until_ns, bytes as u64));
        self.sum += bytes as u64;
    }

    fn bytes(&mut self, now_ns: u64) -> u64 {
        while let Some((_, bytes)) = self.packets.front().filter(|(until, _)| *until <= now_ns) {
            self.sum -= bytes;
            self.packets.pop_front();
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// One byte per microsecond, a bucket of 3000 bytes.
    fn policer() -> Policer {
        let (rate, bucket) = (BitRate::from_bps(8_000_000), ByteSize::from_bytes(3000));
        Policer::new(&PolicerSpec { rate, bucket })
    }

    fn shaper(queue_bytes: u64) -> Shaper {
        let (rate, bucket) = (BitRate::from_bps(8_000_000), ByteSize::from_bytes(3000));
        Shaper::new(&ShaperSpec { rate, bucket, queue_bytes })
    }

    #[test]
    fn a_policer_passes_its_bucket_and_then_its_rate() {
        let mut policer = policer();
        let passed: Vec<bool> = (0..4).map(|_| policer.admits(0, 1000)).collect();
        assert_eq!(passed, [true, true, true, false]);
        assert!(!policer.admits(MS - 1, 1000), "one nanosecond short of a packet");
        assert!(policer.admits(MS, 1000));
        assert!(!policer.admits(MS, 1));
        // A dropped packet takes no tokens, and the bucket never overflows.
        assert!(policer.admits(100 * MS, 3000));
        assert!(!policer.admits(100 * MS, 1));
    }

    #[test]
    fn a_shaper_passes_its_bucket_and_then_its_rate_in_order() {
        let mut shaper = shaper(2000);
        let left: Vec<_> = (0..6).map(|_| shaper.offer(0, 1000)).collect();
        assert_eq!(left, [Some(0), Some(0), Some(0), Some(MS), Some(2 * MS), None]);
        assert_eq!(shaper.offer(MS, 1000), Some(3 * MS), "one packet has left");
        assert_eq!(shaper.offer(10 * MS, 3000), Some(10 * MS), "the bucket is full again");
    }

    #[test]
    fn a_packet_larger_than_the_bucket_leaves_when_the_bucket_is_full() {
        let mut shaper = shaper(10_000);
        assert_eq!(shaper.offer(0, 1000), Some(0));
        assert_eq!(shaper.offer(0, 9000), Some(MS));
    }

    proptest! {
        #[test]
        fn passed_bytes_never_exceed_bucket_and_rate(
            packets in prop::collection::vec((0u64..3 * MS, 1usize..1500), 1..200),
        ) {
            let (mut policer, mut shaper) = (policer(), shaper(u64::MAX));
            let (mut now, mut policed, mut shaped) = (0, 0u64, 0u64);
            for (gap, bytes) in packets {
                now += gap;
                if policer.admits(now, bytes) {
                    policed += bytes as u64;
                }
                prop_assert!(policed <= 3000 + now / 1000);
                let leave = shaper.offer(now, bytes).unwrap();
                shaped += bytes as u64;
                prop_assert!(leave >= now && shaped <= 3000 + leave / 1000);
            }
        }
    }
}
