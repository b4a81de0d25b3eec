use bentpipe_flow::quota::part_of_network;

use super::*;
use crate::testing::{query, query_with};
use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::RData;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const CLIENT: Asker = Asker::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));

fn pool(only: &[&str]) -> FakeIpPool {
    let only: Vec<String> = only.iter().map(|it| (*it).to_owned()).collect();
    let v4 = (Ipv4Addr::new(100, 64, 0, 0), 10);
    let v6 = ("fd00:64::".parse().unwrap(), 64);
    FakeIpPool::new(v4, Some(v6), &only, 1).unwrap()
}

fn ask(pool: &mut FakeIpPool, name: &str, kind: RecordType, now: Duration) -> Option<IpAddr> {
    ask_from(pool, 1, (name, kind), now)
}

/// Queries as client 0 to 255.
fn ask_from(
    pool: &mut FakeIpPool,
    client: usize,
    (name, kind): (&str, RecordType),
    now: Duration,
) -> Option<IpAddr> {
    let request = Query::parse(&query(name, kind)).unwrap();
    let (reply, _) = pool.answer(&request, [10, 0, 0, client as u8].into(), now)?;
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!(reply.answers[0].ttl, TTL_S);
    match &reply.answers[0].data {
        RData::A(ip) => Some(ip.0.into()),
        RData::AAAA(ip) => Some(ip.0.into()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_families_stand_for_the_name() {
    let mut pool = pool(&[]);
    let v4 = ask(&mut pool, "Www.Gov.UK.", RecordType::A, s(0)).unwrap();
    let v6 = ask(&mut pool, "www.gov.uk.", RecordType::AAAA, s(0)).unwrap();
    let other = ask(&mut pool, "other.gov.uk.", RecordType::A, s(0)).unwrap();
    assert_eq!(v4, "100.64.0.1".parse::<IpAddr>().unwrap());
    assert_eq!(v6, "fd00:64::1".parse::<IpAddr>().unwrap());
    assert_eq!(pool.name_of(v4), Some(Some("www.gov.uk")));
    assert_eq!(pool.name_of(v6), Some(Some("www.gov.uk")));
    assert_eq!(pool.name_of(other), Some(Some("other.gov.uk")));
    assert_eq!(pool.name_of("100.64.9.9".parse().unwrap()), Some(None));
    assert_eq!(pool.name_of("fd00:64::9".parse().unwrap()), Some(None));
    assert_eq!(pool.name_of("192.0.2.1".parse().unwrap()), None);
    assert_eq!(pool.name_of("fd00:65::1".parse().unwrap()), None);
}

#[test]
fn a_missing_family_is_denied_at_once() {
    let mut pool = FakeIpPool::new((Ipv4Addr::new(100, 64, 0, 0), 10), None, &[], 1).unwrap();
    let request = Query::parse(&query("www.gov.uk.", RecordType::AAAA)).unwrap();
    let (reply, record) = pool.answer(&request, CLIENT, s(0)).expect("an immediate answer");
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!(reply.metadata.response_code, hickory_proto::op::ResponseCode::NoError);
    assert!(reply.answers.is_empty() && record.is_some(), "its number outlives a crash");
    let v4 = ask(&mut pool, "www.gov.uk.", RecordType::A, s(0)).unwrap();
    assert_eq!(pool.name_of(v4), Some(Some("www.gov.uk")));
    assert_eq!(pool.by_number.len(), 1);
}

#[test]
fn some_names_are_left_to_the_ground() {
    let mut pool = pool(&["gov.uk"]);
    let mut is_answered = |name: &str, kind| ask(&mut pool, name, kind, s(0)).is_some();
    assert!(is_answered("gov.uk.", RecordType::A) && is_answered("www.gov.uk.", RecordType::A));
    assert!(!is_answered("notgov.uk.", RecordType::A) && !is_answered("uk.", RecordType::A));
    assert!(!is_answered("www.gov.uk.", RecordType::HTTPS));
    let signed = query_with("www.gov.uk.", RecordType::A, |message| {
        let mut edns = Edns::new();
        edns.set_dnssec_ok(true);
        message.set_edns(edns);
    });
    assert!(pool.answer(&Query::parse(&signed).unwrap(), CLIENT, s(0)).is_none());
    let mut all = super::tests::pool(&[]);
    for name in ["printer.", "printer.local.", "resolver.bentpipe.invalid."] {
        assert_eq!(ask(&mut all, name, RecordType::A, s(0)), None, "{name}");
    }
}

/// Invariant: an address that a client remembers leads to its own name or nowhere.
#[test]
fn an_address_is_never_reused_while_it_is_held() {
    let mut pool = pool(&[]);
    let mut first = std::collections::HashMap::new();
    let mut now = s(0);
    for n in 0..3 * MAX_NAMES {
        // As fast as the pool assigns names.
        now += Duration::from_millis(2);
        let name = format!("n{n}.example.");
        if let Some(ip) = ask_from(&mut pool, n % 64, (&name, RecordType::A), now) {
            assert_eq!(first.insert(ip, n), None, "{ip} is assigned twice");
            assert!(pool.name_of(ip).is_some_and(|name| name.is_some()), "it is used");
        }
    }
    assert_eq!(first.len(), MAX_NAMES, "a full pool assigns nothing");
    assert_eq!((pool.by_number.len(), pool.order.len()), (MAX_NAMES, MAX_NAMES));
    // A day later unused names are forgotten, and new ones begin elsewhere.
    now += HOLD;
    let ip = ask(&mut pool, "late.example.", RecordType::A, now).unwrap();
    assert!(!first.contains_key(&ip));
    assert_eq!((pool.by_number.len(), pool.name_of(ip)), (1, Some(Some("late.example"))));
}

#[test]
fn one_client_does_not_exhaust_the_pool() {
    let mut pool = pool(&[]);
    let used = ask_from(&mut pool, 2, ("portal.example.", RecordType::A), s(0)).unwrap();
    assert_eq!(pool.name_of(used), Some(Some("portal.example")));
    // 100 new names per second, more than the pool holds.
    const NAMES: usize = MAX_NAMES + MAX_NAMES / 4;
    let mut given = 0;
    for n in 0..NAMES {
        let now = Duration::from_millis(10 * n as u64);
        given +=
            usize::from(ask(&mut pool, &format!("n{n}.example."), RecordType::A, now).is_some());
        if n % 1000 == 0 {
            let name = format!("page{n}.example.");
            assert!(ask_from(&mut pool, 3, (&name, RecordType::A), now).is_some(), "after {n}");
        }
    }
    // Its share, once more for each time that its names have been idle long enough.
    let turns = NAMES / 100 / IDLE.as_secs() as usize;
    assert!((MAX_NAMES_OF_ONE..=(turns + 1) * MAX_NAMES_OF_ONE).contains(&given), "{given}");
    assert_eq!(pool.begun.of(CLIENT), MAX_NAMES_OF_ONE);
    assert_eq!(pool.name_of(used), Some(Some("portal.example")));
    let last = Duration::from_millis(10 * NAMES as u64) + HOLD;
    assert!(ask(&mut pool, "late.example.", RecordType::A, last).is_some());
    assert_eq!(
        (pool.unused.len(), pool.by_client.len(), pool.begun.clients().holders()),
        (1, 1, 1)
    );
}

#[test]
fn a_full_pool_releases_unused_names() {
    let mut pool = pool(&[]);
    for n in 0..MAX_NAMES {
        let (name, now) = (format!("n{n}.example."), Duration::from_millis(2 * n as u64));
        let ip = ask_from(&mut pool, n % 64, (&name, RecordType::A), now).unwrap();
        if n != 7 {
            pool.name_of(ip);
        }
    }
    let full = Duration::from_millis(2 * MAX_NAMES as u64);
    let next = ("next.example.", RecordType::A);
    assert_eq!(ask_from(&mut pool, 99, next, full), None, "it was answered a moment ago");
    let then = IDLE + Duration::from_millis(2 * 7);
    let ip = ask_from(&mut pool, 99, next, then).unwrap();
    assert_eq!(pool.name_of(ip), Some(Some("next.example")));
    assert_eq!(pool.name_of("100.64.0.8".parse().unwrap()), Some(None), "it leads nowhere");
    assert_eq!(ask_from(&mut pool, 99, ("more.example.", RecordType::A), then + IDLE), None);
}

/// Clients that use all their names do not shut a newcomer out for a day.
#[test]
fn a_full_pool_releases_used_names_of_the_client_with_most() {
    let mut pool = pool(&[]);
    for n in 0..MAX_NAMES {
        let (name, now) = (format!("n{n}.example."), Duration::from_millis(2 * n as u64));
        // Client 0 begins its share, and the others less.
        let client = if n < MAX_NAMES_OF_ONE { 0 } else { 1 + n % 64 };
        let ip = ask_from(&mut pool, client, (&name, RecordType::A), now).unwrap();
        pool.name_of(ip);
    }
    let last = Duration::from_millis(2 * MAX_NAMES as u64);
    let next = |n: usize| format!("next{n}.example.");
    let ask_next = |pool: &mut FakeIpPool, n: usize, now| {
        ask_from(pool, 99, (&next(n), RecordType::A), now).is_some()
    };
    assert!(!ask_next(&mut pool, 0, last + IDLE), "all are used");
    // Client 0 asks for its first name again.
    assert!(ask_from(&mut pool, 0, ("n0.example.", RecordType::A), last).is_some());
    assert!(ask_next(&mut pool, 0, last + USED_IDLE));
    let name_of = |pool: &mut FakeIpPool, n: u8| {
        let ip = Ipv4Addr::new(100, 64, 0, n).into();
        pool.name_of(ip).unwrap().map(str::to_owned)
    };
    assert_eq!(name_of(&mut pool, 1).as_deref(), Some("n0.example"), "it was asked for again");
    assert_eq!(name_of(&mut pool, 2), None, "the idlest of who has most leads nowhere");
    let held = |pool: &FakeIpPool, n: u8| pool.begun.of([10, 0, 0, n].into());
    let others = held(&pool, 5);
    let newcomers = (1..2_000).filter(|n| ask_next(&mut pool, *n, last + USED_IDLE)).count();
    assert_eq!((newcomers, held(&pool, 5)), (999, others), "as fast as the pool assigns names");
    assert!(ask_next(&mut pool, 2_000, last + USED_IDLE + s(1)));
    assert_eq!(pool.by_number.len(), MAX_NAMES);
}

/// A name that was only prefetched does not protect the idle used names of its client.
#[test]
fn a_fresh_unused_name_does_not_protect_used_ones() {
    let mut pool = pool(&[]);
    for n in 0..MAX_NAMES_OF_ONE - 1 {
        let now = Duration::from_millis(2 * n as u64);
        let ip = ask(&mut pool, &format!("n{n}.example."), RecordType::A, now).unwrap();
        pool.name_of(ip);
    }
    let fresh = USED_IDLE - s(1);
    let unused = ask(&mut pool, "prefetched.example.", RecordType::A, fresh).unwrap();
    assert_eq!(ask(&mut pool, "early.example.", RecordType::A, fresh), None, "all are fresh");
    assert!(ask(&mut pool, "next.example.", RecordType::A, USED_IDLE).is_some());
    assert_eq!(pool.name_of("100.64.0.1".parse().unwrap()), Some(None), "the idlest used name");
    assert_eq!(pool.name_of(unused), Some(Some("prefetched.example")));
}

#[test]
fn forged_addresses_share_the_limit_of_their_network() {
    let mut pool = pool(&[]);
    let mut begin = |ip: Asker, n: usize| {
        let request = Query::parse(&query(&format!("n{n}.example."), RecordType::A)).unwrap();
        pool.answer(&request, ip, Duration::from_millis(2 * n as u64)).is_some()
    };
    let forged = |n: usize| Ipv6Addr::from_bits(0x2001_0db8 << 96 | n as u128).into();
    let given = (0..MAX_NAMES).filter(|n| begin(forged(*n), *n)).count();
    assert_eq!(given, part_of_network(MAX_NAMES));
    assert!((0..100).all(|n| begin(CLIENT, MAX_NAMES + n)));
}

#[test]
fn used_names_are_held_and_journaled_again() {
    let mut pool = pool(&[]);
    let request = Query::parse(&query("a.example.", RecordType::A)).unwrap();
    let journaled = |pool: &mut FakeIpPool, at| pool.answer(&request, CLIENT, at).unwrap().1;
    let record = Record::FakeIp { number: 1, until: HOLD, name: "a.example".into() };
    assert_eq!(journaled(&mut pool, s(0)), Some(record));
    assert_eq!(journaled(&mut pool, s(60)), None);
    assert!(journaled(&mut pool, REFRESH + s(1)).is_some());
    let _ = journaled(&mut pool, HOLD - s(1));
    assert!(ask(&mut pool, "b.example.", RecordType::A, HOLD + s(1)).is_some());
    let ip = "100.64.0.1".parse().unwrap();
    assert_eq!(pool.name_of(ip), Some(Some("a.example")), "it was used a moment ago");
}

#[test]
fn a_restart_restores_assignments_and_skips_numbers() {
    let mut pool = pool(&[]);
    let ips: Vec<_> = (0..100)
        .map(|n| ask(&mut pool, &format!("n{n}.example."), RecordType::A, s(1)).unwrap())
        .collect();
    let mut again = super::tests::pool(&[]);
    for record in pool.records(s(2)) {
        again.restore(record, s(2));
    }
    for (n, ip) in ips.iter().enumerate() {
        assert_eq!(again.name_of(*ip), Some(Some(&*format!("n{n}.example"))));
    }
    // Assignments missing from the journal are not given to another name.
    let new = ask(&mut again, "new.example.", RecordType::A, s(3)).unwrap();
    let lost: Vec<_> = (100..1100)
        .filter_map(|n| ask(&mut pool, &format!("n{n}.example."), RecordType::A, s(3)))
        .collect();
    assert!(!ips.contains(&new) && !lost.contains(&new) && !lost.is_empty());
    assert!(again.number_of(new).unwrap() >= 100 + SKIPPED);
}

#[test]
fn invalid_pools_are_refused() {
    let v4 = Ipv4Addr::new(100, 64, 0, 0);
    assert_eq!(FakeIpPool::new((v4, 16), None, &[], 0).err(), Some(PoolError::Small));
    let v6 = Some(("fd00::".parse().unwrap(), 112));
    assert_eq!(FakeIpPool::new((v4, 10), v6, &[], 0).err(), Some(PoolError::SmallV6));
    let only = ["no such name".to_owned()];
    assert!(matches!(FakeIpPool::new((v4, 10), None, &only, 0), Err(PoolError::Domain(_))));
}
