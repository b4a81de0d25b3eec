//! Turns of connections that may have something to send, and of those with a due timer.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_link::secure::{Aged, DATA_OVERHEAD_BYTES};

use super::{ASSOCIATION, MAX_COMPLETED, Session};
use crate::conn::TransmitParams;
use crate::segment::{Ack, Kind, Segment};

impl Session {
    /// Appends the next packet to `out`. Returns its destination.
    pub(crate) fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.closed || self.keys.is_used_up() {
            return None;
        }
        let mut plaintext = std::mem::take(&mut self.plaintext);
        plaintext.clear();
        let (some, owed) = self.next_segment(now, &mut plaintext);
        let sent = some && self.keys.seal(0, self.next_packet, &plaintext, out);
        self.plaintext = plaintext;
        if !sent {
            return None;
        }
        self.next_packet += 1;
        self.counters.packets_sent += 1;
        self.last_sent = now;
        if owed {
            self.owed_since.get_or_insert(now);
        }
        Some(self.address)
    }

    /// Appends the next segment. Returns two flags: a segment was written, and the peer must answer
    /// it.
    fn next_segment(&mut self, now: Duration, out: &mut Vec<u8>) -> (bool, bool) {
        let bare = |connection, ack, kind| Segment { connection, ack, stop: None, kind };
        let none = Ack::default();
        if self.closing {
            if self.goodbyes_left == 0 {
                return (false, false);
            }
            self.goodbyes_left -= 1;
            let kind = Kind::Reset { code: ResetCode::Aborted, ask: false };
            return (bare(ASSOCIATION, none, kind).put(out), false);
        }
        if let Some((id, ack, kind)) = self.replies.pop_front() {
            let owed = matches!(kind, Kind::Plain { ask: true } | Kind::Reset { ask: true, .. });
            return (bare(id, ack, kind).put(out), owed);
        }
        while let Some(id) = self.ready.pop_front() {
            self.in_ready.remove(&id);
            let terms =
                TransmitParams { window: self.window_of(id), segment_bytes: self.segment_bytes() };
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let before = connection.deadline();
            if connection.transmit(terms, now, out) {
                let owed = connection.awaits_answer();
                self.round_trip = connection.round_trip();
                self.make_ready(id);
                self.set_timer(id, now);
                return (true, owed);
            }
            if connection.deadline() != before {
                self.set_timer(id, now);
            }
        }
        if self.opens && now >= self.last_sent + self.settings.keepalive {
            return (bare(ASSOCIATION, none, Kind::Plain { ask: true }).put(out), true);
        }
        (false, false)
    }

    /// Size of a segment in a full packet.
    fn segment_bytes(&self) -> usize {
        const UDP_BYTES: usize = 8;
        let ip_bytes = if self.address.is_ipv4() { 20 } else { 40 };
        self.settings.mtu_bytes - ip_bytes - UDP_BYTES - DATA_OVERHEAD_BYTES
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub(crate) fn next_timeout(&self, now: Duration) -> Duration {
        let connection = self.timers.first().map(|(at, _)| *at);
        let (keys, speaks) = (self.keys.next_timeout(), !self.keys.is_used_up());
        let connection = connection.filter(|at| speaks || *at > now);
        let keepalive = (self.opens && speaks).then(|| self.last_sent + self.settings.keepalive);
        let silent = self.silent_at().filter(|at| self.opens && *at > now);
        let times = connection.into_iter().chain(keepalive).chain(silent).chain(keys);
        times.min().unwrap_or(Duration::MAX)
    }

    /// Handles due timers.
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        if let Some(aged) = self.keys.handle_timeout(now) {
            let peer = self.address;
            match aged {
                Aged::Overdue(end) => tracing::warn!(
                    %peer, minutes = end.as_secs() / 60,
                    "keys overdue: no handshake has replaced them, and the association stops when \
                     they are so old"
                ),
                Aged::Erased => tracing::warn!(
                    %peer, "keys overdue: they are erased, and the association waits for a handshake"
                ),
            }
        }
        // Without keys nothing can be sent, and without connections nothing is lost.
        self.closed |= self.keys.is_used_up() && self.connections.is_empty();
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_timeout(now);
            }
            self.touch(id, now);
            // A timer that is due again at once waits until its packet was sent.
            if let Some(at) = self.timer_of.get(&id).copied().filter(|at| *at <= now) {
                self.timers.remove(&(at, id));
                self.timer_of.remove(&id);
            }
        }
    }

    pub(super) fn make_ready(&mut self, id: u64) {
        if self.in_ready.insert(id) {
            self.ready.push_back(id);
        }
    }

    /// Gives a connection a turn and sets its timer after a possible change.
    pub(super) fn touch(&mut self, id: u64, now: Duration) {
        self.make_ready(id);
        self.set_timer(id, now);
    }

    fn set_timer(&mut self, id: u64, now: Duration) {
        if let Some(at) = self.timer_of.remove(&id) {
            self.timers.remove(&(at, id));
        }
        let Some(connection) = self.connections.get(&id) else { return };
        if connection.is_over(now) {
            return self.forget(id);
        }
        if let Some(at) = connection.deadline() {
            self.timer_of.insert(id, at);
            self.timers.insert((at, id));
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(mut connection) = self.connections.remove(&id) {
            let was_live = connection.is_live();
            if let Some(number) = connection.received_all() {
                if self.completed.len() == MAX_COMPLETED {
                    self.completed.pop_front();
                }
                self.completed.push_back((id, number));
            }
            connection.lose(&mut self.pools);
            self.counters.timeouts += connection.timeouts();
            self.used.insert(id);
            self.settle(id, was_live);
        }
    }
}
