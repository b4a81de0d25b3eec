//! Calls about the rate at which a session sends.

use std::time::Duration;

use bentpipe_flow::{RateInUse, RateSource};
use bentpipe_units::BitRate;

use super::path::Path;
use super::paths::terms_of;
use super::{CONFIGURED_PATH, Session};
use crate::lease::{Demand, Grant, Lease, ModemRate, QueueTrace, Share, Source};
use crate::settings::{MAX_RATE, Settings};

/// Rate assumed of a peer that learns its rate until it has sent faster.
const MIN_LEARNED_RATE: BitRate = BitRate::from_bps(256_000);

impl Session {
    /// The lease in force, with its rate as far as the breaker permits.
    pub fn lease(&mut self, now: Duration) -> Lease {
        self.path.lease.lease(now)
    }

    /// Adopts settings that [`Settings::adopting`] derived from this session's.
    pub(crate) fn adopt(&mut self, settings: Settings, now: Duration) {
        if settings.rate != self.settings.rate && self.select(CONFIGURED_PATH) {
            self.path.lease.set_cap(settings.rate);
            self.path.follow_lease(now);
            self.select_first();
        }
        if settings.classes != self.settings.classes {
            self.flows.set_classes(settings.classes, now);
        }
        self.settings = settings;
        self.path.follow_lease(now);
        self.tune();
    }

    /// Rate at which this end sends.
    pub(super) fn sending(&mut self, now: Duration) -> RateInUse {
        let lease = self.path.lease.lease(now);
        let source = match lease.source {
            _ if self.path.congestion.is_some() => RateSource::Window,
            Source::Idle => RateSource::Minimum,
            Source::Learned if self.path.lease.competes() => RateSource::Competing,
            Source::Learned => RateSource::Learned,
            Source::Config => RateSource::Setting,
            Source::Grant => RateSource::Grant,
            Source::Modem => RateSource::Modem,
        };
        let rate = match source {
            RateSource::Window => Some(self.path.pacer.rate()),
            // Trains and rests are not worth showing.
            RateSource::Learned => self.path.lease.learned(),
            _ => Some(lease.rate),
        };
        let ceiling = terms_of(&self.settings, self.path.id).1;
        let ceiling = Some(ceiling).filter(|rate| *rate < MAX_RATE);
        RateInUse { rate, source, ceiling }
    }

    /// Rate at which the peer sends: its announcement, or what arrived if it learns its rate.
    pub(super) fn receiving(&self) -> RateInUse {
        let (rate, source) = match self.peer_learns() {
            true => (self.path.recorder.rate(), RateSource::Arrivals),
            false => (self.peer.rate, RateSource::Announced),
        };
        RateInUse { rate: Some(rate).filter(|rate| rate.bps() > 0), source, ceiling: None }
    }

    /// Queueing delay towards the peer in its newest report.
    pub fn queue(&self) -> Duration {
        self.path.lease.queue()
    }

    /// Sets the rate that a path's modem reports; `None` if nothing is known of it.
    pub fn set_modem_rate(&mut self, path: u8, reported: Option<ModemRate>, now: Duration) {
        if self.select(path) {
            self.path.lease.set_modem(reported, now);
            self.path.follow_lease(now);
        }
        self.select_first();
    }

    /// Sets this session's part of a beam that this end shares among several; `None` if there is
    /// none. Returns `true` if it changed.
    pub(crate) fn set_part(&mut self, part: Option<BitRate>) -> bool {
        self.path.lease.set_part(part)
    }

    /// Rate that could be used for waiting data.
    pub(crate) fn useful_rate(&mut self, now: Duration) -> BitRate {
        let waiting = self.flows.waiting();
        self.path.lease.useful(&waiting, self.path.rtt.get(), now)
    }

    /// Takes the aircraft's newest DEMAND.
    pub(crate) fn take_demand(&mut self) -> Option<Demand> {
        self.path.lease.take_demand()
    }

    /// The aircraft's share of a beam.
    pub(crate) fn share(&self) -> Share {
        self.settings.share
    }

    /// Grants the aircraft a rate.
    pub(crate) fn grant(&mut self, grant: Grant, now: Duration) {
        self.path.lease.grant(grant, now);
    }

    // Learned rates, at the ground.

    /// Returns `true` if a learned rate is in force.
    pub(crate) fn learns_rate(&self, now: Duration) -> bool {
        self.path.lease.learner(now).is_some()
    }

    /// Queue over the time of sending, if the rate is learned.
    pub(crate) fn queue_trace(&self, now: Duration) -> Option<QueueTrace> {
        Some(self.path.lease.learner(now)?.trace().clone())
    }

    /// The learned capacity, if most of it was used since the last call.
    pub(crate) fn busy_capacity_bps(&mut self, now: Duration) -> Option<f64> {
        self.path.lease.learner_mut(now)?.busy_capacity_bps(now)
    }

    /// Sets the learned capacity.
    pub(crate) fn set_capacity_bps(&mut self, bps: f64, now: Duration) {
        if let Some(learner) = self.path.lease.learner_mut(now) {
            learner.set_capacity_bps(bps);
        }
    }

    /// Sets whether other sessions of this end share the bottleneck, and their number with this one if it
    /// is this one's turn to send trains.
    pub(crate) fn set_siblings(&mut self, are_there: bool, turn: Option<u32>, now: Duration) {
        if let Some(learner) = self.path.lease.learner_mut(now) {
            learner.set_siblings(are_there, turn, now);
        }
    }

    /// Takes the beginning of a drain: returns `true` once for each.
    pub(crate) fn take_drain(&mut self) -> bool {
        self.path.lease.take_drain()
    }

    /// Drains the queue, because another session through the same bottleneck does.
    pub(crate) fn drain(&mut self, now: Duration) {
        if let Some(learner) = self.path.lease.learner_mut(now) {
            learner.drain_with_others(now);
        }
    }

    // Rates of both ends.

    /// The peer's send rate: as it said, or as it was measured.
    pub(super) fn peers_rate(&self) -> BitRate {
        self.peers_rate_on(&self.path)
    }

    pub(super) fn peers_rate_on(&self, path: &Path) -> BitRate {
        if self.measures_peer_on(path) {
            path.recorder.rate().max(MIN_LEARNED_RATE)
        } else {
            self.peer.rate
        }
    }

    /// Returns `true` if only arrivals show the peer's rate on the path.
    pub(super) fn measures_peer_on(&self, path: &Path) -> bool {
        self.peer_learns() || path.id != CONFIGURED_PATH
    }

    /// Sum of the rates of the live paths; that of the path in hand if there is none.
    pub(super) fn sum_of_rates(&self) -> BitRate {
        let used = self.paths().filter(|path| self.is_used(path));
        let sum = used.map(|path| path.pacer.rate().bps()).fold(0, u64::saturating_add);
        if sum > 0 { BitRate::from_bps(sum) } else { self.path.pacer.rate() }
    }

    /// Rates of both directions, ours first, to compute the length of bursts. While one is not
    /// known, the other one stands for it.
    pub(super) fn rates(&self) -> (BitRate, BitRate) {
        let measured = self.measures_peer_on(&self.path);
        let peers = if measured { self.path.recorder.rate() } else { self.peer.rate };
        let ours = match self.path.lease.is_unknown() {
            true if peers.bps() > 0 => peers,
            _ => self.path.pacer.rate(),
        };
        (ours, if peers.bps() > 0 { peers } else { ours })
    }
}
