//! Push budget accounts of the pages in progress, by page number.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_prefetch::budget::{Grant, PushBudget};
use bentpipe_prefetch::passenger::{Outcome, Passenger};
use bentpipe_prefetch::push_cache::PageId;

/// Budget of one air gateway, and the grants from it. There are as many grants as carriers.
#[derive(Debug)]
pub struct PushBudgets {
    accounts: PushBudget,
    grants: BTreeMap<PageId, Grant>,
}

impl PushBudgets {
    /// Creates a ledger. `share` is the part of pages' bytes that may be pushed without being used:
    /// 0 to 1.
    pub fn new(share: f64) -> Self {
        Self { accounts: PushBudget::new(share), grants: BTreeMap::new() }
    }

    /// Returns the number of bytes that may be pushed for `page` of `site` to `passenger`: at most
    /// `most`.
    pub fn grant(
        &mut self,
        page: PageId,
        (passenger, site): (Passenger, &str),
        most: u64,
        now: Duration,
    ) -> u64 {
        let grant = self.accounts.grant(passenger, site, most, now);
        let bytes = grant.bytes();
        self.grants.insert(page, grant);
        bytes
    }

    /// Records that `bytes` more of the bytes pushed for `page` were used.
    pub fn used(&mut self, page: PageId, bytes: u64, now: Duration) {
        if let Some(grant) = self.grants.get_mut(&page) {
            self.accounts.used(grant, bytes, now);
        }
    }

    /// Records the final size of the pushes for `page`: at most `bytes`.
    pub fn came(&mut self, page: PageId, bytes: u64, now: Duration) {
        if let Some(grant) = self.grants.get_mut(&page) {
            self.accounts.limit(grant, bytes, now);
        }
    }

    /// Settles the account of `page`, which has ended.
    pub fn settle(&mut self, page: PageId, outcome: Outcome, now: Duration) {
        if let Some(grant) = self.grants.remove(&page) {
            self.accounts.settle(grant, outcome, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_pushes_count_once_and_ended_ones_never() {
        const MOST: u64 = 8_000_000;
        let (now, who) = (Duration::ZERO, (Passenger::from([10, 0, 0, 7]), "site.test"));
        let mut push_budgets = PushBudgets::new(0.15);
        let first = push_budgets.grant(1, who, MOST, now);
        let without = push_budgets.grant(2, who, MOST, now);
        push_budgets.settle(2, Outcome::default(), now);

        push_budgets.used(1, 1_000_000, now);
        push_budgets.came(1, 2_500_000, now);
        push_budgets.used(1, 1_500_000, now);
        assert!(push_budgets.grant(3, who, MOST, now) > first, "it has earned some");
        push_budgets.settle(3, Outcome::default(), now);
        let outcome = Outcome { page_bytes: 2_500_000, pushed_bytes: 2_500_000, wasted_bytes: 0 };
        push_budgets.settle(1, outcome, now);
        let after = push_budgets.grant(4, who, MOST, now);
        push_budgets.settle(4, Outcome::default(), now);
        assert!(after > first && first > without);

        // A late report changes nothing.
        push_budgets.used(1, 1_000_000, now);
        push_budgets.came(1, 0, now);
        push_budgets.settle(1, outcome, now);
        assert_eq!(push_budgets.grant(5, who, MOST, now), after);
    }
}
