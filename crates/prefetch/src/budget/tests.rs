use std::collections::VecDeque;
use std::net::Ipv6Addr;

use super::table::HALF_LIFE;
use super::*;
use proptest::prelude::*;

const MAX: u64 = 8_000_000;

fn who(number: u32) -> Passenger {
    Passenger::V4(number.into())
}

fn page(pushed: u64, wasted: u64) -> Outcome {
    Outcome { page_bytes: 100_000 + pushed - wasted, pushed_bytes: pushed, wasted_bytes: wasted }
}

#[test]
fn a_wasteful_site_gets_no_second_page() {
    let mut accounts = PushBudget::new(0.15);
    let now = Duration::ZERO;
    let grant = accounts.grant(who(1), "a.test", MAX, now);
    let first = grant.bytes();
    assert!((2_500_000..=MAX).contains(&first), "{first}");
    accounts.settle(grant, page(first, first), now);
    assert_eq!(accounts.grant(who(1), "a.test", MAX, now).bytes(), 0);
    let passengers = accounts.grant(who(1), "b.test", MAX, now).bytes();
    assert_eq!(passengers, 0, "the passenger's is spent too");
    assert_eq!(accounts.grant(who(2), "a.test", MAX, now).bytes(), 0);
    assert_eq!(accounts.grant(who(2), "b.test", MAX, now).bytes(), first);
    let later = accounts.grant(who(1), "a.test", MAX, now + 8 * HALF_LIFE).bytes();
    assert!(later > 0, "sites change");
}

#[test]
fn used_pushes_cost_nothing() {
    let mut accounts = PushBudget::new(0.15);
    for minute in 0..100 {
        let now = Duration::from_secs(60 * minute);
        let grant = accounts.grant(who(1), "a.test", MAX, now);
        assert!(grant.bytes() > 2_500_000);
        accounts.settle(grant, page(2_500_000, 250_000), now);
    }
    let mut none = PushBudget::new(0.0);
    assert_eq!(none.grant(who(1), "a.test", MAX, Duration::ZERO).bytes(), 0);
}

#[test]
fn simultaneous_pages_share_one_balance() {
    let mut accounts = PushBudget::new(0.15);
    let now = Duration::ZERO;
    let all: Vec<_> = (0..8).map(|_| accounts.grant(who(1), "a.test", MAX, now)).collect();
    assert!(all[0].bytes() > 2_500_000 && all[1].bytes() > 1_000_000);
    let granted: u64 = all.iter().map(Grant::bytes).sum();
    assert!(granted as f64 <= GRACE_BYTES / PRIOR_WASTE, "{granted}");
    let others = accounts.grant(who(2), "a.test", MAX, now);
    assert!(others.bytes() < 50_000, "the site's account is one");
    accounts.settle(others, Outcome::default(), now);

    // Bytes that did not arrive, and grants settled without bytes, are free again.
    for (number, mut grant) in all.into_iter().enumerate() {
        let bytes = grant.bytes();
        accounts.limit(&mut grant, bytes + 1, now);
        accounts.limit(&mut grant, 0, now);
        if number % 2 == 0 {
            accounts.settle(grant, Outcome::default(), now);
        }
    }
    assert!(accounts.grant(who(1), "a.test", MAX, now).bytes() >= 3_300_000);
}

#[test]
fn used_bytes_of_an_open_page_are_not_at_risk() {
    let (mut accounts, now) = (PushBudget::new(0.15), Duration::ZERO);
    let mut held = Vec::new();
    for number in 0..12 {
        let mut grant = accounts.grant(who(1), "a.test", MAX, now);
        assert!(grant.bytes() >= 2_500_000, "page {number}: {}", grant.bytes());
        // Some bytes are used before the rest has arrived.
        accounts.used(&mut grant, 1_000_000, now);
        accounts.limit(&mut grant, 2_500_000, now);
        accounts.used(&mut grant, 1_500_000, now);
        assert_eq!(grant.bytes(), 0);
        held.push(grant);
    }
    for grant in held {
        accounts.settle(grant, page(2_500_000, 0), now);
    }
    let (found, expected) = (accounts.passengers.get(&who(1), now), with_good_history());
    let expected = expected.passengers.get(&who(1), now);
    assert_eq!(format!("{found:?}"), format!("{expected:?}"), "nothing counts twice");

    // No more is used than was granted, and the rest is still at risk.
    let mut grant = accounts.grant(who(1), "a.test", 1000, now);
    accounts.used(&mut grant, 400, now);
    assert_eq!(grant.bytes(), 600);
    accounts.used(&mut grant, 4000, now);
    assert_eq!(grant.bytes(), 0);
    accounts.settle(grant, page(1000, 0), now);
}

#[test]
fn the_number_of_accounts_is_bounded() {
    let mut accounts = PushBudget::new(0.15);
    for passenger in 0..2 * MAX_ACCOUNTS as u32 {
        let now = Duration::from_secs(passenger.into());
        let grant = accounts.grant(who(passenger), &format!("{passenger}.test"), 1, now);
        accounts.settle(grant, page(1, 1), now);
    }
    assert_eq!(accounts.passengers.accounts.len(), MAX_ACCOUNTS);
    assert_eq!(accounts.sites.accounts.len(), MAX_ACCOUNTS);
    assert!(!accounts.passengers.accounts.contains_key(&who(0)));
}

/// Grants a page for `passenger` of which everything is wasted. Returns its size.
fn waste(accounts: &mut PushBudget, passenger: Passenger, site: &str, now: Duration) -> u64 {
    let grant = accounts.grant(passenger, site, MAX, now);
    let bytes = grant.bytes();
    accounts.settle(
        grant,
        Outcome { pushed_bytes: bytes, wasted_bytes: bytes, page_bytes: 0 },
        now,
    );
    bytes
}

/// PushBudget with a history of 30 MB of used pushes.
fn with_good_history() -> PushBudget {
    let mut accounts = PushBudget::new(0.15);
    for _ in 0..12 {
        let grant = accounts.grant(who(1), "a.test", MAX, Duration::ZERO);
        accounts.settle(grant, page(2_500_000, 0), Duration::ZERO);
    }
    accounts
}

#[test]
fn a_good_history_is_not_spent_twice() {
    let mut accounts = with_good_history();
    let now = Duration::from_secs(1);
    let all: Vec<_> = (0..16).map(|_| accounts.grant(who(1), "a.test", MAX, now)).collect();
    let granted: Vec<u64> = all.iter().map(Grant::bytes).collect();
    assert_eq!(granted[0], MAX, "a lone page has no bound but its own");
    assert!(granted[1] > 4_000_000 && granted[2] > 2_000_000, "and others get some: {granted:?}");
    let earned = 0.15 * 12.0 * 2_600_000.0;
    let bound = GRACE_BYTES + earned + PASSENGERS_PAGES * MAX as f64;
    assert!(granted.iter().sum::<u64>() as f64 <= bound, "{granted:?}");
    // Another passenger uses the site's account, which many share.
    assert!(accounts.grant(who(2), "a.test", MAX, now).bytes() > 3_000_000);
    for grant in all {
        accounts.settle(grant, Outcome::default(), now);
    }
    assert_eq!(accounts.grant(who(1), "a.test", MAX, now).bytes(), MAX);
}

#[test]
fn addresses_of_one_device_share_a_bound() {
    let mut accounts = PushBudget::new(0.15);
    let now = Duration::ZERO;
    let address = |network: u16, host: u16| {
        Passenger::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host))
    };
    // A passenger of the same network who used everything.
    for _ in 0..12 {
        let grant = accounts.grant(address(1, 0), "good.test", MAX, now);
        accounts.settle(grant, page(2_500_000, 0), now);
    }
    let wasted: u64 = (1..2000)
        .map(|host| waste(&mut accounts, address(1, host), &format!("{host}.test"), now))
        .sum();
    let bound = GRACE_BYTES * CREDITS_OF_NETWORK + GRACE_BYTES / PRIOR_WASTE;
    assert!((wasted as f64) < bound, "{wasted}");
    let mut given = |passenger, site: &str| accounts.grant(passenger, site, MAX, now).bytes();
    assert_eq!(given(address(1, 3000), "new.test"), 0);
    assert!(given(address(2, 1), "new.test") > 3_000_000, "another network has its own");
    assert!(given(who(1), "newer.test") > 3_000_000);
    let later = now + 4 * HALF_LIFE;
    assert!(accounts.grant(address(1, 3001), "later.test", MAX, later).bytes() > 3_000_000);
}

#[test]
fn earnings_remain_in_an_exhausted_network() {
    let mut accounts = PushBudget::new(0.15);
    let address = |host| Passenger::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host));
    let now = Duration::ZERO;
    for _ in 0..12 {
        let grant = accounts.grant(address(0), "good.test", MAX, now);
        accounts.settle(grant, page(2_500_000, 0), now);
    }
    for host in 1..100 {
        waste(&mut accounts, address(host), &format!("{host}.test"), now);
    }
    assert_eq!(waste(&mut accounts, address(200), "new.test", now), 0);
    let first = accounts.grant(address(0), "good.test", MAX, now);
    assert_eq!(first.bytes(), MAX);
    accounts.settle(first, page(2_500_000, 0), now);
}

#[test]
fn forgotten_accounts_renew_bounded_credit() {
    let mut accounts = PushBudget::new(0.15);
    let now = Duration::from_secs(1);
    let number = 4 * MAX_ACCOUNTS as u32;
    let wasted: u64 =
        (0..number).map(|n| waste(&mut accounts, who(n), &format!("{n}.test"), now)).sum();
    let each = GRACE_BYTES / PRIOR_WASTE * GRANT_SHARE;
    let bound = MAX_ACCOUNTS as f64 * each + GRACE_BYTES * CREDITS_FORGOTTEN + each;
    assert!((wasted as f64) < bound, "{wasted} of {bound}");
    assert_eq!(waste(&mut accounts, who(number), "new.test", now), 0);
    let later = now + 4 * HALF_LIFE;
    assert!(waste(&mut accounts, who(number + 1), "newer.test", later) > 3_000_000);
}

#[test]
fn accounts_with_open_pages_are_not_forgotten() {
    let mut accounts = PushBudget::new(0.15);
    let now = Duration::from_secs;
    let held = accounts.grant(who(0), "0.test", MAX, now(0));
    for n in 1..2 * MAX_ACCOUNTS as u32 {
        waste(&mut accounts, who(n), &format!("{n}.test"), now(n.into()));
    }
    assert!(accounts.passengers.accounts.contains_key(&who(0)));
    let bytes = held.bytes();
    accounts.settle(held, page(bytes, bytes), now(3000));
    assert_eq!(accounts.grant(who(0), "other.test", MAX, now(3000)).bytes(), 0);

    // If every remembered account has open pages, new ones get nothing.
    let mut accounts = PushBudget::new(0.15);
    let some: Vec<_> = (0..=MAX_ACCOUNTS as u32)
        .map(|n| accounts.grant(who(n), &format!("{n}.test"), 1000, now(0)))
        .collect();
    assert_eq!(some.iter().filter(|grant| grant.bytes() == 1000).count(), MAX_ACCOUNTS);
    for grant in some {
        accounts.settle(grant, Outcome::default(), now(1));
    }
    assert!(accounts.passengers.accounts.values().all(|account| account.outstanding_bytes == 0));
}

proptest! {
    /// Wasted bytes stay within 15 % of the pages' bytes, plus the credit and two of the largest
    /// pages, whatever share of the pushes is used, and however many pages are open.
    #[test]
    fn waste_is_bounded(
        pages in prop::collection::vec((0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64), 1..80),
        at_once in 1_usize..20,
        good in 0_u64..20,
    ) {
        const LARGEST: u64 = 2_500_000;
        let mut accounts = PushBudget::new(0.15);
        let (mut taken, mut wasted) = (0_u64, 0_u64);
        let mut under_way = VecDeque::new();
        let good = (0..good).map(|_| (1.0, 1.0, 0.5));
        let ends = pages.len() + good.clone().count();
        let pages = good.chain(pages).map(Some).chain(std::iter::repeat_n(None, ends));
        for (number, page_) in pages.enumerate() {
            let now = Duration::from_secs(number as u64);
            if let Some((come, wanted, early)) = page_ {
                let mut grant = accounts.grant(who(1), "a.test", LARGEST, now);
                let came = (grant.bytes() as f64 * come) as u64;
                accounts.limit(&mut grant, came, now);
                let used = (came as f64 * wanted) as u64;
                accounts.used(&mut grant, (used as f64 * early) as u64, now);
                under_way.push_back((grant, came, wanted));
            }
            if under_way.len() < at_once && page_.is_some() {
                continue;
            }
            let Some((grant, came, wanted)) = under_way.pop_front() else { break };
            let outcome = page(came, (came as f64 * (1.0 - wanted)) as u64);
            accounts.settle(grant, outcome, now);
            taken += outcome.page_bytes;
            wasted += outcome.wasted_bytes;
            let bound = 0.15 * taken as f64 + GRACE_BYTES + PASSENGERS_PAGES * LARGEST as f64;
            prop_assert!((wasted as f64) < bound, "{} of {}", wasted, taken);
        }
        prop_assert!(under_way.is_empty());
    }
}
