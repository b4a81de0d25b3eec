//! Accounts of wasted pushes, for each passenger and each site, which decide the next risk.
//!
//! The aim is that no more than a share (15 % by default) of the bytes that pages take are pushes that
//! nobody wanted. What a push comes to is known only later, so what may be risked is what the
//! account still has, divided by how much of earlier pushes was in vain. A site whose pushes are all
//! used has no bound but the page's own; one whose pushes are never used soon has
//! none left.
//!
//! Pages that are under way may yet be in vain, and so count until they are settled, but for what of them was
//! used already: at the rate that was known when they were granted, and at the worst with every byte, which is
//! bounded by a few of the largest pages however many are under way. Whoever has many addresses has many
//! accounts, but what these lose of the credit that they began with is bounded for each /64 of IPv6, and for those
//! that were forgotten.

mod book;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;

use crate::promised::{Passenger, network};
use book::{Account, Book, Terms};

pub use book::MAX_ACCOUNTS;

/// Every account begins with so much to lose: half of a usual page.
const GRACE_BYTES: f64 = 1_000_000.0;

/// Before anything is known, pushes are taken to be in vain at this rate.
const PRIOR_WASTE: f64 = 0.15;

/// One page is granted so much of what an account has left, so that pages at the same time get some too:
/// the first of a new account 3.3 MB, a second beside it 1.7 MB.
const MOST_OF_LEFT: f64 = 0.5;

/// A passenger's pages under way may be in vain with so many times the largest page, beyond what the account
/// has left: at 8 MiB, 16 MiB. With it an account of some history grants a lone page the largest there is.
const PASSENGERS_PAGES: f64 = 2.0;

/// The same for a site, which many passengers may open at once, and for a network: at 8 MiB, 64 MiB.
const SITES_PAGES: f64 = 8.0;

/// The passengers of one /64 of IPv6 have lost, and not yet earned, no more than the credit of so many: 64 MB.
/// A cabin is often one network, whose passengers mostly earn what they lose; and one device may choose as many
/// addresses in it as it likes, which lose no more than this together.
const CREDITS_OF_NETWORK: f64 = 64.0;

/// Accounts that were forgotten while they had lost more than they had earned may have lost so many credits,
/// 256 MB; beyond it new accounts begin without.
const CREDITS_FORGOTTEN: f64 = 256.0;

/// The accounts of one air gateway.
#[derive(Debug)]
pub struct Accounts {
    passengers: Book<Passenger>,
    sites: Book<Bytes>,
    /// Debt of the passengers of each network: an account's `wasted` is that here.
    networks: Book<u64>,
}

/// Bytes of a page, once it is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that passengers asked for and got: the page, its objects, pushed or not.
    pub page_bytes: u64,
    /// Bytes of objects that were pushed.
    pub pushed_bytes: u64,
    /// Those of them that nobody asked for.
    pub wasted_bytes: u64,
}

/// Bytes that may be pushed for one page; to be settled when the page is over.
#[derive(Debug)]
#[must_use = "what it reserves is given back by settling it"]
pub struct Grant {
    passenger: Passenger,
    site: Bytes,
    /// So many may be in vain.
    bytes: u64,
    /// So many were used, and are settled.
    used: u64,
    /// Reservation in the passenger's account, and in the site's.
    reserved: [f64; 2],
}

impl Accounts {
    /// `share` is the part of pages' bytes that may be pushed in vain: 0 to 1.
    pub fn new(share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let credit = GRACE_BYTES * share.min(PRIOR_WASTE) / PRIOR_WASTE;
        let forgotten = credit * CREDITS_FORGOTTEN;
        let of_network = credit * CREDITS_OF_NETWORK;
        let passengers = Terms { share, credit, pages: PASSENGERS_PAGES, forgotten };
        let sites = Terms { pages: SITES_PAGES, ..passengers };
        let networks = Terms { share: 0.0, credit: of_network, pages: SITES_PAGES, forgotten };
        Self {
            // What those of a network owe the network owes, and goes on doing so.
            passengers: Book::new(passengers, |passenger| network(*passenger).is_none()),
            sites: Book::new(sites, |_| true),
            networks: Book::new(networks, |_| true),
        }
    }

    /// Says how many bytes may be pushed for a page of `site` to `passenger`, at most `most`, and reserves
    /// what they may waste.
    pub fn grant(&mut self, passenger: Passenger, site: &str, most: u64, now: Duration) -> Grant {
        let site = Bytes::copy_from_slice(site.as_bytes());
        let none = Grant { passenger, site: site.clone(), bytes: 0, used: 0, reserved: [0.0; 2] };
        let has_room = self.passengers.make_room(&passenger, now)
            && self.sites.make_room(&site, now)
            && network(passenger).is_none_or(|network| self.networks.make_room(&network, now));
        if !has_room {
            return none;
        }
        let of_passenger = self.passengers.get(&passenger, now);
        let of_site = self.sites.get(&site, now);
        let of_network = network(passenger).map(|network| self.networks.get(&network, now));
        let terms = self.networks.terms;
        let lent = of_network.map_or(f64::INFINITY, |network| network.credit_left(terms));
        let allowed = of_passenger
            .allowance(self.passengers.terms, lent, most)
            .min(of_site.allowance(self.sites.terms, f64::INFINITY, most))
            .min(of_network.map_or(f64::INFINITY, |network| network.at_worst(terms, most)));
        // A cast saturates: what is infinite is bounded by `most`.
        let bytes = ((allowed * MOST_OF_LEFT) as u64).min(most);
        let reserved = [of_passenger, of_site].map(|account| account.rate() * bytes as f64);
        let grant = Grant { bytes, reserved, ..none };
        self.change(&grant, now, |account, which| {
            account.reserved += reserved[which];
            account.outstanding_bytes += bytes;
        });
        grant
    }

    /// No more than `bytes` have come or will come by this grant: the rest is free for other pages.
    pub fn came(&mut self, grant: &mut Grant, bytes: u64, now: Duration) {
        let unused = grant.bytes.saturating_sub(bytes.saturating_sub(grant.used));
        if unused == 0 {
            return;
        }
        self.free(grant, unused, Outcome::default(), now);
    }

    /// So many bytes more of what came by this grant were used: they are not in vain, whatever comes of the rest.
    /// A reader's next page need not wait until this one is settled.
    pub fn used(&mut self, grant: &mut Grant, bytes: u64, now: Duration) {
        let bytes = bytes.min(grant.bytes);
        if bytes == 0 {
            return;
        }
        grant.used += bytes;
        let outcome = Outcome { page_bytes: bytes, pushed_bytes: bytes, wasted_bytes: 0 };
        self.free(grant, bytes, outcome, now);
    }

    /// A page is over, and this came of all of it.
    pub fn settle(&mut self, mut grant: Grant, outcome: Outcome, now: Duration) {
        let Outcome { page_bytes, pushed_bytes, wasted_bytes } = outcome;
        let rest = |bytes: u64| bytes.saturating_sub(grant.used);
        let (page_bytes, pushed_bytes) = (rest(page_bytes), rest(pushed_bytes));
        let all = grant.bytes;
        self.free(&mut grant, all, Outcome { page_bytes, pushed_bytes, wasted_bytes }, now);
    }

    /// Releases bytes of a grant that can no longer be wasted, or are wasted by now; adds their
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

    /// Changes the passenger's account, the first, and the site's; and with the former its network's.
    fn change(&mut self, of: &Grant, now: Duration, change: impl Fn(&mut Account, usize)) {
        let changed = self.passengers.change(&of.passenger, now, |account| change(account, 0));
        if let (Some(changed), Some(network)) = (changed, network(of.passenger)) {
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
