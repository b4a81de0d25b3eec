//! Timeouts: outages, probes, keep-alives, reports, lease messages.

use std::time::Duration;

use super::{Outage, Session, reap_interval};
use crate::crypto::Aged;
use crate::lane::Lane;

/// Round trips without a packet from the peer after which an outage begins …
const OUTAGE_ROUND_TRIPS: u32 = 3;
/// … and the minimum time.
const MIN_OUTAGE_WAIT: Duration = Duration::from_secs(2);
/// Interval of probes in an outage, as a part of its length, so that a return is noticed soon …
const PROBE_INTERVAL_PART: u32 = 10;
/// … its minimum on short paths; on long ones it is a round trip …
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// … and its maximum.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Slack added before a lane is probed: the reporter's own pacing.
const PROBE_SLACK: Duration = Duration::from_millis(50);
/// Number of first probe timeouts of equal length on a lease. If two packets of five are lost, some
/// probes stay unanswered, and a longer silence is an outage.
const EQUAL_PROBES: u32 = 2;
/// Packets that a probe may send although the congestion window is full (RFC 9002, section 6.2.4).
const PROBE_PACKETS: u32 = 2;
/// Maximum number of doublings of the probe timeout: 64 × 1 s.
const MAX_PROBE_DOUBLINGS: u32 = 6;

impl Outage {
    pub(super) fn next_probe(&mut self, now: Duration) {
        let interval =
            (now.saturating_sub(self.since) / PROBE_INTERVAL_PART).min(MAX_PROBE_INTERVAL);
        self.probe_at = now + interval.max(self.min_interval);
    }
}

impl Session {
    /// Handles everything due by `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if let Some(aged) = self.keys.handle_timeout(now) {
            self.log_key_age(aged);
        }
        if self.keys.is_used_up() && self.flows.len() == 0 {
            self.peer_closed = true; // nothing can be sent, and nothing is lost
        }
        if self.outage.is_none() && self.outage_at().is_some_and(|at| at <= now) {
            let min_interval = self.path.rtt.get().max(MIN_PROBE_INTERVAL);
            let peer = self.settings.peer_label(&self.path.peer);
            tracing::info!(%peer, "nothing heard: data stops, probing");
            self.outage = Some(Outage { since: now, probe_at: now, min_interval, bare: true });
            self.path.mtu.on_outage(now);
            if let Some(congestion) = &mut self.path.congestion {
                congestion.on_timeout();
            }
        }
        if self.outage.is_none() {
            self.path.mtu.handle_timeout(&self.path.rtt, now);
        }
        self.path.lease.handle_timeout(now);
        if self.flows.order_due().is_some_and(|due| due <= now) {
            self.flows.release_ordered(now);
        }
        if self.send.datagrams.due().is_some_and(|due| due <= now) {
            let waiting = self.flows.has_datagrams();
            self.send.datagrams.handle_timeout(waiting, now, &mut self.repair_policy);
        }
        for lane in Lane::RELIABLE {
            let state = &mut self.send.reliable[lane as usize];
            if state.repairs_due().is_some_and(|due| due <= now) {
                state.protect_again(now, &mut self.repair_policy);
            }
            if self.probe_due(lane, now).is_some_and(|due| due <= now) {
                self.send.reliable[lane as usize].probe(now, &mut self.repair_policy);
                if let Some(congestion) = &mut self.path.congestion {
                    congestion.allow_probes(PROBE_PACKETS);
                }
                self.probes[lane as usize] += 1;
            }
        }
        if self.keepalive_at().is_some_and(|at| at <= now) {
            self.path.ping = true;
            self.last_symbol = None;
        }
        if self.next_reap <= now {
            self.flows.reap(now);
            self.next_reap = now + reap_interval(&self.settings);
        }
    }

    /// Time of the next call of [`Self::handle_timeout`] or [`Self::transmit`](Session::transmit).
    /// `transmit` must have returned `None` for `now`.
    pub fn next_timeout(&mut self, now: Duration) -> Duration {
        if self.keys.is_used_up() {
            let ends = [self.keys.next_timeout(), self.ends_at()];
            return ends.into_iter().flatten().fold(self.next_reap, Duration::min);
        }
        self.path.follow_lease(now);
        let lease_talk = self.lease_talk_at(now).map(|at| at.max(self.path.pacer.opens_at()));
        let paced = self.wants_to_send(now).then(|| self.path.pacer.opens_at());
        let report = self.reports.due().map(|due| due.max(self.path.pacer.opens_at()));
        let lanes = Lane::RELIABLE.map(|lane| {
            [self.send.reliable[lane as usize].repairs_due(), self.probe_due(lane, now)]
                .into_iter()
                .flatten()
                .min()
        });
        let others = [
            Some(self.next_reap),
            self.send.datagrams.due(),
            self.flows.order_due(),
            paced,
            report,
            lease_talk,
            self.path.lease.next_timeout(now),
            self.flows.next_ready(now).map(|at| at.max(self.path.pacer.opens_at())),
            self.keys.next_timeout(),
            // A probe waits for the pacer like anything else.
            self.outage
                .map(|outage| outage.probe_at.max(self.path.pacer.opens_at()))
                .or(self.outage_at()),
            self.keepalive_at(),
            self.ends_at(),
            self.probe_at(),
            self.path.mtu.next_timeout(&self.path.rtt).filter(|_| self.outage.is_none()),
            self.path.candidate.as_ref().map(|candidate| candidate.next_try),
        ];
        lanes.into_iter().chain(others).flatten().min().unwrap_or(self.next_reap)
    }

    /// Returns `true` if the outage has lasted so long that the session is over.
    pub(crate) fn has_vanished(&self, now: Duration) -> bool {
        self.ends_at().is_some_and(|at| at <= now)
    }

    /// Time at which an outage ends the session. The air's session does not end: it calls the
    /// ground until the ground answers.
    fn ends_at(&self) -> Option<Duration> {
        (!self.opens).then(|| self.heard_at + self.settings.session_lifetime)
    }

    /// Returns `true` if the pacer opens before `at`, the next timeout, and does not know yet that
    /// nothing waits for it.
    pub(crate) fn is_unpaused(&self, at: Duration) -> bool {
        !self.path.pacer.is_paused() && self.path.pacer.opens_at() < at
    }

    /// Logs the age of the keys.
    fn log_key_age(&self, aged: Aged) {
        let peer = self.settings.peer_label(&self.path.peer);
        match aged {
            Aged::Overdue(end) => tracing::warn!(
                %peer,
                "keys overdue: no handshake has replaced them, and the session stops when they are \
                 {} min old; while the link is up, something on the path drops handshakes (datagrams \
                 that begin with 0x01 or 0x02)",
                end.as_secs() / 60
            ),
            Aged::Erased => tracing::warn!(
                %peer, "keys overdue: they are erased, and the session waits for a handshake"
            ),
        }
    }

    /// Returns `true` if a flow's owner caused something that no timer is set for yet: data to
    /// send, or the wake-up of another owner.
    pub fn has_news(&mut self, now: Duration) -> bool {
        self.closing
            || self.flows.has_events()
            || self.wants_to_send(now)
            || self.flows.next_ready(now).is_some()
    }

    /// Returns `true` if only the pacer delays sending.
    fn wants_to_send(&mut self, now: Duration) -> bool {
        let may_load = self.outage.is_some() || self.path.takes_more(now);
        if self.path.ping || self.path.response.is_some() || (self.fragments.is_some() && may_load)
        {
            return true;
        }
        if self.outage.is_some() {
            return false;
        }
        if may_load && self.path.lease.wants_padding(now) {
            return true;
        }
        if self.lease_talk_at(now).is_some_and(|at| at <= now)
            || self.send.datagrams.slide().is_some()
        {
            return true;
        }
        self.path.takes_more(now) && self.has_symbols(now)
    }

    /// Returns `true` if there is a symbol that the peer would accept.
    pub(super) fn has_symbols(&mut self, now: Duration) -> bool {
        self.send.has_queued(now) || self.next_lane(now).is_some()
    }

    /// Time at which a DEMAND or a LEASE should be sent; never in an outage.
    fn lease_talk_at(&mut self, now: Duration) -> Option<Duration> {
        if self.outage.is_some() {
            return None;
        }
        let lease = &mut self.path.lease;
        let demand_due = if lease.is_client() {
            lease.demand_due(&self.flows.waiting(), self.path.rtt.get(), now)
        } else {
            None
        };
        [demand_due, lease.grant_due()].into_iter().flatten().min()
    }

    fn outage_at(&self) -> Option<Duration> {
        self.path.waiting_since.map(|since| since + self.patience())
    }

    /// Time at which a lane with an unreported tail should be probed.
    fn probe_due(&mut self, lane: Lane, now: Duration) -> Option<Duration> {
        // A queued packet reveals as much as a probe, unless the window keeps it from being sent.
        let held_back = !self.path.takes_more(now);
        if held_back && self.path.congestion.is_none() {
            return None; // the breaker drains a queue: nothing may be sent, not even probes
        }
        let state = &mut self.send.reliable[lane as usize];
        if state.is_clear() || (state.has_queued() && !held_back) || self.outage.is_some() {
            return None;
        }
        let probes = self.probes[lane as usize];
        let like = if self.path.congestion.is_some() { 0 } else { EQUAL_PROBES };
        let doublings = probes.saturating_sub(like).min(MAX_PROBE_DOUBLINGS);
        let patience = (self.path.rtt.overdue_after() + PROBE_SLACK) * (1 << doublings);
        Some(state.last_sent() + patience)
    }

    /// Time at which the air sends a keep-alive, so that the path stays open. With open flows, one
    /// follows the last symbol, because an end that only receives would not notice that the ground
    /// is gone.
    fn keepalive_at(&self) -> Option<Duration> {
        if !self.opens || self.outage.is_some() || self.path.ping {
            return None;
        }
        let keepalive = self.path.last_sent + self.settings.keepalive;
        let stalled = self.last_symbol.filter(|_| self.flows.len() > 0);
        Some(stalled.map_or(keepalive, |at| keepalive.min(at + self.patience())))
    }

    /// Time within which an answer must arrive before an outage begins.
    fn patience(&self) -> Duration {
        (self.path.rtt.get() * OUTAGE_ROUND_TRIPS).max(MIN_OUTAGE_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_schedule::{ClassSettings, PerClass};
    use bentpipe_units::BitRate;

    use super::*;
    use crate::Class;
    use crate::congestion::Congestion;
    use crate::session::tests::Ends;

    /// Returns the waits between the last packet of the lane and each probe, relative to the first,
    /// while the peer's packets arrive but report nothing.
    fn waits(probes: usize, congestion: bool) -> Vec<f64> {
        let mut ends = Ends::connected(3, 1_890_000, true);
        let (lane, mut now) = (Lane::Urgent, ends.now);
        let (_, session) = ends.air.current().expect("it is connected");
        if congestion {
            session.path.congestion = Some(Congestion::new(1280, None, now));
        }
        let target = "origin.example:80".parse().expect("it is one");
        session.open(&target, crate::Class::BestEffort, 9, b"GET", now).expect("there is room");
        let (mut waits, mut out) = (Vec::new(), Vec::new());
        while waits.len() < probes {
            session.heard(now);
            let before = session.probes[lane as usize];
            let due = session.probe_due(lane, now);
            session.handle_timeout(now);
            if session.probes[lane as usize] > before {
                let waited =
                    due.expect("it was sent") - session.send.reliable[lane as usize].last_sent();
                waits.push(waited.as_secs_f64());
            }
            while session.transmit(now, &mut out).is_some() {
                out.clear();
            }
            now += Duration::from_millis(1);
            assert!(now < Duration::from_secs(300), "{waits:?}");
        }
        let first = (session.path.rtt.overdue_after() + PROBE_SLACK).as_secs_f64();
        waits.iter().map(|wait| (wait / first * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn probes_of_an_unreported_lane_back_off() {
        let leased = [1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0];
        assert_eq!(waits(leased.len(), false), leased);
        let controlled = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0];
        assert_eq!(waits(controlled.len(), true), controlled);
    }

    #[test]
    fn news_of_a_lane_ends_its_backoff() {
        let mut ends = Ends::connected(4, 1_890_000, true);
        let (_, session) = ends.air.current().expect("it is connected");
        session.probes = [5; Lane::RELIABLE.len()];
        let target = "origin.example:80".parse().expect("it is one");
        session
            .open(&target, crate::Class::BestEffort, 9, b"GET", ends.now)
            .expect("there is room");
        ends.exchange();
        let (_, session) = ends.air.current().expect("it goes on");
        assert_eq!(session.probes[Lane::Urgent as usize], 0);
        assert_eq!(session.probes[Lane::Bulk as usize], 5, "nothing was told of it");
    }

    #[test]
    fn a_write_held_back_by_a_ceiling_requests_a_timer() {
        let mut ends = Ends::connected(5, 1_890_000, true);
        let now = ends.now;
        let (_, session) = ends.air.current().expect("it is connected");
        let mut classes: PerClass<ClassSettings> = PerClass::default();
        classes[Class::LowerEffort].limits.ceil = Some(BitRate::from_bps(64_000));
        session.set_classes(classes, now).expect("valid classes");
        let target = "origin.example:80".parse().expect("it is one");
        let (flow, _) = session.open(&target, Class::LowerEffort, 9, b"", now).expect("it fits");
        let mut out = Vec::new();
        let mut at = now;
        let mut send = |session: &mut Session, written: bool| {
            for _ in 0..100 {
                while session.transmit(at, &mut out).is_some() {
                    out.clear();
                }
                at += Duration::from_millis(1);
                if written {
                    session.write(flow, &[7; 1000], at);
                }
            }
            at
        };
        send(session, true);
        let at = send(session, false);
        assert!(session.flows.next_lane(at).is_none(), "the class is at its ceiling");
        session.write(flow, &[7; 1000], at);
        assert!(session.has_news(at));
    }
}
