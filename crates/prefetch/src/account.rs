//! What pushes have cost in vain, for each passenger and each site, and so what may be risked next.
//!
//! What pages that are under way may yet waste is reserved: many at once have no more to lose than one.
//! The aim is that no more than a share (15 % by default) of the bytes that pages take are pushes that
//! nobody wanted. What a push comes to is known only later, so what may be risked is what the
//! account still has, divided by how much of earlier pushes was in vain. A site whose pushes are all
//! used has no bound but the page's own; one whose pushes are never used soon has
//! none left.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::promised::Passenger;

/// Passengers and sites that are remembered, of each: at about 100 bytes, 200 KiB in all. The one that
/// was used least recently is forgotten, and then begins anew.
pub const MAX_ACCOUNTS: usize = 1024;

/// Every account begins with so much to lose: half of a usual page.
const GRACE_BYTES: f64 = 1_000_000.0;

/// Before anything is known, pushes are taken to be in vain at this rate, as if so many bytes had been
/// pushed already.
const PRIOR_BYTES: f64 = 500_000.0;
const PRIOR_WASTE: f64 = 0.15;

/// One page is granted so much of what an account has left, so that pages at the same time get some too:
/// the first of a new account 3.3 MB, a second beside it 1.7 MB.
const MOST_OF_LEFT: f64 = 0.5;

/// After this without news half of what an account knows is forgotten: sites change.
const HALF_LIFE: Duration = Duration::from_secs(6 * 3600);

/// The accounts of one air gateway.
#[derive(Debug)]
pub struct Accounts {
    share: f64,
    passengers: Book<Passenger>,
    sites: Book<Bytes>,
}

/// What a page took, once it is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that passengers asked for and got: the page, its objects, pushed or not.
    pub page_bytes: u64,
    /// Bytes of objects that were pushed.
    pub pushed_bytes: u64,
    /// Those of them that nobody asked for.
    pub wasted_bytes: u64,
}

#[derive(Debug)]
struct Book<K> {
    accounts: BTreeMap<K, Account>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    page: f64,
    pushed: f64,
    wasted: f64,
    /// What grants that are not settled may waste at the rate that was known when each was given.
    reserved: f64,
    at: Duration,
}

/// What may be pushed for one page; to be settled when the page is over.
#[derive(Debug)]
#[must_use = "what it reserves is given back by settling it"]
pub struct Grant {
    passenger: Passenger,
    site: Bytes,
    bytes: u64,
    /// What it holds of the passenger's account, and of the site's.
    reserved: [f64; 2],
}

impl Accounts {
    /// `share` is the part of pages' bytes that may be pushed in vain: 0 to 1.
    pub fn new(share: f64) -> Self {
        let (passengers, sites) = (Book::new(), Book::new());
        Self { share: share.clamp(0.0, 1.0), passengers, sites }
    }

    /// Says how many bytes may be pushed for a page of `site` to `passenger`, at most `most`, and reserves
    /// what they may waste.
    pub fn grant(&mut self, passenger: Passenger, site: &str, most: u64, now: Duration) -> Grant {
        let site = Bytes::copy_from_slice(site.as_bytes());
        let of_passenger = self.passengers.get(&passenger, now);
        let of_site = self.sites.get(&site, now);
        let allowed = of_passenger.allowance(self.share).min(of_site.allowance(self.share));
        // A cast saturates: what is infinite is bounded by `most`.
        let bytes = (allowed as u64).min(most);
        let reserved = [of_passenger, of_site].map(|account| account.rate() * bytes as f64);
        self.passengers.change(passenger, now, |account| account.reserved += reserved[0]);
        self.sites.change(site.clone(), now, |account| account.reserved += reserved[1]);
        Grant { passenger, site, bytes, reserved }
    }

    /// No more than `bytes` have come or will come by this grant: the rest is free for other pages.
    pub fn came(&mut self, grant: &mut Grant, bytes: u64, now: Duration) {
        if bytes >= grant.bytes {
            return;
        }
        let left = bytes as f64 / grant.bytes as f64;
        let freed = grant.reserved.map(|reserved| reserved * (1.0 - left));
        self.free(grant, freed, now);
        grant.reserved = grant.reserved.map(|reserved| reserved * left);
        grant.bytes = bytes;
    }

    /// A page is over.
    pub fn settle(&mut self, grant: Grant, outcome: Outcome, now: Duration) {
        self.free(&grant, grant.reserved, now);
        self.passengers.change(grant.passenger, now, |account| account.add(outcome));
        self.sites.change(grant.site, now, |account| account.add(outcome));
    }

    fn free(&mut self, grant: &Grant, freed: [f64; 2], now: Duration) {
        self.passengers.change(grant.passenger, now, |account| account.free(freed[0]));
        self.sites.change(grant.site.clone(), now, |account| account.free(freed[1]));
    }
}

impl Grant {
    /// How many bytes may be pushed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K: Ord + Clone> Book<K> {
    fn new() -> Self {
        Self { accounts: BTreeMap::new() }
    }

    fn get(&self, key: &K, now: Duration) -> Account {
        self.accounts.get(key).map_or(Account::default(), |account| account.aged(now))
    }

    fn change(&mut self, key: K, now: Duration, change: impl FnOnce(&mut Account)) {
        let mut account = self.get(&key, now);
        change(&mut account);
        account.at = now;
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(&key) {
            let oldest = self.accounts.iter().min_by_key(|(_, account)| account.at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.accounts.remove(&oldest);
            }
        }
        self.accounts.insert(key, account);
    }
}

impl Account {
    fn aged(mut self, now: Duration) -> Self {
        let halves = now.saturating_sub(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let left = 0.5_f64.powf(halves);
        (self.page, self.pushed, self.wasted) =
            (self.page * left, self.pushed * left, self.wasted * left);
        self
    }

    fn add(&mut self, outcome: Outcome) {
        self.page += outcome.page_bytes as f64;
        self.pushed += outcome.pushed_bytes as f64;
        self.wasted += outcome.wasted_bytes.min(outcome.pushed_bytes) as f64;
    }

    /// An account that was forgotten meanwhile has nothing reserved.
    fn free(&mut self, freed: f64) {
        self.reserved = (self.reserved - freed).max(0.0);
    }

    fn allowance(self, share: f64) -> f64 {
        let grace = GRACE_BYTES * share.min(PRIOR_WASTE) / PRIOR_WASTE;
        let left = grace + share * self.page - self.wasted - self.reserved;
        (left * MOST_OF_LEFT / self.rate()).max(0.0)
    }

    /// How much of what is pushed is in vain, as far as is known.
    fn rate(self) -> f64 {
        (PRIOR_BYTES * PRIOR_WASTE + self.wasted) / (PRIOR_BYTES + self.pushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 8_000_000;

    fn who(number: u32) -> Passenger {
        Passenger::V4(number.into())
    }

    fn page(pushed: u64, wasted: u64) -> Outcome {
        Outcome {
            page_bytes: 100_000 + pushed - wasted,
            pushed_bytes: pushed,
            wasted_bytes: wasted,
        }
    }

    #[test]
    fn a_new_site_gets_a_page_and_a_wasteful_one_no_second() {
        let mut accounts = Accounts::new(0.15);
        let now = Duration::ZERO;
        let grant = accounts.grant(who(1), "a.test", MOST, now);
        let first = grant.bytes();
        assert!((2_500_000..=MOST).contains(&first), "{first}");
        accounts.settle(grant, page(first, first), now);
        assert_eq!(accounts.grant(who(1), "a.test", MOST, now).bytes(), 0);
        let passengers = accounts.grant(who(1), "b.test", MOST, now).bytes();
        assert_eq!(passengers, 0, "the passenger's is spent too");
        assert_eq!(accounts.grant(who(2), "a.test", MOST, now).bytes(), 0);
        assert_eq!(accounts.grant(who(2), "b.test", MOST, now).bytes(), first);
        let later = accounts.grant(who(1), "a.test", MOST, now + 8 * HALF_LIFE).bytes();
        assert!(later > 0, "sites change");
    }

    #[test]
    fn what_is_used_costs_nothing() {
        let mut accounts = Accounts::new(0.15);
        for minute in 0..100 {
            let now = Duration::from_secs(60 * minute);
            let grant = accounts.grant(who(1), "a.test", MOST, now);
            assert!(grant.bytes() > 2_500_000);
            accounts.settle(grant, page(2_500_000, 250_000), now);
        }
        let mut none = Accounts::new(0.0);
        assert_eq!(none.grant(who(1), "a.test", MOST, Duration::ZERO).bytes(), 0);
    }

    #[test]
    fn pages_that_begin_together_have_no_more_to_lose_than_one() {
        let mut accounts = Accounts::new(0.15);
        let now = Duration::ZERO;
        let all: Vec<_> = (0..8).map(|_| accounts.grant(who(1), "a.test", MOST, now)).collect();
        assert!(all[0].bytes() > 2_500_000 && all[1].bytes() > 1_000_000);
        let granted: u64 = all.iter().map(Grant::bytes).sum();
        assert!(granted as f64 <= GRACE_BYTES / PRIOR_WASTE, "{granted}");
        let others = accounts.grant(who(2), "a.test", MOST, now);
        assert!(others.bytes() < 50_000, "the site's account is one");
        accounts.settle(others, Outcome::default(), now);

        // What did not come, and what is settled without having come, is free again.
        for (number, mut grant) in all.into_iter().enumerate() {
            let bytes = grant.bytes();
            accounts.came(&mut grant, bytes + 1, now);
            accounts.came(&mut grant, 0, now);
            if number % 2 == 0 {
                accounts.settle(grant, Outcome::default(), now);
            }
        }
        assert!(accounts.grant(who(1), "a.test", MOST, now).bytes() >= 3_300_000);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut accounts = Accounts::new(0.15);
        for passenger in 0..2 * MAX_ACCOUNTS as u32 {
            let now = Duration::from_secs(passenger.into());
            let grant = accounts.grant(who(passenger), &format!("{passenger}.test"), 1, now);
            accounts.settle(grant, page(1, 1), now);
        }
        assert_eq!(accounts.passengers.accounts.len(), MAX_ACCOUNTS);
        assert_eq!(accounts.sites.accounts.len(), MAX_ACCOUNTS);
        assert!(!accounts.passengers.accounts.contains_key(&who(0)));
    }

    proptest! {
        /// Whatever share of what is pushed is wanted, what is pushed in vain stays within 15 % of what
        /// pages take, a first page and the grace aside.
        #[test]
        fn waste_is_bounded(wanted in prop::collection::vec(0.0..=1.0_f64, 1..80)) {
            let mut accounts = Accounts::new(0.15);
            let (mut taken, mut wasted) = (0_u64, 0_u64);
            for (number, wanted) in wanted.into_iter().enumerate() {
                let now = Duration::from_secs(number as u64);
                let grant = accounts.grant(who(1), "a.test", 2_500_000, now);
                let pushed = grant.bytes();
                let outcome = page(pushed, (pushed as f64 * (1.0 - wanted)) as u64);
                accounts.settle(grant, outcome, now);
                taken += outcome.page_bytes;
                wasted += outcome.wasted_bytes;
            }
            let bound = 0.15 * taken as f64 + GRACE_BYTES + 2_500_000.0;
            prop_assert!((wasted as f64) < bound, "{} of {}", wasted, taken);
        }
    }
}
