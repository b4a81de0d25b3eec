//! Possible waste of the pages that are held, by their numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_prefetch::account::{Accounts, Grant, Outcome};
use bentpipe_prefetch::promised::{PageId, Passenger};

/// The accounts of one air gateway, and what is granted of them: as many grants as there are carriers.
#[derive(Debug)]
pub struct Ledger {
    accounts: Accounts,
    grants: BTreeMap<PageId, Grant>,
}

impl Ledger {
    /// `share` is the part of pages' bytes that may be pushed in vain: 0 to 1.
    pub fn new(share: f64) -> Self {
        Self { accounts: Accounts::new(share), grants: BTreeMap::new() }
    }

    /// Number of bytes that may be pushed for `page`, of `site`, to `passenger`: at most `most`.
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

    /// So many bytes more of what was pushed for `page` were used.
    pub fn used(&mut self, page: PageId, bytes: u64, now: Duration) {
        if let Some(grant) = self.grants.get_mut(&page) {
            self.accounts.used(grant, bytes, now);
        }
    }

    /// No more than `bytes` have been pushed for `page`, nor will be.
    pub fn came(&mut self, page: PageId, bytes: u64, now: Duration) {
        if let Some(grant) = self.grants.get_mut(&page) {
            self.accounts.came(grant, bytes, now);
        }
    }

    /// `page` is over.
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
    fn what_was_used_counts_once_and_what_is_over_not_at_all() {
        const MOST: u64 = 8_000_000;
        let (now, who) = (Duration::ZERO, (Passenger::from([10, 0, 0, 7]), "site.test"));
        let mut ledger = Ledger::new(0.15);
        let first = ledger.grant(1, who, MOST, now);
        let without = ledger.grant(2, who, MOST, now);
        ledger.settle(2, Outcome::default(), now);

        ledger.used(1, 1_000_000, now);
        ledger.came(1, 2_500_000, now);
        ledger.used(1, 1_500_000, now);
        assert!(ledger.grant(3, who, MOST, now) > first, "it has earned some");
        ledger.settle(3, Outcome::default(), now);
        let outcome = Outcome { page_bytes: 2_500_000, pushed_bytes: 2_500_000, wasted_bytes: 0 };
        ledger.settle(1, outcome, now);
        let after = ledger.grant(4, who, MOST, now);
        ledger.settle(4, Outcome::default(), now);
        assert!(after > first && first > without);

        // Told of late, it changes nothing.
        ledger.used(1, 1_000_000, now);
        ledger.came(1, 0, now);
        ledger.settle(1, outcome, now);
        assert_eq!(ledger.grant(5, who, MOST, now), after);
    }
}
