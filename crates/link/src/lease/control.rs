//! Send permission of one path: its leases, the breaker, and the lease messages to the peer.

use std::time::Duration;

use bentpipe_schedule::{Class, PerClass};
use bentpipe_units::BitRate;

use super::breaker::Breaker;
use super::client::LeaseClient;
use super::demand::{ClassDemands, Waiting};
use super::learned::{ArrivalSample, Earlier, Learner};
use super::leases::Leases;
use super::{Demand, Grant, Lease, LeaseMode, ModemRate, Observation, Source};

/// Divisor of a round trip for the repetition of an unconfirmed grant …
const REPEAT_PART: u32 = 2;
/// … its minimum interval …
const MIN_REPEAT: Duration = Duration::from_millis(20);
/// … and its maximum number. The aircraft's next DEMAND starts over.
const MAX_REPEATS: u32 = 8;

/// The lease side of a path.
#[derive(Debug)]
pub struct Control {
    cap: BitRate,
    leases: Leases,
    breaker: Breaker,
    /// `Some` if the rate is learned.
    learner: Option<Learner>,
    demands: ClassDemands,
    /// `Some` if rates are granted to us.
    client: Option<LeaseClient>,
    /// Grant for the peer, until it is confirmed.
    offer: Option<Offer>,
    /// The rate that the peer last confirmed.
    confirmed: Option<BitRate>,
    /// The newest DEMAND, until it is taken, and its number.
    newest_demand: Option<Demand>,
    newest_number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Offer {
    grant: Grant,
    sent_times: u32,
    next: Duration,
}

impl Control {
    /// Creates the lease side of a path with the operator's `cap`, which may send `padding`
    /// bytes to learn the rate, and with the rate that an `earlier` session learned. `rtt` is a first
    /// guess.
    pub fn new(
        mode: LeaseMode,
        cap: BitRate,
        padding: u64,
        earlier: Option<Earlier>,
        rtt: Duration,
        now: Duration,
    ) -> Self {
        let learner = || Learner::new(cap, padding, earlier, rtt, now);
        Self {
            cap,
            learner: (mode == LeaseMode::Learned).then(learner),
            leases: Leases::new(mode, cap),
            breaker: Breaker::new(),
            demands: ClassDemands::default(),
            client: (mode == LeaseMode::Granted).then(LeaseClient::new),
            offer: None,
            confirmed: None,
            newest_demand: None,
            newest_number: 0,
        }
    }

    /// Changes the operator's rate.
    pub fn set_cap(&mut self, cap: BitRate) {
        self.cap = cap;
        self.leases.set_cap(cap);
        if let Some(learner) = &mut self.learner {
            learner.set_cap(cap);
        }
    }

    /// The lease in force, with its rate as far as the breaker permits.
    pub fn lease(&mut self, now: Duration) -> Lease {
        let best = self.leases.best(now);
        let rate = match self.learner.as_ref().filter(|_| best.source == Source::Learned) {
            Some(learner) => learner.rate(now).min(best.rate),
            None => self.breaker.rate(best.rate, now),
        };
        Lease { rate, ..best }
    }

    /// The learner, if its rate is in force.
    pub fn learner(&self, now: Duration) -> Option<&Learner> {
        self.learner.as_ref().filter(|_| self.leases.best(now).source == Source::Learned)
    }

    /// The learner, if its rate is in force.
    pub fn learner_mut(&mut self, now: Duration) -> Option<&mut Learner> {
        self.learner.as_mut().filter(|_| self.leases.best(now).source == Source::Learned)
    }

    /// Takes the beginning of a drain of a learned rate.
    pub fn take_drain(&mut self) -> bool {
        self.learner.as_mut().is_some_and(Learner::take_drain)
    }

    /// Maximum rate, without the breaker.
    pub fn max_rate(&self, now: Duration) -> BitRate {
        self.leases.best(now).rate
    }

    /// Returns `true` if data must wait for a queue to drain.
    pub fn holds_data(&self, now: Duration) -> bool {
        match self.learner(now) {
            Some(learner) => learner.holds_data(),
            None => self.breaker.holds_data(),
        }
    }

    /// Number of trips of the breaker.
    pub fn trips(&self) -> u64 {
        self.breaker.trips()
    }

    /// Queueing delay in the peer's newest report.
    pub fn queue(&self) -> Duration {
        self.learner.as_ref().map_or_else(|| self.breaker.queue(), Learner::queue)
    }

    /// Returns `true` if losses are the channel's own, so that they call for repairs.
    pub fn are_losses_the_channels(&self) -> bool {
        self.learner.as_ref().is_none_or(Learner::are_losses_the_channels)
    }

    /// Takes the learned rate if it has changed by a quarter.
    pub fn take_learned(&mut self) -> Option<BitRate> {
        self.learner.as_mut().and_then(Learner::take_news)
    }

    /// Returns `true` if the rate is learned and not known yet.
    pub fn is_unknown(&self) -> bool {
        self.learner.as_ref().is_some_and(|learner| learner.capacity().is_none())
    }

    /// The learned rate, if there is one.
    pub fn learned(&self) -> Option<BitRate> {
        self.learner.as_ref().and_then(Learner::capacity)
    }

    /// The learned rate, once confirmed, and the time of its last measurement.
    pub fn confirmed(&self) -> Option<(BitRate, Duration)> {
        self.learner.as_ref().and_then(Learner::confirmed)
    }

    /// Returns `true` if the rate is learned, and the channel's loss was not measured before the data.
    pub fn is_loss_unknown(&self) -> bool {
        self.learner.as_ref().is_some_and(Learner::is_loss_unknown)
    }

    /// Returns `true` if a learned rate competes with others.
    pub fn competes(&self) -> bool {
        self.learner.as_ref().is_some_and(Learner::competes)
    }

    /// Returns `true` if a packet of padding should be sent to learn the rate.
    pub fn wants_padding(&self, now: Duration) -> bool {
        self.learner(now).is_some_and(Learner::wants_padding)
    }

    /// Notes the round trip of the handshake.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        if let Some(learner) = &mut self.learner {
            learner.on_round_trip(rtt);
        }
    }

    /// Notes the end of an outage.
    pub fn on_peer_returned(&mut self, now: Duration) {
        if let Some(learner) = &mut self.learner {
            learner.on_peer_returned(now);
        }
    }

    /// Sets the modem's rate; `None` if it reports none.
    pub fn set_modem(&mut self, reported: Option<ModemRate>, now: Duration) {
        self.leases.set_modem(reported, now);
    }

    /// Sets this side's part of a shared beam; `None` if there is no such beam. Returns `true` if
    /// it changed.
    pub fn set_part(&mut self, part: Option<BitRate>) -> bool {
        let before = self.leases.granted();
        match part {
            Some(rate) => self.leases.set_grant(rate, Duration::MAX),
            None => self.leases.clear_grant(),
        }
        before != part
    }

    /// Counts a packet of `bytes`, paid by `class` or by nobody: whether it has data, and whether it
    /// is an MTU probe.
    pub fn sent(
        &mut self,
        bytes: usize,
        class: Option<Class>,
        (data, probe): (bool, bool),
        rtt: Duration,
        now: Duration,
    ) {
        self.demands.sent(bytes, class, rtt, now);
        if data {
            let lease = self.leases.best(now);
            match self.learner.as_mut().filter(|_| lease.source == Source::Learned) {
                Some(learner) if probe => learner.sent_probe(bytes),
                Some(learner) => learner.sent(bytes, now),
                None => self.breaker.sent(bytes, lease.rate, now),
            }
        }
    }

    /// Rate that could be used for waiting data and present sending.
    pub fn useful(&mut self, waiting: &PerClass<Waiting>, rtt: Duration, now: Duration) -> BitRate {
        self.demands.useful(waiting, rtt, now).min(self.cap)
    }

    /// Handles the observation of a report, and the arrivals in it.
    pub fn observe(&mut self, seen: &Observation, samples: &[ArrivalSample]) {
        let lease = self.leases.best(seen.now);
        if let Some(learner) = &mut self.learner {
            learner.observe(seen, samples);
        }
        if lease.source != Source::Learned {
            self.breaker.observe(seen, lease.rate);
        }
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self, now: Duration) -> Option<Duration> {
        let ends = self.leases.ends_at(now);
        [self.breaker.next_timeout(), self.learner.as_ref().and_then(Learner::next_timeout), ends]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.breaker.handle_timeout(now);
        if let Some(learner) = &mut self.learner {
            learner.handle_timeout(now);
        }
    }

    // Granted rates, at the aircraft.

    /// Accepts a LEASE if rates are granted to us.
    pub fn on_grant(&mut self, grant: &Grant) {
        let taken = self.client.as_mut().and_then(|client| client.take(grant));
        if let Some((rate, until)) = taken {
            self.leases.set_grant(rate, until);
        }
    }

    /// Returns `true` if rates are granted to us, so that DEMANDs are sent.
    pub fn is_client(&self) -> bool {
        self.client.is_some()
    }

    /// Time at which a DEMAND should be sent.
    pub fn demand_due(
        &mut self,
        waiting: &PerClass<Waiting>,
        rtt: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let useful = self.useful(waiting, rtt, now);
        self.client.as_ref()?.due_at(useful, rtt)
    }

    /// Makes a DEMAND if one is due.
    pub fn next_demand(
        &mut self,
        waiting: &PerClass<Waiting>,
        rtt: Duration,
        now: Duration,
    ) -> Option<Demand> {
        self.demand_due(waiting, rtt, now).filter(|due| *due <= now)?;
        let useful = self.useful(waiting, rtt, now);
        let waiting_bytes = waiting.iter().map(|(_, waiting)| waiting.bytes).sum();
        self.client.as_mut().map(|client| client.demand(waiting_bytes, useful, now))
    }

    // Granted rates, at the ground.

    /// Handles a DEMAND. One that was overtaken on the way is ignored.
    pub fn on_demand(&mut self, demand: Demand) {
        if demand.number <= self.newest_number {
            return;
        }
        self.newest_number = demand.number;
        if let Some(offer) = self.offer.filter(|offer| demand.follows >= offer.grant.sequence) {
            self.confirmed = Some(offer.grant.rate);
            self.offer = None;
        }
        self.newest_demand = Some(demand);
    }

    /// Takes the newest DEMAND.
    pub fn take_demand(&mut self) -> Option<Demand> {
        self.newest_demand.take()
    }

    /// Sets the peer's grant.
    pub fn grant(&mut self, grant: Grant, now: Duration) {
        self.offer = Some(Offer { grant, sent_times: 0, next: now });
    }

    /// Time at which a LEASE should be sent.
    pub fn grant_due(&self) -> Option<Duration> {
        self.offer.map(|offer| offer.next)
    }

    /// Makes a LEASE if one is due.
    pub fn next_grant(&mut self, rtt: Duration, now: Duration) -> Option<Grant> {
        let confirmed = self.confirmed;
        let offer = self.offer.as_mut().filter(|offer| offer.next <= now)?;
        let grant = offer.grant;
        offer.sent_times += 1;
        offer.next = now + (rtt / REPEAT_PART).max(MIN_REPEAT);
        // The peer does not confirm a renewal at the same rate by itself.
        if offer.sent_times == MAX_REPEATS || confirmed == Some(grant.rate) {
            self.offer = None;
        }
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(number: u64, follows: u64) -> Demand {
        Demand { number, follows, waiting_bytes: 0, useful: BitRate::from_bps(1_000_000) }
    }

    #[test]
    fn an_overtaken_demand_is_ignored_before_and_after_the_newer_is_taken() {
        let mut control = Control::new(
            LeaseMode::Static,
            BitRate::from_bps(2_000_000),
            0,
            None,
            Duration::ZERO,
            Duration::ZERO,
        );
        let number = |it: Option<Demand>| it.map(|it| it.number);
        control.on_demand(demand(2, 0));
        control.on_demand(demand(1, 0));
        assert_eq!(number(control.take_demand()), Some(2));
        control.on_demand(demand(1, 0));
        control.on_demand(demand(2, 0));
        assert_eq!(control.take_demand(), None);
        control.on_demand(demand(3, 0));
        assert_eq!(number(control.take_demand()), Some(3));
    }

    #[test]
    fn a_grant_is_repeated_until_a_demand_follows_it() {
        let mut control = Control::new(
            LeaseMode::Static,
            BitRate::from_bps(2_000_000),
            0,
            None,
            Duration::ZERO,
            Duration::ZERO,
        );
        let (rtt, mut now) = (Duration::from_millis(600), Duration::ZERO);
        let rate = BitRate::from_bps(1_000_000);
        let grant = Grant { sequence: 7, answers: 4, rate, lifetime: Duration::from_secs(6) };
        control.grant(grant, now);
        assert_eq!(control.next_grant(rtt, now), Some(grant));
        assert_eq!(control.next_grant(rtt, now), None, "not twice at once");
        control.on_demand(demand(5, 6));
        now = control.grant_due().expect("it follows an earlier one yet");
        assert_eq!(now, rtt / REPEAT_PART);
        assert_eq!(control.next_grant(rtt, now), Some(grant));
        control.on_demand(demand(6, 7));
        assert_eq!(control.grant_due(), None);
    }
}
