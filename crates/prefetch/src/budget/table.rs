//! A bounded table of accounts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::passenger::Outcome;

/// Maximum number of accounts in each table: passengers, sites and networks. With about 120 bytes
/// each they take 360 KiB. The least recently used account without an open page is forgotten. If
/// every account has open pages, new ones are granted nothing.
pub const MAX_ACCOUNTS: usize = 1024;

/// Assumed share of wasted pushes before anything is known.
pub const PRIOR_WASTE: f64 = 0.15;

/// Weight of [`PRIOR_WASTE`] in the waste rate, in pushed bytes.
const PRIOR_BYTES: f64 = 500_000.0;

/// Half-life of an account's history, because sites change.
pub const HALF_LIFE: Duration = Duration::from_secs(6 * 3600);

/// Parameters of all accounts of a table, in bytes except for the share.
#[derive(Debug, Clone, Copy)]
pub struct BudgetParams {
    /// Share of pages' bytes that may be wasted.
    pub share: f64,
    /// Initial credit of each account.
    pub credit: f64,
    /// Worst-case waste of open pages beyond the balance, in largest pages.
    pub pages: f64,
    /// Debt of forgotten accounts beyond which new ones start with less credit.
    pub forgotten: f64,
}

/// A table of accounts.
#[derive(Debug)]
pub struct AccountTable<K> {
    pub terms: BudgetParams,
    pub(super) accounts: BTreeMap<K, Account>,
    /// Debt of forgotten accounts, and the time of that sum.
    forgotten: (f64, Duration),
    /// Returns `true` if the debt of a forgotten account is recorded nowhere else.
    counts: fn(&K) -> bool,
}

/// State of one account.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    page: f64,
    pushed: f64,
    wasted: f64,
    /// Bytes that open grants are expected to waste, at the rates known when they were given.
    pub reserved: f64,
    /// Bytes of open grants. All of them may be wasted.
    pub outstanding_bytes: u64,
    /// Part of the initial credit that this account did not get.
    missing: f64,
    at: Duration,
}

/// Effect of an account's change on the account of its network.
#[derive(Debug, Clone, Copy)]
pub struct AccountDelta {
    /// Increase of the debt.
    owed: f64,
    /// Increase of the outstanding bytes.
    outstanding: i64,
}

impl<K: Ord + Clone> AccountTable<K> {
    /// Creates an empty table. `counts` decides if an account's debt is recorded when it is
    /// forgotten.
    pub fn new(terms: BudgetParams, counts: fn(&K) -> bool) -> Self {
        Self { terms, accounts: BTreeMap::new(), forgotten: (0.0, Duration::ZERO), counts }
    }

    /// State of `key` at `now`.
    pub fn get(&self, key: &K, now: Duration) -> Account {
        let newcomer = || {
            let BudgetParams { credit, forgotten, .. } = self.terms;
            let missing = (credit + self.owed_by_forgotten(now) - forgotten).clamp(0.0, credit);
            Account { missing, at: now, ..Account::default() }
        };
        self.accounts.get(key).map_or_else(newcomer, |account| account.aged(now))
    }

    /// Changes the account of `key`. Returns the effect, or `None` if there is no room for the
    /// account.
    pub fn change(
        &mut self,
        key: &K,
        now: Duration,
        change: impl FnOnce(&mut Account),
    ) -> Option<AccountDelta> {
        if !self.make_room(key, now) {
            return None;
        }
        let before = self.get(key, now);
        let mut after = Account { at: now, ..before };
        change(&mut after);
        self.accounts.insert(key.clone(), after);
        let bytes = |account: &Account| account.outstanding_bytes.cast_signed();
        let share = self.terms.share;
        Some(AccountDelta {
            owed: after.owed(share) - before.owed(share),
            outstanding: bytes(&after).saturating_sub(bytes(&before)),
        })
    }

    /// Makes room for `key`, by forgetting another account if necessary. Returns `false` if there
    /// is no room.
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

    /// Adds the outcome of a page.
    pub fn add(&mut self, outcome: Outcome) {
        self.page += outcome.page_bytes as f64;
        self.pushed += outcome.pushed_bytes as f64;
        self.wasted += outcome.wasted_bytes.min(outcome.pushed_bytes) as f64;
    }

    /// Releases the reservation of a grant, or of `bytes` of it. The account may have been
    /// forgotten meanwhile if the grant is empty; nothing is released then.
    pub fn free(&mut self, reserved: f64, bytes: u64) {
        self.reserved = (self.reserved - reserved).max(0.0);
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(bytes);
    }

    /// Applies the change of a passenger's account to its network's.
    pub fn follow(&mut self, changed: AccountDelta) {
        self.wasted = (self.wasted + changed.owed).max(0.0);
        let AccountDelta { outstanding, .. } = changed;
        self.outstanding_bytes = self.outstanding_bytes.saturating_add_signed(outstanding);
    }

    /// Unearned loss, possible losses included: the used part of the credit.
    fn owed(&self, share: f64) -> f64 {
        (self.wasted + self.reserved - share * self.page).max(0.0)
    }

    /// Unused credit, without earnings.
    pub fn credit_left(&self, terms: BudgetParams) -> f64 {
        (terms.credit - self.missing - self.owed(terms.share)).max(0.0)
    }

    /// Bytes that may still be outstanding if all of them are wasted. The largest page has `max`
    /// bytes.
    pub fn at_worst(&self, terms: BudgetParams, max: u64) -> f64 {
        self.worst(terms, terms.credit - self.missing, max)
    }

    fn worst(&self, terms: BudgetParams, credit: f64, max: u64) -> f64 {
        let balance = credit + terms.share * self.page - self.wasted;
        (balance + terms.pages * max as f64 - self.outstanding_bytes as f64).max(0.0)
    }

    /// Bytes that may be pushed, if the largest page has `max` bytes and the network lends at max
    /// `lent`.
    pub fn allowance(&self, terms: BudgetParams, lent: f64, max: u64) -> f64 {
        // The debt is lent already.
        let credit = (terms.credit - self.missing).min(self.owed(terms.share) + lent);
        let left = credit + terms.share * self.page - self.wasted - self.reserved;
        (left / self.rate()).min(self.worst(terms, credit, max)).max(0.0)
    }

    /// Estimated share of pushed bytes that is wasted.
    pub fn rate(&self) -> f64 {
        (PRIOR_BYTES * PRIOR_WASTE + self.wasted) / (PRIOR_BYTES + self.pushed)
    }
}

/// Weight of an observation after this time.
fn left_after(since: Duration) -> f64 {
    0.5_f64.powf(since.as_secs_f64() / HALF_LIFE.as_secs_f64())
}
