//! The leases one sender holds, and which of them counts.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::{IDLE_GRANT, Lease, LeaseMode, MODEM_LEASE, ModemRate, Source};

/// At most one lease of each source.
#[derive(Debug, Clone)]
pub struct Leases {
    mode: LeaseMode,
    /// The operator's rate: the lease itself in [`LeaseMode::Static`], and the cap of all others.
    cap: BitRate,
    modem: Option<Lease>,
    grant: Option<Lease>,
}

impl Leases {
    /// Only the operator's word so far.
    pub fn new(mode: LeaseMode, cap: BitRate) -> Self {
        Self { mode, cap, modem: None, grant: None }
    }

    /// The modem tells its rate, or that it has none to tell.
    pub fn set_modem(&mut self, told: Option<ModemRate>, now: Duration) {
        self.modem = told.map(|told| Lease {
            rate: told.rate,
            source: Source::Modem,
            until: now + MODEM_LEASE,
            framing_bytes: told.framing_bytes,
        });
    }

    /// The ground grants a rate, the newest in place of any before; [`Duration::MAX`] does not end.
    pub fn set_grant(&mut self, rate: BitRate, until: Duration) {
        self.grant = Some(Lease { rate, source: Source::Grant, until, framing_bytes: 0 });
    }

    /// The rate that was granted last.
    pub fn granted(&self) -> Option<BitRate> {
        self.grant.map(|grant| grant.rate)
    }

    /// Nothing is granted any more.
    pub fn clear_grant(&mut self) {
        self.grant = None;
    }

    /// The lease that counts at `now`: the best that lives. A modem's never lifts a grant, because
    /// a grant is a part of a beam that others use too; nothing lifts the operator's cap.
    pub fn best(&self, now: Duration) -> Lease {
        let live = |lease: Option<Lease>| lease.filter(|lease| now < lease.until);
        let (modem, grant) = (live(self.modem), live(self.grant));
        let best = modem.or(grant).unwrap_or_else(|| self.lasting());
        let most = grant.map_or(self.cap, |grant| grant.rate.min(self.cap));
        Lease { rate: best.rate.min(most), ..best }
    }

    /// Time at which [`Self::best`] may change because a lease ends.
    pub fn ends_at(&self, now: Duration) -> Option<Duration> {
        let ends = [self.modem, self.grant].into_iter().flatten().map(|lease| lease.until);
        ends.filter(|until| now < *until && *until != Duration::MAX).min()
    }

    /// Lease that holds if no other does.
    fn lasting(&self) -> Lease {
        let (rate, source) = match self.mode {
            LeaseMode::Static => (self.cap, Source::Config),
            LeaseMode::Granted | LeaseMode::Modem => (IDLE_GRANT, Source::Idle),
        };
        Lease { rate, source, until: Duration::MAX, framing_bytes: 0 }
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
    fn without_leases_the_operators_word_or_the_idle_grant_holds() {
        assert_eq!(at(&Leases::new(LeaseMode::Static, CAP), 9), (Source::Config, 4_000_000));
        for mode in [LeaseMode::Granted, LeaseMode::Modem] {
            assert_eq!(at(&Leases::new(mode, CAP), 9), (Source::Idle, 16_000));
        }
    }

    #[test]
    fn the_best_that_lives_counts_and_falls_back_when_it_ends() {
        let mut leases = Leases::new(LeaseMode::Static, CAP);
        leases.set_grant(mbit(2), s(10));
        assert_eq!(at(&leases, 9), (Source::Grant, 2_000_000));
        let told = ModemRate { rate: mbit(1), framing_bytes: 8 };
        leases.set_modem(Some(told), s(5));
        assert_eq!(at(&leases, 9), (Source::Modem, 1_000_000));
        assert_eq!(leases.best(s(9)).framing_bytes, 8);
        assert_eq!(leases.ends_at(s(9)), Some(s(10)));
        assert_eq!(at(&leases, 94), (Source::Modem, 1_000_000));
        assert_eq!(leases.ends_at(s(94)), Some(s(95)));
        assert_eq!(at(&leases, 95), (Source::Config, 4_000_000));
        leases.set_modem(Some(told), s(100));
        leases.set_modem(None, s(101));
        assert_eq!(at(&leases, 101), (Source::Config, 4_000_000));
    }

    #[test]
    fn nothing_lifts_the_cap_and_no_modem_lifts_a_grant() {
        let mut leases = Leases::new(LeaseMode::Granted, CAP);
        leases.set_modem(Some(ModemRate { rate: mbit(50), framing_bytes: 0 }), s(0));
        assert_eq!(at(&leases, 1), (Source::Modem, 4_000_000));
        leases.set_grant(mbit(2), s(10));
        assert_eq!(at(&leases, 1), (Source::Modem, 2_000_000));
        assert_eq!(at(&leases, 10), (Source::Modem, 4_000_000));
    }
}
