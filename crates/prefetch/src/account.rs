//! What pushes have cost in vain, for each passenger and each site, and so what may be risked next.
//!
//! The aim is that no more than a share (15 % by default) of the bytes that pages take are pushes that
//! nobody wanted. What a push comes to is known only later, so what may be risked is what the
//! account still has, divided by how much of earlier pushes was in vain. A site whose pushes are all
//! used has no bound but the page's own; one whose pushes are never used has none left after the
//! first page.

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
    at: Duration,
}

impl Accounts {
    /// `share` is the part of pages' bytes that may be pushed in vain: 0 to 1.
    pub fn new(share: f64) -> Self {
        let (passengers, sites) = (Book::new(), Book::new());
        Self { share: share.clamp(0.0, 1.0), passengers, sites }
    }

    /// How many bytes may be pushed for a page of `site` to `passenger`, at most `most`.
    pub fn allowance(&mut self, passenger: Passenger, site: &str, most: u64, now: Duration) -> u64 {
        let of_passenger = self.passengers.get(&passenger, now).allowance(self.share);
        let of_site = self.sites.get(&site_key(site), now).allowance(self.share);
        // A cast saturates: what is infinite is bounded by `most`.
        (of_passenger.min(of_site) as u64).min(most)
    }

    /// A page is over.
    pub fn settle(&mut self, passenger: Passenger, site: &str, outcome: Outcome, now: Duration) {
        self.passengers.add(passenger, outcome, now);
        self.sites.add(site_key(site), outcome, now);
    }
}

fn site_key(site: &str) -> Bytes {
    Bytes::copy_from_slice(site.as_bytes())
}

impl<K: Ord + Clone> Book<K> {
    fn new() -> Self {
        Self { accounts: BTreeMap::new() }
    }

    fn get(&self, key: &K, now: Duration) -> Account {
        self.accounts.get(key).map_or(Account::default(), |account| account.aged(now))
    }

    fn add(&mut self, key: K, outcome: Outcome, now: Duration) {
        let mut account = self.get(&key, now);
        account.page += outcome.page_bytes as f64;
        account.pushed += outcome.pushed_bytes as f64;
        account.wasted += outcome.wasted_bytes.min(outcome.pushed_bytes) as f64;
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

    fn allowance(self, share: f64) -> f64 {
        let left =
            GRACE_BYTES * share.min(PRIOR_WASTE) / PRIOR_WASTE + share * self.page - self.wasted;
        let rate = (PRIOR_BYTES * PRIOR_WASTE + self.wasted) / (PRIOR_BYTES + self.pushed);
        (left / rate).max(0.0)
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
        let first = accounts.allowance(who(1), "a.test", MOST, now);
        assert!((2_500_000..=MOST).contains(&first), "{first}");
        accounts.settle(who(1), "a.test", page(first, first), now);
        assert_eq!(accounts.allowance(who(1), "a.test", MOST, now), 0);
        assert_eq!(
            accounts.allowance(who(1), "b.test", MOST, now),
            0,
            "the passenger's is spent too"
        );
        assert_eq!(accounts.allowance(who(2), "a.test", MOST, now), 0);
        assert_eq!(accounts.allowance(who(2), "b.test", MOST, now), first);
        let later = accounts.allowance(who(1), "a.test", MOST, now + 8 * HALF_LIFE);
        assert!(later > 0, "sites change");
    }

    #[test]
    fn what_is_used_costs_nothing() {
        let mut accounts = Accounts::new(0.15);
        for minute in 0..100 {
            let now = Duration::from_secs(60 * minute);
            let allowed = accounts.allowance(who(1), "a.test", MOST, now);
            assert!(allowed > 2_500_000);
            accounts.settle(who(1), "a.test", page(2_500_000, 250_000), now);
        }
        assert_eq!(Accounts::new(0.0).allowance(who(1), "a.test", MOST, Duration::ZERO), 0);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut accounts = Accounts::new(0.15);
        for passenger in 0..2 * MAX_ACCOUNTS as u32 {
            let now = Duration::from_secs(passenger.into());
            accounts.settle(who(passenger), &format!("{passenger}.test"), page(1, 1), now);
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
                let pushed = accounts.allowance(who(1), "a.test", 2_500_000, now);
                let outcome = page(pushed, (pushed as f64 * (1.0 - wanted)) as u64);
                accounts.settle(who(1), "a.test", outcome, now);
                taken += outcome.page_bytes;
                wasted += outcome.wasted_bytes;
            }
            let bound = 0.15 * taken as f64 + GRACE_BYTES + 2_500_000.0;
            prop_assert!((wasted as f64) < bound, "{} of {}", wasted, taken);
        }
    }
}
