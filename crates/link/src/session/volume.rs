//! The volume of a path whose bytes are limited: what the air may send of a quota, and what it lets the
//! hub send.
//!
//! The volume of a packet is its UDP payload and [`HEADER_BYTES`], whatever translators on the path
//! make of its headers. The hub sends nothing beyond the total in the newest VOLUME of the air, and
//! names the total that it has sent. Every packet of such a path has a VOLUME, so that the hub knows the
//! limit before it sends anything.

use std::time::Duration;

use bentpipe_flow::DayUse;

use crate::flow::Violation;
use crate::quota::PathQuota;
use crate::wire::frame::VOLUME_BYTES;

/// Headers of IPv6 and UDP.
pub const HEADER_BYTES: u64 = 48;
/// Bytes that the hub may send before the air has heard of any …
const FIRST_STEP_BYTES: u64 = 16 << 10;
/// … and at most, while it uses them up quickly: 20 Mbit/s over 400 ms.
const MAX_STEP_BYTES: u64 = 1 << 20;
/// Round trips within which a used step makes the next one larger.
const QUICK_ROUND_TRIPS: u32 = 4;
/// Minimum increase that is worth a packet.
const MIN_RAISE_BYTES: u64 = 2048;
/// Bytes for the answer to a packet that repeats an unanswered request: the hub may have sent all that it
/// may, and its packets were lost.
const ANSWER_BYTES: u64 = 512;
/// Minimum volume with which the hub sends anything: a report with everything next to it.
pub const MIN_LEFT_BYTES: u64 = 512;
/// Divisor of a daily limit for keep-alives …
const KEEPALIVE_PARTS: u64 = 8;
/// … of this volume, with their answers.
const KEEPALIVE_BYTES: u64 = 300;
/// Maximum interval of probes and challenges on a limited path that does not answer.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which a used-up quota is read.
const LOOK: Duration = Duration::from_secs(1);

/// Limited volume of a path, in both directions.
#[derive(Debug, Default)]
pub struct Volume {
    /// At the air: bytes that the path may still carry.
    quota: Option<PathQuota>,
    /// Bytes held for the packet being composed.
    held: u64,
    /// Bytes of it that were sent.
    used: u64,
    /// Total that the hub may send on the path, if it is limited.
    limit: Option<u64>,
    /// Total that this end has sent.
    sent: u64,
    /// Total that has arrived.
    received: u64,
    /// At the air: total that the hub has sent, as far as it is known.
    peer_sent: u64,
    /// Bytes that the hub should have.
    step: u64,
    raised_at: Duration,
}

impl Volume {
    pub fn new(quota: Option<PathQuota>, now: Duration) -> Self {
        let limit = quota.is_some().then_some(0);
        let mut volume =
            Self { quota, limit, step: FIRST_STEP_BYTES, raised_at: now, ..Self::default() };
        volume.raise(Duration::ZERO, now);
        volume
    }

    /// Returns `true` if the path's bytes are limited.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns `true` at the air, if the path's bytes are limited.
    pub fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// Use of the daily limit.
    pub fn usage(&self) -> Option<DayUse> {
        self.quota.as_ref().map(PathQuota::usage)
    }

    /// Number in the next packet.
    pub fn number(&self) -> Option<u64> {
        self.limit.map(|limit| if self.quota.is_some() { limit } else { self.sent })
    }

    /// Length of the VOLUME in each packet.
    pub fn frame_bytes(&self) -> usize {
        if self.is_limited() { VOLUME_BYTES } else { 0 }
    }

    pub fn left(&self) -> u64 {
        match (&self.quota, self.limit) {
            (Some(quota), _) => quota.left() + self.held - self.used,
            (None, Some(limit)) => limit.saturating_sub(self.sent),
            (None, None) => u64::MAX,
        }
    }

    /// Time of the next look at a quota that is used up.
    pub fn look_at(&self, now: Duration) -> Option<Duration> {
        self.has_quota().then(|| now + LOOK)
    }

    /// Maximum interval of probes and challenges, which is `usual` on a path without a limit.
    pub fn max_probe_interval(&self, usual: Duration) -> Duration {
        if self.is_limited() { MAX_PROBE_INTERVAL } else { usual }
    }

    /// Interval of keep-alives that takes a small part of the limit.
    pub fn keepalive(&self) -> Duration {
        self.usage().map_or(Duration::ZERO, |DayUse { limit_bytes, .. }| {
            let parts = (limit_bytes / KEEPALIVE_PARTS / KEEPALIVE_BYTES).max(1);
            Duration::from_secs(86_400) / u32::try_from(parts).unwrap_or(u32::MAX)
        })
    }

    fn outstanding(&self) -> u64 {
        self.limit.unwrap_or(0).saturating_sub(self.peer_sent.max(self.received))
    }

    /// At the air: lets the hub send more, if it has used half of what it may. Returns `true` if it
    /// should be told.
    pub fn raise(&mut self, rtt: Duration, now: Duration) -> bool {
        let (Some(quota), Some(limit)) = (&self.quota, self.limit) else { return false };
        let outstanding = self.outstanding();
        if outstanding >= self.step / 2 {
            return false;
        }
        if limit > 0 && now.saturating_sub(self.raised_at) < rtt * QUICK_ROUND_TRIPS {
            self.step = (self.step * 2).min(MAX_STEP_BYTES).min(quota.chunk());
        }
        let bytes = (self.step - outstanding).min(quota.left() / 2);
        if bytes < MIN_RAISE_BYTES {
            return false;
        }
        let bytes = quota.entrust_from(MIN_RAISE_BYTES, bytes);
        self.limit = Some(limit + bytes);
        self.raised_at = now;
        bytes > 0
    }

    /// Pays for the answer to a repeated request.
    pub fn pay_answer(&mut self) {
        if let (Some(quota), Some(limit)) = (&self.quota, self.limit) {
            self.limit = Some(limit + quota.entrust(ANSWER_BYTES));
        }
    }

    /// Notes the volume of a received packet of `bytes`, and the number in it.
    pub fn received(&mut self, number: Option<u64>, bytes: usize) -> Result<(), Violation> {
        let before = self.outstanding();
        let bytes = bytes as u64 + HEADER_BYTES;
        self.received += bytes;
        let Some(quota) = &self.quota else {
            let limit = number.max(self.limit);
            self.limit = limit;
            return Ok(());
        };
        if let Some(number) = number {
            self.peer_sent = self.peer_sent.max(number.saturating_add(bytes));
        }
        quota.settle(before.saturating_sub(self.outstanding()));
        match self.peer_sent.max(self.received) <= self.limit.unwrap_or(0) {
            true => Ok(()),
            false => Err(Violation("more bytes than a limited path may carry")),
        }
    }

    /// Counts a sent packet.
    pub fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.used += bytes;
    }

    /// Holds `bytes` of the quota for the next packet. Returns `false` if fewer are left.
    pub fn hold(&mut self, bytes: u64) -> bool {
        let Some(quota) = &self.quota else { return true };
        (self.held, self.used) = (quota.hold(bytes), 0);
        self.held == bytes
    }

    /// Gives back what the packet did not need.
    pub fn release(&mut self) {
        if let Some(quota) = &self.quota {
            quota.release(self.held, self.used);
            (self.held, self.used) = (0, 0);
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Without a session, the hub sends nothing.
        if let Some(quota) = &self.quota {
            quota.settle(self.outstanding());
        }
    }
}
