//! The leases of one sender, and which of them is in force.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::{IDLE_GRANT, Lease, LeaseMode, MODEM_LEASE, ModemRate, Source};

/// At most one lease from each source.
#[derive(Debug, Clone)]
pub struct Leases {
    mode: LeaseMode,
    /// The operator's rate: the lease itself in [`LeaseMode::Static`], and the cap of all others.
    cap: BitRate,
    modem: Option<Lease>,
    grant: Option<Lease>,
}

impl Leases {
    /// Creates leases with nothing but the operator's rate.
    pub fn new(mode: LeaseMode, cap: BitRate) -> Self {
        Self { mode, cap, modem: None, grant: None }
    }

    /// Changes the operator's rate.
    pub fn set_cap(&mut self, cap: BitRate) {
        self.cap = cap;
    }

    /// Sets the modem's rate; `None` if it reports none.
    pub fn set_modem(&mut self, reported: Option<ModemRate>, now: Duration) {
        self.modem = reported.map(|reported| Lease {
            rate: reported.rate,
            source: Source::Modem,
            until: now + MODEM_LEASE,
            per_packet_overhead: reported.per_packet_overhead,
        });
    }

    /// Sets the grant, in place of any before; [`Duration::MAX`] does not end.
    pub fn set_grant(&mut self, rate: BitRate, until: Duration) {
        self.grant = Some(Lease { rate, source: Source::Grant, until, per_packet_overhead: 0 });
    }

    /// Rate of the last grant.
    pub fn granted(&self) -> Option<BitRate> {
        self.grant.map(|grant| grant.rate)
    }

    /// Removes the grant.
    pub fn clear_grant(&mut self) {
        self.grant = None;
    }

    /// The lease in force at `now`: the best that has not ended. A modem's lease never exceeds a
    /// grant, because a grant is a part of a shared beam. No lease exceeds the operator's cap.
    pub fn best(&self, now: Duration) -> Lease {
        let live = |lease: Option<Lease>| lease.filter(|lease| now < lease.until);
        let (modem, grant) = (live(self.modem), live(self.grant));
        let best = modem.or(grant).unwrap_or_else(|| self.lasting());
        let max = grant.map_or(self.cap, |grant| grant.rate.min(self.cap));
        Lease { rate: best.rate.min(max), ..best }
    }

    /// Time at which [`Self::best`] may change because a lease ends.
    pub fn ends_at(&self, now: Duration) -> Option<Duration> {
        let ends = [self.modem, self.grant].into_iter().flatten().map(|lease| lease.until);
        ends.filter(|until| now < *until && *until != Duration::MAX).min()
    }

    /// Lease in force if no other is.
    fn lasting(&self) -> Lease {
        let (rate, source) = match self.mode {
            LeaseMode::Static => (self.cap, Source::Config),
            // The learner has the rate.
            LeaseMode::Learned => (self.cap, Source::Learned),
            LeaseMode::Granted | LeaseMode::Modem => (IDLE_GRANT, Source::Idle),
        };
        Lease { rate, source, until: Duration::MAX, per_packet_overhead: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: BitRate = BitRate::from_bps(4_000_000);

    fn mbit(rate: u64) -> BitRate {
        BitRate::from_bps(rate * 1_000_000)
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(leases: &Leases, seconds: u64) -> (Source, u64) {
        let lease = leases.best(s(seconds));
        (lease.source, lease.rate.bps())
    }

    #[test]
    fn without_leases_the_operators_rate_or_the_idle_grant_is_in_force() {
        assert_eq!(at(&Leases::new(LeaseMode::Static, CAP), 9), (Source::Config, 4_000_000));
        for mode in [LeaseMode::Granted, LeaseMode::Modem] {
            assert_eq!(at(&Leases::new(mode, CAP), 9), (Source::Idle, 16_000));
        }
    }

    #[test]
    fn the_best_lease_is_in_force_until_it_ends() {
        let mut leases = Leases::new(LeaseMode::Static, CAP);
        leases.set_grant(mbit(2), s(10));
        assert_eq!(at(&leases, 9), (Source::Grant, 2_000_000));
        let reported = ModemRate { rate: mbit(1), per_packet_overhead: 8, is_down: false };
        leases.set_modem(Some(reported), s(5));
        assert_eq!(at(&leases, 9), (Source::Modem, 1_000_000));
        assert_eq!(leases.best(s(9)).per_packet_overhead, 8);
        assert_eq!(leases.ends_at(s(9)), Some(s(10)));
        assert_eq!(at(&leases, 94), (Source::Modem, 1_000_000));
        assert_eq!(leases.ends_at(s(94)), Some(s(95)));
        assert_eq!(at(&leases, 95), (Source::Config, 4_000_000));
        leases.set_modem(Some(reported), s(100));
        leases.set_modem(None, s(101));
        assert_eq!(at(&leases, 101), (Source::Config, 4_000_000));
    }

    #[test]
    fn no_lease_exceeds_the_cap_and_no_modem_exceeds_a_grant() {
        let mut leases = Leases::new(LeaseMode::Granted, CAP);
        let reported = ModemRate { rate: mbit(50), per_packet_overhead: 0, is_down: false };
        leases.set_modem(Some(reported), s(0));
        assert_eq!(at(&leases, 1), (Source::Modem, 4_000_000));
        leases.set_grant(mbit(2), s(10));
        assert_eq!(at(&leases, 1), (Source::Modem, 2_000_000));
        assert_eq!(at(&leases, 10), (Source::Modem, 4_000_000));
    }
}
