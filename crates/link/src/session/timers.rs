//! Timeouts: outages, probes, keep-alives, reports, lease messages.

use std::time::Duration;

use super::outage::Outage;
use super::path::Path;
use super::{Session, reap_interval};
use crate::crypto::Aged;
use crate::lane::{Lane, SendLane};

/// Round trips without a packet from the peer after which an outage begins …
pub(super) const OUTAGE_ROUND_TRIPS: u32 = 3;
/// … and of a path besides which another one works.
const DEAD_ROUND_TRIPS: u32 = 2;
/// Slack added before a lane is probed: the reporter's own pacing.
const PROBE_SLACK: Duration = Duration::from_millis(50);
/// Number of first probe timeouts of equal length on a lease. If two packets of five are lost, some
/// probes stay unanswered, and a longer silence is an outage.
const EQUAL_PROBES: u32 = 2;
/// Packets that a probe may send although the congestion window is full (RFC 9002, section 6.2.4).
const PROBE_PACKETS: u32 = 2;
/// Size of a packet with a challenge and an echo, at most.
const CHALLENGED_BYTES: usize = 100;
/// Keep-alive intervals of a path on standby, whose bytes cost money: 5 min. A NAT may forget it, and
/// the ground then learns the new address from the first packet that is needed.
const STANDBY_KEEPALIVES: u32 = 20;
/// Maximum number of doublings of the probe timeout: 64 × 1 s.
const MAX_PROBE_DOUBLINGS: u32 = 6;

impl Session {
    /// Handles everything due by `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if let Some(aged) = self.keys.handle_timeout(now) {
            self.log_key_age(aged);
        }
        if self.keys.is_used_up() && self.flows.len() == 0 {
            self.peer_closed = true; // nothing can be sent, and nothing is lost
        }
        self.handle_path_timeout(now);
        for at in 0..self.others.len() {
            let id = self.others[at].id;
            self.select(id);
            self.handle_path_timeout(now);
            self.select_first();
        }
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
            self.select_slowest(lane);
            if self.probe_due(lane, now).is_some_and(|due| due <= now) {
                let carried = self.carried(lane);
                self.send.reliable[lane as usize].probe(&carried, now, &mut self.repair_policy);
                if let Some(congestion) = &mut self.path.congestion {
                    congestion.allow_probes(PROBE_PACKETS);
                }
                self.probes[lane as usize] += 1;
            }
        }
        if self.next_reap <= now {
            self.flows.reap(now);
            self.next_reap = now + reap_interval(&self.settings);
        }
        self.select_first();
    }

    /// Handles what is due on the path in hand.
    fn handle_path_timeout(&mut self, now: Duration) {
        self.raise_volume(now);
        if self.doubt_at().is_some_and(|at| at <= now) {
            self.resend_elsewhere(now);
        }
        if self.path.outage.is_none() && self.outage_at().is_some_and(|at| at <= now) {
            self.begin_outage(now);
        }
        if self.path.outage.is_none() {
            let path = &mut *self.path;
            path.mtu.handle_timeout(&path.rtt, now);
        }
        self.path.lease.handle_timeout(now);
        if self.keepalive_at().is_some_and(|at| at <= now) {
            self.path.ping = true;
            self.last_symbol = None;
        }
        self.path.ping |= self.news_at().is_some_and(|at| at <= now);
    }

    /// Stops data on the path in hand; its symbols go again on other paths.
    pub(super) fn begin_outage(&mut self, now: Duration) {
        let peer = self.settings.peer_label(&self.path.peer);
        // What an aircraft reports must not fill the log.
        match !self.opens && self.path.news.is_down {
            true => tracing::debug!(%peer, "the aircraft cannot use the path: data stops, probing"),
            false => tracing::info!(%peer, "nothing heard: data stops, probing"),
        }
        self.note_silence(now);
        self.path.outage = Some(Outage::new(self.path.rtt.get(), now));
        self.drop_copies();
        self.path.mtu.on_outage(now);
        if let Some(congestion) = &mut self.path.congestion {
            congestion.on_timeout();
        }
        if self.has_other_live() {
            self.resend_elsewhere(now);
        }
    }

    /// Takes in hand the used path with the longest round trip among those that carry something of the
    /// lane, or among all: a lane is probed after that.
    fn select_slowest(&mut self, lane: Lane) {
        if self.others.is_empty() {
            return;
        }
        let state = &self.send.reliable[lane as usize];
        let carries = |path: &Path| state.is_in_flight_on(path.id);
        let used = self.paths().filter(|path| self.is_used(path));
        let slowest = used.max_by_key(|path| (carries(path), path.rtt.get(), path.id));
        let slowest = slowest.map(|path| path.id);
        self.select(slowest.unwrap_or(self.first_path));
    }

    /// Time of the next call of [`Self::handle_timeout`] or [`Self::transmit`](Session::transmit).
    /// `transmit` must have returned `None` for `now`.
    pub fn next_timeout(&mut self, now: Duration) -> Duration {
        self.next_timer(now).0
    }

    /// Time and name of the next timer.
    pub fn next_timer(&mut self, now: Duration) -> (Duration, &'static str) {
        if self.keys.is_used_up() {
            return self.first_timer([
                ("idle flows", Some(self.next_reap)),
                ("keys", self.keys.next_timeout()),
                ("end", self.ends_at()),
            ]);
        }
        let mut next = self.next_path_timer(now);
        for at in 0..self.others.len() {
            let id = self.others[at].id;
            self.select(id);
            let timer = self.next_path_timer(now);
            next = if timer.0 < next.0 { timer } else { next };
            self.select_first();
        }
        let probes = Lane::RELIABLE.map(|lane| {
            self.select_slowest(lane);
            self.probe_due(lane, now)
        });
        self.select_first();
        let repairs = self.send.reliable.iter().filter_map(SendLane::repairs_due).min();
        let timers = [
            (next.1, Some(next.0)),
            ("repairs", repairs),
            ("lane probe", probes.into_iter().flatten().min()),
            ("datagrams", self.send.datagrams.due()),
            ("datagram order", self.flows.order_due()),
            ("keys", self.keys.next_timeout()),
            ("end", self.ends_at()),
        ];
        self.first_timer(timers)
    }

    fn first_timer<const N: usize>(
        &self,
        timers: [(&'static str, Option<Duration>); N],
    ) -> (Duration, &'static str) {
        let set = timers.into_iter().filter_map(|(name, at)| at.map(|at| (at, name)));
        set.min_by_key(|(at, _)| *at).unwrap_or((self.next_reap, "idle flows"))
    }

    /// Next timer of the path in hand.
    fn next_path_timer(&mut self, now: Duration) -> (Duration, &'static str) {
        if self.path.is_spent() {
            return self.first_timer([
                ("idle flows", Some(self.next_reap)),
                ("daily limit", self.path.volume.look_at(now)),
                ("doubt", self.doubt_at()),
                ("outage", self.outage_at().filter(|_| self.path.outage.is_none())),
            ]);
        }
        if let Some(validation) = &self.path.validation {
            let next_try =
                Some(validation.next_try).filter(|_| validation.affords(CHALLENGED_BYTES));
            let echo =
                self.path.response.filter(|_| validation.affords(CHALLENGED_BYTES)).map(|_| now);
            return self.first_timer([("challenge", next_try), ("echo", echo)]);
        }
        self.path.follow_lease(now);
        let opens = self.path.pacer.opens_at();
        let paced = |at: Option<Duration>| at.map(|at| at.max(opens));
        let lease_talk = self.lease_talk_at(now);
        let sends = self.wants_to_send(now).then_some(opens);
        let ceiling = self.flows.next_ready(now);
        let reports = self.report_at();
        let outage = self.path.outage.map(|outage| outage.probe_at);
        self.first_timer([
            ("idle flows", Some(self.next_reap)),
            ("pacer", sends),
            ("report", paced(reports)),
            ("lease message", paced(lease_talk)),
            ("lease", self.path.lease.next_timeout(now)),
            ("ceiling", paced(ceiling)),
            // A probe waits for the pacer like anything else.
            ("outage", paced(outage).or(self.outage_at())),
            ("doubt", self.doubt_at()),
            ("MTU probe", self.probe_at()),
            ("keep-alive", self.keepalive_at()),
            ("news", self.news_at()),
            ("MTU", self.path.mtu.next_timeout(&self.path.rtt).filter(|_| outage.is_none())),
            ("move", self.path.candidate.as_ref().map(|candidate| candidate.next_try)),
        ])
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
        let is_unpaused = |path: &Path| !path.pacer.is_paused() && path.pacer.opens_at() < at;
        self.paths().filter(|path| path.is_live()).any(is_unpaused)
            || (self.others.is_empty() && is_unpaused(&self.path))
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
            || self.others_want_to_send(now)
            || self.flows.next_ready(now).is_some()
    }

    /// Returns `true` if a path besides that in hand has something to send.
    fn others_want_to_send(&mut self, now: Duration) -> bool {
        let mut wants = false;
        for at in 0..self.others.len() {
            let id = self.others[at].id;
            self.select(id);
            wants |= self.path.validation.is_none() && self.wants_to_send(now);
            self.select_first();
        }
        wants
    }

    /// Returns `true` if only the pacer delays sending.
    fn wants_to_send(&mut self, now: Duration) -> bool {
        if self.path.is_spent() {
            return false;
        }
        if self.path.ping || self.path.response.is_some() {
            return true;
        }
        if !self.path.affords_full() {
            return false;
        }
        let may_load = self.path.outage.is_some() || self.path.takes_more(now);
        if self.path.has_copy(now) {
            return true;
        }
        if self.yields() {
            return false;
        }
        if self.path.fragments.is_some() && may_load {
            return true;
        }
        if self.path.outage.is_some() {
            return false;
        }
        if may_load && self.path.may_be_loaded() && self.path.lease.wants_padding(now) {
            return true;
        }
        if self.lease_talk_at(now).is_some_and(|at| at <= now)
            || self.send.datagrams.slide().is_some()
        {
            return true;
        }
        self.path.takes_more(now) && self.has_symbols(now)
    }

    /// Time at which a DEMAND or a LEASE should be sent; never in an outage.
    fn lease_talk_at(&mut self, now: Duration) -> Option<Duration> {
        if self.path.outage.is_some() {
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
        let carried = self.carried(lane);
        let state = &mut self.send.reliable[lane as usize];
        let is_queued = !held_back && state.has_queued(&carried);
        if is_queued || self.path.outage.is_some() || !state.has_probe(&carried) {
            return None;
        }
        let probes = self.probes[lane as usize];
        let like = if self.path.congestion.is_some() { 0 } else { EQUAL_PROBES };
        let doublings = probes.saturating_sub(like).min(MAX_PROBE_DOUBLINGS);
        let patience = (self.path.rtt.overdue_after() + PROBE_SLACK) * (1 << doublings);
        Some(state.last_sent() + patience)
    }

    /// Time at which the air sends a keep-alive, so that the path in hand stays open. With open flows, one
    /// follows the last symbol, because an end that only receives would not notice that the ground
    /// is gone.
    fn keepalive_at(&self) -> Option<Duration> {
        let is_silent = self.path.outage.is_some() || self.path.validation.is_some();
        if !self.opens || is_silent || self.path.ping {
            return None;
        }
        let rarely = if self.path.is_standby { STANDBY_KEEPALIVES } else { 1 };
        let interval = (self.settings.keepalive * rarely).max(self.path.volume.keepalive());
        let keepalive = self.path.last_sent + interval;
        let stalled = self.last_symbol.filter(|_| self.flows.len() > 0);
        Some(stalled.map_or(keepalive, |at| keepalive.min(at + self.patience())))
    }

    /// Time within which an answer must arrive before an outage begins.
    fn patience(&self) -> Duration {
        if self.has_other_live() {
            return self.path.rtt.get() * DEAD_ROUND_TRIPS + PROBE_SLACK;
        }
        (self.path.rtt.get() * OUTAGE_ROUND_TRIPS).max(self.settings.min_silence)
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
