//! The paths of a session: the one in hand, the choice among them, and their validation.
//!
//! A session has one path in hand, which its methods work on, and up to seven others. Between two
//! calls the first path is in hand. With a single path nothing here costs anything.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_schedule::Metered;
use bentpipe_units::BitRate;
use rand::RngCore;

use super::path::Path;
use super::timers::OUTAGE_ROUND_TRIPS;
use super::validation::Validation;
use super::{CONFIGURED_PATH, Session};
use crate::crypto::Rng;
use crate::lane::Lane;
use crate::memory::Remembered;
use crate::settings::Settings;
use crate::wire::header::{DataHeader, MAX_PATHS};

/// Maximum interval of challenges on a path that does not answer.
const MAX_CHALLENGE_INTERVAL: Duration = Duration::from_secs(10);
/// Round trips without a report of the path's packets, while others work, after which its symbols go
/// again elsewhere …
const DOUBT_ROUND_TRIPS: f64 = 1.25;
/// … plus this, for the reporter's own pacing.
const DOUBT_SLACK: Duration = Duration::from_millis(50);
/// Maximum part of a path's packets whose loss is left to repairs that leave before any loss is known.
/// If more are lost, symbols go again, a round trip later, until no more than this are missing …
const REPAIRED_LOSS: f64 = 0.1;
/// … and such a round trip with the pacing of its report.
const REPAIR_ROUND_TRIPS: f64 = 1.125;
/// Bytes of a burst: a path whose packet arrives when others have delivered so many carries no part of
/// one.
const BURST_BYTES: u64 = 32 << 10;

/// Bytes that other paths would deliver before a packet of a path arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rivals {
    /// `None` if the packet of the path arrives first.
    delivered_bits: Option<f64>,
}

impl Rivals {
    /// Returns `true` if the packet of the path arrives first.
    pub fn are_later(self) -> bool {
        self.delivered_bits.is_none()
    }

    /// Returns `true` if the others, without the path, would have delivered `bytes` before its packet
    /// arrives: then that only makes a burst's end wait. It is never true of the path whose packet
    /// arrives first.
    pub fn overtake(self, bytes: u64) -> bool {
        self.overtake_all(|| bytes)
    }

    /// The same for bytes that need not be counted for the path whose packet arrives first.
    pub fn overtake_all(self, bytes: impl FnOnce() -> u64) -> bool {
        self.delivered_bits.is_some_and(|bits| bits >= 8.0 * bytes() as f64)
    }
}

impl Path {
    /// Creates path `id` of a session. `prior` are the measurements of the first path from an earlier
    /// session.
    pub fn of_session(
        id: u8,
        peer: SocketAddr,
        settings: &Settings,
        prior: Option<&Remembered>,
        rng: &mut Rng,
        now: Duration,
    ) -> Self {
        let prior = prior.filter(|_| id == CONFIGURED_PATH);
        Self::new(id, peer, &settings_of(settings, id), prior, rng, now)
    }

    /// Returns `true` if the path may carry symbols.
    pub fn is_live(&self) -> bool {
        let is_closed = self.volume.has_quota() && self.is_spent();
        self.validation.is_none() && self.outage.is_none() && !self.is_doubted && !is_closed
    }

    /// Time from `now` until a packet of full size that waits for the pacer has arrived, on a scale
    /// that all paths of the session share.
    fn arrival_s(&self, now: Duration, common: bool) -> f64 {
        self.opens_s(now) + self.packet_time_s() + self.way_s(common)
    }

    fn opens_s(&self, now: Duration) -> f64 {
        self.pacer.opens_at().saturating_sub(now).as_secs_f64()
    }

    /// Time from the sending of a symbol until it is expected, with the round trips in which it is
    /// repaired if the path loses many.
    fn way_s(&self, common: bool) -> f64 {
        self.delay_s(common) + self.repair_s()
    }

    /// Returns `true` if the path loses more than repairs cover that leave before any loss is known.
    pub fn is_lossy(&self) -> bool {
        self.estimator.loss_rate() > REPAIRED_LOSS
    }

    fn repair_s(&self) -> f64 {
        let loss = self.estimator.loss_rate();
        if loss <= REPAIRED_LOSS {
            return 0.0;
        }
        let further = REPAIRED_LOSS.ln() / loss.ln() - 1.0;
        further * REPAIR_ROUND_TRIPS * self.rtt.get().as_secs_f64()
    }

    fn packet_time_s(&self) -> f64 {
        self.pacer.rate().time_for(self.mtu.current() as u64).as_secs_f64()
    }

    /// One-way delay. `common` says that every path has measured it on the peer's clock.
    fn delay_s(&self, common: bool) -> f64 {
        match self.one_way.min_s().filter(|_| common) {
            Some(delay) => delay,
            None => self.rtt.get().as_secs_f64() / 2.0,
        }
    }
}

/// Settings of path `id` of a session.
fn settings_of(settings: &Settings, id: u8) -> Settings {
    let further = usize::from(id).checked_sub(1).and_then(|at| settings.paths.get(at));
    match further {
        Some(path) => Settings {
            rate: path.rate,
            lease: path.lease,
            mtu_bytes: path.mtu_bytes.min(settings.mtu_bytes),
            metered: path.metered,
            quota: path.quota.clone(),
            ..settings.clone()
        },
        None => settings.clone(),
    }
}

/// Name of path `id`, and its rate or the maximum of that.
pub fn terms_of(settings: &Settings, id: u8) -> (&str, BitRate) {
    let further = usize::from(id).checked_sub(1).and_then(|at| settings.paths.get(at));
    further.map_or((&settings.path_name, settings.rate), |path| (&path.name, path.rate))
}

impl Session {
    /// Returns `true` if the peer is silent on all paths, and all of them will be out in a round trip.
    pub fn is_doubtful(&self, now: Duration) -> bool {
        self.paths().all(|path| {
            let rtt = path.rtt.get();
            let wait = (rtt * OUTAGE_ROUND_TRIPS).max(self.settings.min_silence) - rtt;
            !path.is_live() || path.waiting_since.is_some_and(|since| now >= since + wait)
        })
    }

    /// Takes path `id` in hand. Returns `false` if there is none.
    pub(super) fn select(&mut self, id: u8) -> bool {
        if self.path.id == id {
            return true;
        }
        match self.others.iter_mut().find(|path| path.id == id) {
            Some(path) => {
                std::mem::swap(&mut self.path, path);
                true
            }
            None => false,
        }
    }

    /// Takes the first path in hand, between two calls.
    pub(super) fn select_first(&mut self) {
        self.select(self.first_path);
    }

    /// Every path.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&*self.path).chain(self.others.iter().map(|path| &**path))
    }

    /// Returns `true` if a path other than that in hand may carry symbols.
    pub(super) fn has_other_live(&self) -> bool {
        self.others.iter().any(|path| path.is_live())
    }

    /// Returns `true` if the path in hand leaves all symbols to others, because it may be dead or its
    /// bytes cost money.
    pub(super) fn yields(&self) -> bool {
        !self.others.is_empty() && !self.is_used(&self.path) && self.has_other_live()
    }

    /// Numbers of all paths, those first whose packets arrive first.
    pub(super) fn paths_by_arrival(&self, now: Duration) -> impl Iterator<Item = u8> + use<> {
        let common = self.has_common_delays();
        let mut paths = [(f64::INFINITY, u8::MAX); MAX_PATHS as usize];
        for (place, path) in paths.iter_mut().zip(self.paths()) {
            *place = (path.arrival_s(now, common), path.id);
        }
        let count = (1 + self.others.len()).min(paths.len());
        paths[..count].sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        paths.into_iter().take(count).map(|(_, id)| id)
    }

    /// Round trip of the path that datagrams use.
    pub(super) fn datagrams_round_trip(&self) -> Duration {
        let common = self.has_common_delays();
        let used = self.paths().filter(|path| self.carries(path, Metered::Standby, Lane::Datagram));
        let first = used.min_by(|a, b| a.way_s(common).total_cmp(&b.way_s(common)));
        first.map_or(self.path.rtt.get(), |path| path.rtt.get())
    }

    fn has_common_delays(&self) -> bool {
        self.paths().filter(|path| path.is_live()).all(|path| path.one_way.min_s().is_some())
    }

    /// Adds a path to the peer at `address`, if the handshake permits it. It carries data once the
    /// peer has answered a challenge there.
    pub(crate) fn add_path(&mut self, id: u8, address: SocketAddr, now: Duration) -> bool {
        if id >= self.max_paths || self.paths().any(|path| path.id == id) {
            return false;
        }
        let mut path =
            Path::of_session(id, address, &self.settings, self.prior.as_ref(), &mut self.rng, now);
        // The air's own configuration names the address, so that nobody else can be harmed.
        let received_bytes = if self.opens { usize::MAX / 4 } else { 0 };
        path.validation = Some(self.new_validation(path.rtt.get(), received_bytes, now));
        self.others.push(Box::new(path));
        self.coincidence.get_or_insert_default();
        true
    }

    fn new_validation(
        &mut self,
        rtt: Duration,
        received_bytes: usize,
        now: Duration,
    ) -> Validation {
        let mut challenge = [0; 8];
        self.rng.fill_bytes(&mut challenge);
        Validation { challenge, next_try: now, interval: rtt, received_bytes, sent_bytes: 0 }
    }

    /// Begins the validation of the path in hand again, because its newest packet of `bytes` came from
    /// another address.
    pub(super) fn validate_again(&mut self, from: SocketAddr, bytes: usize, now: Duration) {
        self.path.peer = from;
        self.path.validation = Some(self.new_validation(self.path.rtt.get(), bytes, now));
    }

    /// Takes in hand the path of a received packet. At the ground, a new one begins with its first
    /// packet. Returns `false` if the peer may not use it.
    pub(super) fn select_received(
        &mut self,
        header: &DataHeader,
        from: SocketAddr,
        bytes: usize,
        now: Duration,
    ) -> bool {
        let id = header.path;
        if !self.select(id) && (self.opens || !self.add_path(id, from, now) || !self.select(id)) {
            return false;
        }
        if let Some(validation) = &mut self.path.validation
            && from == self.path.peer
        {
            validation.received_bytes = validation.received_bytes.saturating_add(bytes);
        }
        true
    }

    /// Handles the echo of a challenge on a path that carries no data yet.
    pub(super) fn validate(&mut self, from: SocketAddr, echo: Option<[u8; 8]>, now: Duration) {
        let Some(validation) = &self.path.validation else { return };
        if from != self.path.peer || echo != Some(validation.challenge) {
            return;
        }
        self.path.validation = None;
        self.path.ping = true;
        self.first_path = self.first_path.min(self.path.id);
        let peer = self.settings.peer_label(&self.path.peer);
        tracing::info!(%peer, path = self.path.id, "another path is in use");
        self.path.follow_lease(now);
        self.take_over(now);
        self.tune();
    }

    /// Sends again on the path in hand, which has just become live, what is in flight on paths that are
    /// not live: while there was no other path, it waited there.
    pub(super) fn take_over(&mut self, now: Duration) {
        let here = self.path.id;
        for at in 0..self.others.len() {
            let other = &self.others[at];
            if other.validation.is_none() && !other.is_live() {
                self.select(other.id);
                self.resend_elsewhere(now);
                self.select(here);
            }
        }
    }

    /// Takes in hand the path of the next CLOSE: each live one in turn, because the peer may hear only
    /// one.
    pub(super) fn select_for_close(&mut self) {
        let count = self.paths().filter(|path| path.is_live()).count();
        let turn = self.closes_left as usize % count.max(1);
        let chosen = self.paths().filter(|path| path.is_live()).nth(turn).map(|path| path.id);
        self.select(chosen.unwrap_or(self.first_path));
    }

    /// Sets the peer's address on the paths that `moves` names.
    pub(crate) fn paths_moved_to(
        &mut self,
        address: SocketAddr,
        moves: impl Fn(u8) -> bool,
        now: Duration,
    ) {
        for id in (0..self.max_paths).filter(|id| moves(*id)) {
            if !self.select(id) {
                continue;
            }
            self.moved_to(address, now);
            if let Some(validation) = &mut self.path.validation {
                (validation.next_try, validation.interval) = (now, self.path.rtt.get());
            }
        }
        self.select_first();
    }

    /// Time and bytes permitting, takes the next challenge of the path in hand.
    pub(super) fn take_challenge(&mut self, bytes: usize, now: Duration) -> Option<[u8; 8]> {
        let validation = self.path.validation.as_mut()?;
        if validation.next_try > now || !validation.affords(bytes) {
            return None;
        }
        validation.sent_bytes += bytes;
        validation.next_try = now + validation.interval;
        let max = self.path.volume.max_probe_interval(MAX_CHALLENGE_INTERVAL);
        validation.interval = (validation.interval * 2).min(max);
        let challenge = validation.challenge;
        self.path.volume.pay_answer();
        Some(challenge)
    }

    /// Time without news after which the symbols of the path in hand go again on others.
    pub(super) fn doubt_at(&self) -> Option<Duration> {
        if self.path.is_doubted || !self.has_other_live() || !self.path.is_live() {
            return None;
        }
        let usual = self.path.rtt.get().max(self.path.news_after);
        let patience = usual.mul_f64(DOUBT_ROUND_TRIPS) + DOUBT_SLACK;
        self.path.waiting_since.map(|since| since + patience)
    }

    /// Sends again what is in flight on the path in hand, because it may have stopped.
    pub(super) fn resend_elsewhere(&mut self, now: Duration) {
        self.path.is_doubted = true;
        self.path.ping = true;
        self.drop_copies();
        self.path.fragments = None;
        let id = self.path.id;
        for lane in &mut self.send.reliable {
            lane.lose_path(id, now, &mut self.repair_policy);
        }
        self.send.datagrams.forget_slide_on(id);
        self.resent_below = self.send.next_number(Lane::Bulk);
        self.tune();
        // Reports that went here have not arrived either.
        for path in &mut self.others {
            path.reports.repeat(now);
        }
    }

    /// The other live paths that carry `lane` of a class with this use of metered paths. `wait_s` is a
    /// path's further delay.
    pub(super) fn rivals(
        &self,
        (metered, lane): (Metered, Lane),
        wait_s: impl Fn(&Path) -> f64,
        now: Duration,
    ) -> Rivals {
        self.rivals_of(&self.path, |path| self.carries(path, metered, lane), wait_s, now)
    }

    /// Returns `true` if a path carries no part of a burst, because others are so much faster.
    pub(super) fn is_idle_in_bursts(&self, path: &Path, now: Duration) -> bool {
        self.rivals_of(path, |path| self.is_used(path), |_| 0.0, now).overtake(BURST_BYTES)
    }

    /// The paths besides `this` that `carries` names.
    fn rivals_of(
        &self,
        this: &Path,
        carries: impl Fn(&Path) -> bool,
        wait_s: impl Fn(&Path) -> f64,
        now: Duration,
    ) -> Rivals {
        let common = self.has_common_delays();
        // Arrival of the next packet, and time from the opening of the pacer until then.
        let times = |path: &Path| {
            let (opens, packet, way, wait) =
                (path.opens_s(now), path.packet_time_s(), path.way_s(common), wait_s(path));
            (opens + packet + way + wait, packet + way + wait, packet)
        };
        let (arrival, ours, _) = times(this);
        let (mut is_first, mut delivered_bits) = (true, 0.0);
        let others = self.paths().filter(|path| path.id != this.id && carries(path));
        for path in others.filter(|path| path.takes_more(now)) {
            let (other, _, packet) = times(path);
            is_first &= (arrival, this.id) <= (other, path.id);
            let first = other - packet;
            delivered_bits += (ours - first).max(0.0) * path.pacer.rate().bps() as f64;
        }
        Rivals { delivered_bits: (!is_first).then_some(delivered_bits) }
    }
}
