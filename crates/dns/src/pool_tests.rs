use super::*;
use crate::testing::{query, query_with};
use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::RData;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn pool(only: &[&str]) -> Pool {
    let only: Vec<String> = only.iter().map(|it| (*it).to_owned()).collect();
    let v4 = (Ipv4Addr::new(100, 64, 0, 0), 10);
    let v6 = ("fd00:64::".parse().unwrap(), 64);
    Pool::new(v4, Some(v6), &only, 1).unwrap()
}

fn ask(pool: &mut Pool, name: &str, kind: RecordType, now: Duration) -> Option<IpAddr> {
    ask_from(pool, 1, (name, kind), now)
}

/// The same of a client of its own, 0 to 255.
fn ask_from(
    pool: &mut Pool,
    client: usize,
    (name, kind): (&str, RecordType),
    now: Duration,
) -> Option<IpAddr> {
    let asked = Query::parse(&query(name, kind)).unwrap();
    let (reply, _) = pool.answer(&asked, [10, 0, 0, client as u8].into(), now)?;
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
fn a_family_that_the_pool_has_not_is_denied_at_once_even_if_asked_for_first() {
    let mut pool = Pool::new((Ipv4Addr::new(100, 64, 0, 0), 10), None, &[], 1).unwrap();
    let asked = Query::parse(&query("www.gov.uk.", RecordType::AAAA)).unwrap();
    let (reply, record) = pool.answer(&asked, CLIENT, s(0)).expect("it waits for the ground");
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

/// The promise: an address that somebody remembers leads to its own name or nowhere.
#[test]
fn an_address_is_never_given_to_another_name_while_it_is_held() {
    let mut pool = pool(&[]);
    let mut first = HashMap::new();
    let mut now = s(0);
    for n in 0..3 * MAX_NAMES {
        // As quickly as the pool assigns names.
        now += Duration::from_millis(2);
        let name = format!("n{n}.example.");
        if let Some(ip) = ask_from(&mut pool, n % 64, (&name, RecordType::A), now) {
            assert_eq!(first.insert(ip, n), None, "{ip} is given away twice");
            assert!(pool.name_of(ip).is_some_and(|name| name.is_some()), "it is used");
        }
    }
    assert_eq!(first.len(), MAX_NAMES, "it is full, and gives nothing away");
    assert_eq!((pool.by_number.len(), pool.order.len()), (MAX_NAMES, MAX_NAMES));
    // A day later those that nobody has asked for are forgotten, and others begin elsewhere.
    now += HOLD;
    let ip = ask(&mut pool, "late.example.", RecordType::A, now).unwrap();
    assert!(!first.contains_key(&ip));
    assert_eq!((pool.by_number.len(), pool.name_of(ip)), (1, Some(Some("late.example"))));
}

#[test]
fn one_client_leaves_the_others_their_addresses() {
    let mut pool = pool(&[]);
    let used = ask_from(&mut pool, 2, ("portal.example.", RecordType::A), s(0)).unwrap();
    assert_eq!(pool.name_of(used), Some(Some("portal.example")));
    // 100 new names a second, more than there is room for.
    const ASKED: usize = MAX_NAMES + MAX_NAMES / 4;
    let mut given = 0;
    for n in 0..ASKED {
        let now = Duration::from_millis(10 * n as u64);
        given +=
            usize::from(ask(&mut pool, &format!("n{n}.example."), RecordType::A, now).is_some());
        if n % 1000 == 0 {
            let name = format!("page{n}.example.");
            assert!(ask_from(&mut pool, 3, (&name, RecordType::A), now).is_some(), "after {n}");
        }
    }
    // Its share, and once more as often as names of it have been idle for long enough.
    let turns = ASKED / 100 / IDLE.as_secs() as usize;
    assert!((MAX_NAMES_OF_ONE..=(turns + 1) * MAX_NAMES_OF_ONE).contains(&given), "{given}");
    assert_eq!(pool.begun[&CLIENT], MAX_NAMES_OF_ONE);
    assert_eq!(pool.name_of(used), Some(Some("portal.example")));
    let last = Duration::from_millis(10 * ASKED as u64) + HOLD;
    assert!(ask(&mut pool, "late.example.", RecordType::A, last).is_some());
    assert_eq!((pool.unused.len(), pool.unused_of.len(), pool.begun.len()), (1, 1, 1));
}

#[test]
fn a_full_pool_gives_up_what_nobody_has_used() {
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
    assert_eq!(ask_from(&mut pool, 99, next, full), None, "it was told a moment ago");
    let then = IDLE + Duration::from_millis(2 * 7);
    let ip = ask_from(&mut pool, 99, next, then).unwrap();
    assert_eq!(pool.name_of(ip), Some(Some("next.example")));
    assert_eq!(pool.name_of("100.64.0.8".parse().unwrap()), Some(None), "it leads nowhere");
    assert_eq!(ask_from(&mut pool, 99, ("more.example.", RecordType::A), then + IDLE), None);
}

#[test]
fn made_up_addresses_have_the_share_of_their_network() {
    let mut pool = pool(&[]);
    let mut begin = |ip: IpAddr, n: usize| {
        let asked = Query::parse(&query(&format!("n{n}.example."), RecordType::A)).unwrap();
        pool.answer(&asked, ip, Duration::from_millis(2 * n as u64)).is_some()
    };
    let made_up = |n: usize| Ipv6Addr::from_bits(0x2001_0db8 << 96 | n as u128).into();
    let given = (0..MAX_NAMES).filter(|n| begin(made_up(*n), *n)).count();
    assert_eq!(given, part_of_network(MAX_NAMES));
    assert!((0..100).all(|n| begin(CLIENT, MAX_NAMES + n)));
}

#[test]
fn what_is_used_is_held_and_written_again() {
    let mut pool = pool(&[]);
    let asked = Query::parse(&query("a.example.", RecordType::A)).unwrap();
    let said = |pool: &mut Pool, at| pool.answer(&asked, CLIENT, at).unwrap().1;
    let record = Record::Instant { number: 1, until: HOLD, name: "a.example".into() };
    assert_eq!(said(&mut pool, s(0)), Some(record));
    assert_eq!(said(&mut pool, s(60)), None);
    assert!(said(&mut pool, REFRESH + s(1)).is_some());
    let _ = said(&mut pool, HOLD - s(1));
    assert!(ask(&mut pool, "b.example.", RecordType::A, HOLD + s(1)).is_some());
    let ip = "100.64.0.1".parse().unwrap();
    assert_eq!(pool.name_of(ip), Some(Some("a.example")), "it was used a moment ago");
}

#[test]
fn a_restart_remembers_and_goes_on_behind() {
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
    // What the journal had not got yet is not given to another name.
    let new = ask(&mut again, "new.example.", RecordType::A, s(3)).unwrap();
    let lost: Vec<_> = (100..1100)
        .filter_map(|n| ask(&mut pool, &format!("n{n}.example."), RecordType::A, s(3)))
        .collect();
    assert!(!ips.contains(&new) && !lost.contains(&new) && !lost.is_empty());
    assert!(again.number_of(new).unwrap() >= 100 + SKIPPED);
}

#[test]
fn small_pools_and_broken_names_are_refused() {
    let v4 = Ipv4Addr::new(100, 64, 0, 0);
    assert_eq!(Pool::new((v4, 16), None, &[], 0).err(), Some(NotAPool::Small));
    let v6 = Some(("fd00::".parse().unwrap(), 112));
    assert_eq!(Pool::new((v4, 10), v6, &[], 0).err(), Some(NotAPool::SmallV6));
    let only = ["no such name".to_owned()];
    assert!(matches!(Pool::new((v4, 10), None, &only, 0), Err(NotAPool::Domain(_))));
}
