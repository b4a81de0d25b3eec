//! Probes of the path's MTU: PING and PADDING, when [`Mtu`](super::mtu::Mtu) asks. The reports name
//! those that came.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use super::sent::Cargo;
use crate::lane::Lane;
use crate::wire::frame::{self, PADDING};

/// A probe lets urgent symbols go first for this part of a round trip.
const POLITE: u32 = 4;

impl Session {
    /// The largest packet that carries data now, IP header included.
    pub fn mtu_bytes(&self) -> usize {
        self.path.mtu.current()
    }

    /// The operating system refuses to send a datagram of `bytes` UDP payload to the peer.
    pub(crate) fn too_large(&mut self, bytes: usize, now: Duration) {
        self.path.mtu.refused(bytes + self.path.outer_bytes(), now);
    }

    /// Time at which the next probe leaves, if nothing comes in between.
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
        frame::put_ping(&mut self.plaintext);
        self.plaintext.resize(self.path.plaintext_of(bytes), PADDING);
        let packet = self.path.next_packet();
        // Only what surely fits may make silence look like the peer's.
        let probe = Cargo { asks: known, probe: true, ..Cargo::default() };
        let to = self.seal(probe, None, now, out)?;
        self.path.mtu.probed(packet, &self.path.rtt, now);
        self.counters.mtu_probes_sent += 1;
        Some(to)
    }

    fn urgent_waits(&mut self, now: Duration) -> bool {
        let urgent = Lane::Urgent;
        // What may not leave anyway is not waited for.
        self.path.takes_more()
            && (self.send.reliable[urgent as usize].has_queued()
                || self.next_lane(now) == Some(urgent))
    }
}
