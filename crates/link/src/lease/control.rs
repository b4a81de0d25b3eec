//! Send permission of one path: its leases, the breaker over them, and their messages to the peer.

use std::time::Duration;

use bentpipe_schedule::{Class, PerClass};
use bentpipe_units::BitRate;

use super::appetite::{Appetites, Waiting};
use super::breaker::Breaker;
use super::claim::{Claim, Demand};
use super::leases::Leases;
use super::{Grant, Lease, LeaseMode, ModemRate, Observation};

/// A grant that was not confirmed is said again after this part of a round trip …
const REPEAT_PART: u32 = 2;
/// … but no sooner than this …
const LEAST_REPEAT: Duration = Duration::from_millis(20);
/// … and so often in all. The aircraft's next DEMAND starts over.
const SAID_AT_MOST: u32 = 8;

/// The lease side of a path.
#[derive(Debug)]
pub struct Control {
    cap: BitRate,
    leases: Leases,
    breaker: Breaker,
    appetite: Appetites,
    /// Claim, if rates are granted to us.
    claim: Option<Claim>,
    /// Offer, if we grant: the rate of the peer.
    offer: Option<Offer>,
    /// The rate that the peer last confirmed to follow.
    confirmed: Option<BitRate>,
    /// The newest DEMAND, until it is taken, and its number, which no later one may have.
    heard: Option<Demand>,
    heard_number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Offer {
    grant: Grant,
    said: u32,
    next: Duration,
}

impl Control {
    /// The operator's `cap`, by `mode`.
    pub fn new(mode: LeaseMode, cap: BitRate) -> Self {
        Self {
            cap,
            leases: Leases::new(mode, cap),
            breaker: Breaker::new(),
            appetite: Appetites::default(),
            claim: (mode == LeaseMode::Granted).then(Claim::new),
            offer: None,
            confirmed: None,
            heard: None,
            heard_number: 0,
        }
    }

    /// The lease that counts, its rate as far as the breaker lets it be used.
    pub fn lease(&mut self, now: Duration) -> Lease {
        let best = self.leases.best(now);
        Lease { rate: self.breaker.rate(best.rate, now), ..best }
    }

    /// Maximum rate, whatever the breaker says.
    pub fn most(&self, now: Duration) -> BitRate {
        self.leases.best(now).rate
    }

    /// Returns `true` if data must wait for a queue to drain.
    pub fn holds_data(&self) -> bool {
        self.breaker.holds_data()
    }

    /// Number of trips of the breaker.
    pub fn trips(&self) -> u64 {
        self.breaker.trips()
    }

    /// The queueing delay that the peer's newest report shows.
    pub fn queue(&self) -> Duration {
        self.breaker.queue()
    }

    /// The modem tells its rate, or none.
    pub fn set_modem(&mut self, told: Option<ModemRate>, now: Duration) {
        self.leases.set_modem(told, now);
    }

    /// This side's part of a beam that it shares; `None` when there is no such beam. Returns whether
    /// that is another than before.
    pub fn set_part(&mut self, part: Option<BitRate>) -> bool {
        let before = self.leases.granted();
        match part {
            Some(rate) => self.leases.set_grant(rate, Duration::MAX),
            None => self.leases.clear_grant(),
        }
        before != part
    }

    /// A packet of `bytes` left, which `class` pays for, or nobody.
    pub fn sent(
        &mut self,
        bytes: usize,
        class: Option<Class>,
        data: bool,
        rtt: Duration,
        now: Duration,
    ) {
        self.appetite.sent(bytes, class, rtt, now);
        if data {
            let lease = self.leases.best(now).rate;
            self.breaker.sent(bytes, lease, now);
        }
    }

    /// The rate that could be used for what waits beside what is being sent.
    pub fn useful(&mut self, waiting: &PerClass<Waiting>, rtt: Duration, now: Duration) -> BitRate {
        self.appetite.useful(waiting, rtt, now).min(self.cap)
    }

    /// Takes the observation of a report.
    pub fn observe(&mut self, seen: &Observation) {
        let lease = self.leases.best(seen.now).rate;
        self.breaker.observe(seen, lease);
    }

    /// Time at which something is due here.
    pub fn next_timeout(&self, now: Duration) -> Option<Duration> {
        let ends = self.leases.ends_at(now);
        [self.breaker.next_timeout(), ends].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.breaker.handle_timeout(now);
    }

    // Granted rates, at the aircraft.

    /// Believes a LEASE, where rates are granted to us.
    pub fn take_grant(&mut self, grant: &Grant) {
        let taken = self.claim.as_mut().and_then(|claim| claim.take(grant));
        if let Some((rate, until)) = taken {
            self.leases.set_grant(rate, until);
        }
    }

    /// Time at which a DEMAND should leave.
    pub fn demand_due(
        &mut self,
        waiting: &PerClass<Waiting>,
        rtt: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let useful = self.useful(waiting, rtt, now);
        self.claim.as_ref()?.due_at(useful, rtt)
    }

    /// The DEMAND that leaves now, if one is due.
    pub fn say_demand(
        &mut self,
        waiting: &PerClass<Waiting>,
        rtt: Duration,
        now: Duration,
    ) -> Option<Demand> {
        self.demand_due(waiting, rtt, now).filter(|due| *due <= now)?;
        let useful = self.useful(waiting, rtt, now);
        let waiting_bytes = waiting.iter().map(|(_, waiting)| waiting.bytes).sum();
        self.claim.as_mut().map(|claim| claim.say(waiting_bytes, useful, now))
    }

    // Granted rates, at the ground.

    /// A DEMAND came. One that was overtaken on the way tells what is no more wanted.
    pub fn hear_demand(&mut self, demand: Demand) {
        if demand.number <= self.heard_number {
            return;
        }
        self.heard_number = demand.number;
        if let Some(offer) = self.offer.filter(|offer| demand.follows >= offer.grant.sequence) {
            self.confirmed = Some(offer.grant.rate);
            self.offer = None;
        }
        self.heard = Some(demand);
    }

    /// The newest DEMAND, once.
    pub fn take_demand(&mut self) -> Option<Demand> {
        self.heard.take()
    }

    /// Grants the peer what it may send.
    pub fn grant(&mut self, grant: Grant, now: Duration) {
        self.offer = Some(Offer { grant, said: 0, next: now });
    }

    /// Time at which a LEASE should leave.
    pub fn grant_due(&self) -> Option<Duration> {
        self.offer.map(|offer| offer.next)
    }

    /// The LEASE that leaves now, if one is due.
    pub fn say_grant(&mut self, rtt: Duration, now: Duration) -> Option<Grant> {
        let confirmed = self.confirmed;
        let offer = self.offer.as_mut().filter(|offer| offer.next <= now)?;
        let grant = offer.grant;
        offer.said += 1;
        offer.next = now + (rtt / REPEAT_PART).max(LEAST_REPEAT);
        // A renewal changes nothing that the peer would confirm by itself.
        if offer.said == SAID_AT_MOST || confirmed == Some(grant.rate) {
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
    fn a_demand_that_was_overtaken_counts_neither_before_nor_after_the_newer_was_taken() {
        let mut control = Control::new(LeaseMode::Static, BitRate::from_bps(2_000_000));
        let number = |it: Option<Demand>| it.map(|it| it.number);
        control.hear_demand(demand(2, 0));
        control.hear_demand(demand(1, 0));
        assert_eq!(number(control.take_demand()), Some(2));
        control.hear_demand(demand(1, 0));
        control.hear_demand(demand(2, 0));
        assert_eq!(control.take_demand(), None);
        control.hear_demand(demand(3, 0));
        assert_eq!(number(control.take_demand()), Some(3));
    }

    #[test]
    fn a_grant_is_said_until_a_demand_follows_it() {
        let mut control = Control::new(LeaseMode::Static, BitRate::from_bps(2_000_000));
        let (rtt, mut now) = (Duration::from_millis(600), Duration::ZERO);
        let rate = BitRate::from_bps(1_000_000);
        let grant = Grant { sequence: 7, answers: 4, rate, lifetime: Duration::from_secs(6) };
        control.grant(grant, now);
        assert_eq!(control.say_grant(rtt, now), Some(grant));
        assert_eq!(control.say_grant(rtt, now), None, "not twice at once");
        control.hear_demand(demand(5, 6));
        now = control.grant_due().expect("it follows an earlier one yet");
        assert_eq!(now, rtt / REPEAT_PART);
        assert_eq!(control.say_grant(rtt, now), Some(grant));
        control.hear_demand(demand(6, 7));
        assert_eq!(control.grant_due(), None);
    }
}
