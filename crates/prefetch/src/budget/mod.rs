//! Budget of pushes: a ledger of wasted bytes for each passenger and each site, which decides how
//! much may be pushed next.
//!
//! At most a share (15 % by default) of the bytes of pages may be pushes that nobody used. The
//! result of a push is known only later. So a new grant is the account's balance, divided by the
//! share of earlier pushes that was wasted. A site whose pushes are all used is bounded only by the
//! page's own budget. A site whose pushes are never used soon has none left.
//!
//! Open pages may still turn out wasted, so they are charged until they are settled, except for
//! bytes that were used already. Two charges apply: the expected waste at the rate known when the
//! page was granted, and the worst case of every byte. The worst case is bounded by a few of the
//! largest pages, however many are open.
//!
//! A device with many addresses has many accounts. The initial credit that such accounts can lose
//! is bounded for each IPv6 /64, and for forgotten accounts.

mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bentpipe_flow::ClientNetwork;
use bytes::Bytes;

use crate::passenger::{Outcome, Passenger};
use table::{Account, AccountTable, BudgetParams, PRIOR_WASTE};

pub use table::MAX_ACCOUNTS;

/// Pushed bytes that every account may waste at first: half of a usual page.
const GRACE_BYTES: f64 = 1_000_000.0;

/// Share of the balance that one page is granted, so that simultaneous pages get some too. The
/// first page of a new account gets 3.3 MB, a second one at the same time 1.7 MB.
const GRANT_SHARE: f64 = 0.5;

/// Worst-case waste of a passenger's open pages beyond the balance, in largest pages: 16 MiB with 8
/// MiB each. An account with some history can then grant a lone page the largest size.
const PASSENGERS_PAGES: f64 = 2.0;

/// The same for a site, which many passengers may open at once, and for a network: 64 MiB with 8
/// MiB each.
const SITES_PAGES: f64 = 8.0;

/// Bound on the unearned losses of all passengers of one IPv6 /64, in credits: 64 MB. A cabin is
/// often one network, whose passengers mostly earn what they lose. A device that uses many
/// addresses of it cannot lose more than this in total.
const CREDITS_OF_NETWORK: f64 = 64.0;

/// Bound on the unearned losses of forgotten accounts, in credits: 256 MB. Beyond it new accounts
/// start without credit.
const CREDITS_FORGOTTEN: f64 = 256.0;

/// Push budget of one air gateway.
#[derive(Debug)]
pub struct PushBudget {
    passengers: AccountTable<Passenger>,
    sites: AccountTable<Bytes>,
    /// Debt of each network's passengers, counted as `wasted` bytes.
    networks: AccountTable<u64>,
}

/// Bytes that may be pushed for one page. Must be settled when the page is over.
#[derive(Debug)]
#[must_use = "what it reserves is given back by settling it"]
pub struct Grant {
    passenger: Passenger,
    site: Bytes,
    /// Bytes that may still be wasted.
    bytes: u64,
    /// Bytes that were used and are settled.
    used: u64,
    /// Reservations in the accounts of the passenger and of the site.
    reserved: [f64; 2],
}

impl PushBudget {
    /// Creates a budget. `share` is the part of pages' bytes that may be wasted: 0 to 1.
    pub fn new(share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let credit = GRACE_BYTES * share.min(PRIOR_WASTE) / PRIOR_WASTE;
        let forgotten = credit * CREDITS_FORGOTTEN;
        let of_network = credit * CREDITS_OF_NETWORK;
        let passengers = BudgetParams { share, credit, pages: PASSENGERS_PAGES, forgotten };
        let sites = BudgetParams { pages: SITES_PAGES, ..passengers };
        let networks =
            BudgetParams { share: 0.0, credit: of_network, pages: SITES_PAGES, forgotten };
        Self {
            // The network's account keeps the debt of its passengers after theirs are forgotten.
            passengers: AccountTable::new(passengers, |passenger| {
                ClientNetwork::of(*passenger).v6().is_none()
            }),
            sites: AccountTable::new(sites, |_| true),
            networks: AccountTable::new(networks, |_| true),
        }
    }

    /// Grants bytes to push for a page of `site` to `passenger`, at most `max`, and reserves the
    /// possible waste.
    pub fn grant(&mut self, passenger: Passenger, site: &str, max: u64, now: Duration) -> Grant {
        let site = Bytes::copy_from_slice(site.as_bytes());
        let none = Grant { passenger, site: site.clone(), bytes: 0, used: 0, reserved: [0.0; 2] };
        let network = ClientNetwork::of(passenger).v6();
        let has_room = self.passengers.make_room(&passenger, now)
            && self.sites.make_room(&site, now)
            && network.is_none_or(|network| self.networks.make_room(&network, now));
        if !has_room {
            return none;
        }
        let of_passenger = self.passengers.get(&passenger, now);
        let of_site = self.sites.get(&site, now);
        let of_network = network.map(|network| self.networks.get(&network, now));
        let terms = self.networks.terms;
        let lent = of_network.map_or(f64::INFINITY, |network| network.credit_left(terms));
        let allowed = of_passenger
            .allowance(self.passengers.terms, lent, max)
            .min(of_site.allowance(self.sites.terms, f64::INFINITY, max))
            .min(of_network.map_or(f64::INFINITY, |network| network.at_worst(terms, max)));
        // The cast saturates; `max` bounds an infinite value.
        let bytes = ((allowed * GRANT_SHARE) as u64).min(max);
        let reserved = [of_passenger, of_site].map(|account| account.rate() * bytes as f64);
        let grant = Grant { bytes, reserved, ..none };
        self.change(&grant, now, |account, which| {
            account.reserved += reserved[which];
            account.outstanding_bytes += bytes;
        });
        grant
    }

    /// Reports that at most `bytes` of this grant will be pushed. Frees the rest for other pages.
    pub fn limit(&mut self, grant: &mut Grant, bytes: u64, now: Duration) {
        let unused = grant.bytes.saturating_sub(bytes.saturating_sub(grant.used));
        if unused == 0 {
            return;
        }
        self.free(grant, unused, Outcome::default(), now);
    }

    /// Reports that `bytes` more of this grant were used and cannot be wasted. The reader's next
    /// page need not wait until this one is settled.
    pub fn used(&mut self, grant: &mut Grant, bytes: u64, now: Duration) {
        let bytes = bytes.min(grant.bytes);
        if bytes == 0 {
            return;
        }
        grant.used += bytes;
        let outcome = Outcome { page_bytes: bytes, pushed_bytes: bytes, wasted_bytes: 0 };
        self.free(grant, bytes, outcome, now);
    }

    /// Settles the grant of a finished page.
    pub fn settle(&mut self, mut grant: Grant, outcome: Outcome, now: Duration) {
        let Outcome { page_bytes, pushed_bytes, wasted_bytes } = outcome;
        let rest = |bytes: u64| bytes.saturating_sub(grant.used);
        let (page_bytes, pushed_bytes) = (rest(page_bytes), rest(pushed_bytes));
        let all = grant.bytes;
        self.free(&mut grant, all, Outcome { page_bytes, pushed_bytes, wasted_bytes }, now);
    }

    /// Releases bytes of a grant that can no longer be wasted, or were wasted, and adds their
    /// outcome.
    fn free(&mut self, grant: &mut Grant, bytes: u64, outcome: Outcome, now: Duration) {
        let part = if grant.bytes == 0 { 1.0 } else { bytes as f64 / grant.bytes as f64 };
        let freed = grant.reserved.map(|reserved| reserved * part);
        self.change(grant, now, |account, which| {
            account.free(freed[which], bytes);
            account.add(outcome);
        });
        grant.reserved = grant.reserved.map(|reserved| reserved * (1.0 - part));
        grant.bytes -= bytes;
    }

    /// Applies `change` to the accounts of the passenger (0) and of the site (1), and the
    /// passenger's change to its network.
    fn change(&mut self, of: &Grant, now: Duration, change: impl Fn(&mut Account, usize)) {
        let changed = self.passengers.change(&of.passenger, now, |account| change(account, 0));
        if let (Some(changed), Some(network)) = (changed, ClientNetwork::of(of.passenger).v6()) {
            self.networks.change(&network, now, |account| account.follow(changed));
        }
        self.sites.change(&of.site, now, |account| change(account, 1));
    }
}

impl Grant {
    /// Number of bytes that may be pushed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
