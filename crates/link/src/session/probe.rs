//! Probes of the path's MTU: what leaves because [`Mtu`](super::mtu::Mtu) asks, and what it is told.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use crate::lane::{Lane, Transmission};
use crate::wire::frame::{self, MAX_ARRIVED, PADDING};
use crate::wire::report::Report;

/// Probes that came are named in every report for so many round trips, since a report may be lost.
const NAMED_ROUND_TRIPS: u32 = 2;
/// A probe lets urgent symbols go first for this part of a round trip.
const POLITE: u32 = 4;

/// The peer's probes that came.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Rising.
    packets: VecDeque<u64>,
    until: Duration,
}

impl Arrivals {
    /// A probe came as `packet`.
    pub fn add(&mut self, packet: u64, rtt: Duration, now: Duration) {
        let at = self.packets.partition_point(|&other| other < packet);
        self.packets.insert(at, packet);
        if self.packets.len() > MAX_ARRIVED {
            self.packets.pop_front();
        }
        self.until = now + rtt * NAMED_ROUND_TRIPS;
    }

    /// What to name now, largest first.
    pub fn named(&self, now: Duration) -> Vec<u64> {
        if now < self.until { self.packets.iter().rev().copied().collect() } else { Vec::new() }
    }
}

impl Session {
    /// The largest packet that carries data now, IP header included.
    pub fn mtu_bytes(&self) -> usize {
        self.path.mtu.current()
    }

    /// The operating system refuses to send a datagram of `bytes` UDP payload to the peer.
    pub(crate) fn too_large(&mut self, bytes: usize, now: Duration) {
        self.path.mtu.refused(bytes + self.path.outer_bytes(), now);
    }

    /// When the next probe leaves, if nothing comes in between.
    pub(super) fn probe_at(&self) -> Option<Duration> {
        let due = self.path.mtu.due_at().filter(|_| self.quiet.is_none())?;
        Some(due.max(self.path.pacer.opens_at()))
    }

    /// Appends the probe that is due. Urgent symbols go first, for a while.
    pub(super) fn transmit_probe(
        &mut self,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let due_at = self.path.mtu.due_at().filter(|_| self.quiet.is_none())?;
        let (bytes, known) = self.path.mtu.due(now)?;
        let late = due_at + self.path.rtt.get() / POLITE <= now;
        if !late && self.urgent_waits(now) {
            return None;
        }
        self.plaintext.clear();
        frame::put_probe(&mut self.plaintext);
        self.plaintext.resize(self.path.plaintext_of(bytes), PADDING);
        let packet = self.path.next_packet();
        // Only what surely fits may make silence look like the peer's.
        let to = self.seal(known, now, out)?;
        self.path.mtu.probed(packet, &self.path.rtt, now);
        self.counters.mtu_probes_sent += 1;
        Some(to)
    }

    fn urgent_waits(&mut self, now: Duration) -> bool {
        let urgent = Lane::Urgent;
        self.send[urgent as usize].has(Transmission::Repair)
            || (self.flows.next_lane(now) == Some(urgent) && self.may_send_new(urgent))
    }

    /// Names the peer's probes beside a report, if they fit.
    pub(super) fn put_arrived(&mut self, now: Duration) {
        let arrived = self.arrivals.named(now);
        let before = self.plaintext.len();
        if !arrived.is_empty() {
            frame::put_arrived(&mut self.plaintext, &arrived);
        }
        if self.plaintext.len() > self.path.most_plaintext() {
            self.plaintext.truncate(before);
        }
    }

    /// A report names some of our packets that came.
    pub(super) fn learn_mtu(&mut self, report: &Report, now: Duration) {
        self.path.arrived(report.largest, now);
        for lane in &report.lanes {
            self.path.arrived(lane.largest, now);
        }
    }
}
