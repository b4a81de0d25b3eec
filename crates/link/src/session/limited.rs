//! Packets of a path whose bytes are limited.

use std::time::Duration;

use super::Session;
use super::path::Path;
use super::volume::{HEADER_BYTES, MIN_LEFT_BYTES};
use crate::wire::frame;
use crate::wire::header::DATA_OVERHEAD_BYTES;

impl Path {
    /// Returns `true` if the path may carry nothing, because its bytes are limited.
    pub fn is_spent(&self) -> bool {
        let packet = self.packet_volume();
        self.volume.left() < if self.volume.has_quota() { 2 * packet } else { MIN_LEFT_BYTES }
    }

    /// Returns `true` if the path may carry a packet of any size.
    pub fn affords_full(&self) -> bool {
        self.volume.left() >= self.packet_volume()
    }

    /// Returns `true` if padding may measure the path, because its bytes cost nothing.
    pub fn may_be_loaded(&self) -> bool {
        !self.is_standby && !self.volume.is_limited()
    }

    /// Maximum length of a plaintext that the path may carry, at least 380 bytes.
    pub fn affordable_plaintext(&self) -> usize {
        let left = usize::try_from(self.volume.left().max(MIN_LEFT_BYTES)).unwrap_or(usize::MAX);
        let packet = left - HEADER_BYTES as usize + self.outer_bytes();
        self.plaintext_of(packet.min(self.mtu.current()))
    }

    /// Volume of the largest packet.
    fn packet_volume(&self) -> u64 {
        self.mtu.provisioned() as u64 + HEADER_BYTES
    }
}

impl Session {
    /// Calls `compose` if the path in hand may carry a packet.
    pub(super) fn within_volume<T>(
        &mut self,
        compose: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        if self.path.is_spent() {
            self.path.pacer.pause();
            return None;
        }
        let bytes = self.path.packet_volume();
        let composed = if self.path.volume.hold(bytes) { compose(self) } else { None };
        self.path.volume.release();
        composed
    }

    /// Puts the VOLUME of a limited path before the rest of the packet, and counts the packet.
    pub(super) fn count_volume(&mut self) {
        if let Some(number) = self.path.volume.number() {
            let frame = frame::volume(number);
            self.plaintext.splice(0..0, frame);
        }
        let bytes = (self.plaintext.len() + DATA_OVERHEAD_BYTES) as u64 + HEADER_BYTES;
        self.path.volume.sent(bytes);
    }

    /// Notes a received packet of `bytes` on the path in hand.
    pub(super) fn take_volume(&mut self, number: Option<u64>, bytes: usize, now: Duration) {
        let is_of_peer = number.filter(|_| !self.opens || self.path.volume.has_quota());
        if let Err(violation) = self.path.volume.received(is_of_peer, bytes) {
            return self.close_with(violation);
        }
        self.raise_volume(now);
    }

    /// Lets the hub send more on the path in hand, if it needs that.
    pub(super) fn raise_volume(&mut self, now: Duration) {
        if self.path.volume.raise(self.path.rtt.get(), now) {
            self.path.ping = true;
            // The path may only have been silent because it could carry nothing.
            if let Some(outage) = &mut self.path.outage {
                outage.probe_at = now;
            }
        }
    }
}
