//! Accounts by whose they are, so many of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::PRIOR_WASTE;

/// Passengers, sites and networks that are remembered, of each: at about 120 bytes, 360 KiB in all. The one
/// that was used least recently is forgotten, unless a page of it is under way; where pages are of all, those
/// of others bring nothing.
pub const MAX_ACCOUNTS: usize = 1024;

/// Before anything is known, pushes are taken to be in vain at [`PRIOR_WASTE`], as if so many bytes had been
/// pushed already.
const PRIOR_BYTES: f64 = 500_000.0;

/// After this without news half of what an account knows is forgotten: sites change.
pub const HALF_LIFE: Duration = Duration::from_secs(6 * 3600);

/// Terms of all accounts of a book, in bytes except for the share.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The part of what pages take that may be in vain.
    pub share: f64,
    /// Initial credit of each account.
    pub credit: f64,
    /// So many of the largest pages may be in vain beyond what is left.
    pub pages: f64,
    /// Debt of forgotten accounts beyond which new ones begin with less credit.
    pub forgotten: f64,
}

/// The accounts.
#[derive(Debug)]
pub struct Book<K> {
    pub terms: Terms,
    pub(super) accounts: BTreeMap<K, Account>,
    /// Debt of forgotten accounts, and the time of that sum.
    forgotten: (f64, Duration),
    /// Returns `true` if nobody else knows the debt of a forgotten account.
    counts: fn(&K) -> bool,
}

/// State of one account.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    page: f64,
    pushed: f64,
    wasted: f64,
    /// Bytes that open grants may waste at the rate known when each was given.
    pub reserved: f64,
    /// Bytes of those grants: all of them may be wasted.
    pub outstanding_bytes: u64,
    /// Credit that it lacked at the beginning, compared with others.
    missing: f64,
    at: Duration,
}

/// Effect of an account's change on the account that answers for it.
#[derive(Debug, Clone, Copy)]
pub struct Changed {
    /// It owes so much more.
    owed: f64,
    /// So many more bytes are under way.
    outstanding: i64,
}

impl<K: Ord + Clone> Book<K> {
    /// An empty one; `counts` says of whom it is to be known what was owed once the account is gone.
    pub fn new(terms: Terms, counts: fn(&K) -> bool) -> Self {
        Self { terms, accounts: BTreeMap::new(), forgotten: (0.0, Duration::ZERO), counts }
    }

    /// State of `key` by now.
    pub fn get(&self, key: &K, now: Duration) -> Account {
        let newcomer = || {
            let Terms { credit, forgotten, .. } = self.terms;
            let missing = (credit + self.owed_by_forgotten(now) - forgotten).clamp(0.0, credit);
            Account { missing, at: now, ..Account::default() }
        };
        self.accounts.get(key).map_or_else(newcomer, |account| account.aged(now))
    }

    /// Changes what is known of `key`, and says what that comes to; nothing where there is no room for it.
    pub fn change(
        &mut self,
        key: &K,
        now: Duration,
        change: impl FnOnce(&mut Account),
    ) -> Option<Changed> {
        if !self.make_room(key, now) {
            return None;
        }
        let before = self.get(key, now);
        let mut after = Account { at: now, ..before };
        change(&mut after);
        self.accounts.insert(key.clone(), after);
        let bytes = |account: &Account| account.outstanding_bytes.cast_signed();
        let share = self.terms.share;
        Some(Changed {
            owed: after.owed(share) - before.owed(share),
            outstanding: bytes(&after).saturating_sub(bytes(&before)),
        })
    }

    /// Makes room for `key`, by forgetting another account if needed; returns `true` if there is
    /// room.
    pub fn make_room(&mut self, key: &K, now: Duration) -> bool {
        if self.accounts.len() < MAX_ACCOUNTS || self.accounts.contains_key(key) {
            return true;
        }
        let idle = self.accounts.iter().filter(|(_, account)| account.outstanding_bytes == 0);
        let oldest = idle.min_by_key(|(_, account)| account.at).map(|(key, _)| key.clone());
        let Some((key, account)) = oldest.and_then(|key| self.accounts.remove_entry(&key)) else {
            return false;
        };
        if (self.counts)(&key) {
            let owed = account.aged(now).owed(self.terms.share);
            self.forgotten = (self.owed_by_forgotten(now) + owed, now);
        }
        true
    }

    fn owed_by_forgotten(&self, now: Duration) -> f64 {
        let (owed, at) = self.forgotten;
        owed * left_after(now.saturating_sub(at))
    }
}

impl Account {
    fn aged(mut self, now: Duration) -> Self {
        let left = left_after(now.saturating_sub(self.at));
        for known in [&mut self.page, &mut self.pushed, &mut self.wasted, &mut self.missing] {
            *known *= left;
        }
        self
    }

    /// Adds what came of a page.
    pub fn add(&mut self, outcome: super::Outcome) {
        self.page += outcome.page_bytes as f64;
        self.pushed += outcome.pushed_bytes as f64;
        self.wasted += outcome.wasted_bytes.min(outcome.pushed_bytes) as f64;
    }

    /// Gives back what a grant of `bytes`, or so many of one, had reserved. Of a grant of none the account may
    /// have been forgotten meanwhile; then nothing is.
    pub fn free(&mut self, reserved: f64, bytes: u64) {
        self.reserved = (self.reserved - reserved).max(0.0);
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(bytes);
    }

    /// Applies a change of an account for which this one answers.
    pub fn follow(&mut self, changed: Changed) {
        self.wasted = (self.wasted + changed.owed).max(0.0);
        let Changed { outstanding, .. } = changed;
        self.outstanding_bytes = self.outstanding_bytes.saturating_add_signed(outstanding);
    }

    /// Possible loss that was not earned: some of its credit.
    fn owed(&self, share: f64) -> f64 {
        (self.wasted + self.reserved - share * self.page).max(0.0)
    }

    /// Credit that is left without what was earned.
    pub fn credit_left(&self, terms: Terms) -> f64 {
        (terms.credit - self.missing - self.owed(terms.share)).max(0.0)
    }

    /// Bytes of the largest pages, of `most` bytes, that may still be in flight and may all be
    /// wasted.
    pub fn at_worst(&self, terms: Terms, most: u64) -> f64 {
        self.worst(terms, terms.credit - self.missing, most)
    }

    fn worst(&self, terms: Terms, credit: f64, most: u64) -> f64 {
        let kept = credit + terms.share * self.page - self.wasted;
        (kept + terms.pages * most as f64 - self.outstanding_bytes as f64).max(0.0)
    }

    /// Bytes that may be pushed, if the largest page has `most` and the account that answers for
    /// this one lends it at most `lent`.
    pub fn allowance(&self, terms: Terms, lent: f64, most: u64) -> f64 {
        // What it owes it was lent already.
        let credit = (terms.credit - self.missing).min(self.owed(terms.share) + lent);
        let left = credit + terms.share * self.page - self.wasted - self.reserved;
        (left / self.rate()).min(self.worst(terms, credit, most)).max(0.0)
    }

    /// Share of pushed bytes that is wasted, as far as known.
    pub fn rate(&self) -> f64 {
        (PRIOR_BYTES * PRIOR_WASTE + self.wasted) / (PRIOR_BYTES + self.pushed)
    }
}

/// Share of an old observation that still counts after this time.
fn left_after(since: Duration) -> f64 {
    0.5_f64.powf(since.as_secs_f64() / HALF_LIFE.as_secs_f64())
}
