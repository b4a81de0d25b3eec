//! MTU probes: PING and PADDING when [`Mtu`](super::mtu::Mtu) requests them. The reports name those
//! that arrived.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use super::sent::SentContents;
use crate::lane::Lane;
use crate::wire::frame::{self, PADDING};

/// Divisor of a round trip for the time in which urgent symbols go before a probe.
const POLITE: u32 = 4;

impl Session {
    /// Size of the largest packet that carries data now, with its IP header.
    pub fn mtu_bytes(&self) -> usize {
        self.path.mtu.current()
    }

    /// Notes that the operating system refused to send `bytes` of UDP payload on the paths that `is_of`
    /// names with their numbers, to the peer at `to`.
    pub(crate) fn too_large(
        &mut self,
        to: SocketAddr,
        is_of: impl Fn(u8) -> bool,
        bytes: usize,
        now: Duration,
    ) {
        let others = self.others.iter_mut().map(|path| &mut **path);
        for path in others.chain([&mut *self.path]) {
            if path.peer == to && is_of(path.id) {
                path.mtu.refused(bytes + path.outer_bytes(), now);
            }
        }
    }

    /// Time at which the next probe should be sent.
    pub(super) fn probe_at(&self) -> Option<Duration> {
        let may_probe = self.path.outage.is_none() && self.path.affords_full();
        let due = self.path.mtu.due_at().filter(|_| may_probe)?;
        Some(due.max(self.path.pacer.opens_at()))
    }

    /// Appends the probe that is due. Urgent symbols go first for a while.
    pub(super) fn transmit_probe(
        &mut self,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let may_probe = self.path.outage.is_none() && self.path.affords_full();
        let due_at = self.path.mtu.due_at().filter(|_| may_probe)?;
        let (bytes, known) = self.path.mtu.due(now)?;
        let late = due_at + self.path.rtt.get() / POLITE <= now;
        if !late && self.urgent_waits(now) {
            return None;
        }
        self.plaintext.clear();
        frame::put_ping(&mut self.plaintext);
        self.plaintext.resize(self.path.plaintext_of(bytes), PADDING);
        let packet = self.path.next_packet();
        // Only a probe that surely fits may take part in the detection of an outage.
        let probe = SentContents { asks: known, probe: true, ..SentContents::default() };
        let to = self.seal(probe, None, now, out)?;
        self.path.mtu.probed(packet, &self.path.rtt, now);
        self.counters.mtu_probes_sent += 1;
        Some(to)
    }

    fn urgent_waits(&mut self, now: Duration) -> bool {
        let urgent = Lane::Urgent;
        // Symbols that this path may not send now do not delay the probe.
        !self.yields()
            && self.path.takes_more(now)
            && (self.has_resend_in(urgent, now) || self.next_lane(now) == Some(urgent))
    }
}
