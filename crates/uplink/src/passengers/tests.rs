use bentpipe_classify::Mac;

use super::Kind::{Datagrams, Ip, Streams};
use super::table::{MAX_PASSENGERS, UNANSWERED_IP, UNANSWERED_UDP};
use super::*;
use crate::identity::Place;
use bentpipe_config::PassengerIs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A cabin in which the last two bytes of an address in 10.0.0.0/8 or fd00::/8 are its device's
/// number. Other addresses are behind a router, and nobody has an address in 192.0.2.0/24.
struct Cabin;

impl Identity for Cabin {
    fn place(&self, client: IpAddr) -> Place {
        let device = |one: u8, two: u8| Place::Device(Mac([2, 0, 0, 0, one, two]));
        match client {
            IpAddr::V4(client) => match client.octets() {
                [10, _, one, two] => device(one, two),
                [127, ..] => Place::Here,
                [192, 0, 2, _] => Place::Unproven,
                _ => Place::Elsewhere,
            },
            IpAddr::V6(client) => match client.octets() {
                [0xfd, .., one, two] => device(one, two),
                _ => Place::Elsewhere,
            },
        }
    }
}

fn newcomer(client: impl Into<IpAddr>) -> Newcomer {
    Newcomer::new(client.into(), false, PassengerIs::Device, &Cabin)
}

/// Address number `address` of device number `device`, in alternating families.
fn address(device: u16, address: u32) -> Newcomer {
    let half = address / 2;
    if address.is_multiple_of(2) {
        newcomer(Ipv4Addr::from_bits(0x0a00_0000 + (half << 16 & 0xff_0000) + u32::from(device)))
    } else {
        let bits = (0xfd00_u128 << 112) + (u128::from(half) << 64) + u128::from(device);
        newcomer(Ipv6Addr::from_bits(bits))
    }
}

fn device(number: u16) -> Newcomer {
    address(number, 0)
}

fn limit(all: usize, each: usize) -> Limit {
    Limit { all, each, each_per_second: 10_000, burst_seconds: 2 }
}

fn table(streams: Limit, datagrams: Limit) -> Arc<Passengers> {
    Passengers::new([streams, datagrams, limit(64, 16)], Arc::new(Cabin), Arc::default())
}

fn evicted(table: &Passengers) -> u64 {
    bentpipe_metering::refusals::Limit::ALL
        .map(|limit| table.counters.refusals.count_evicted(limit))
        .iter()
        .sum()
}

fn is_over(permit: &FlowPermit) -> bool {
    permit.over().is_cancelled()
}

#[tokio::test(start_paused = true)]
async fn invented_sources_share_one_label_in_usage_records() {
    let table = table(limit(100, 100), limit(100, 100));
    let label = |who: Newcomer| table.admit(who, Datagrams).unwrap().label().to_string();
    assert_eq!(label(newcomer([192, 0, 2, 1])), OTHERS);
    assert_eq!(label(newcomer([192, 0, 2, 2])), OTHERS);
    assert_eq!(label(device(7)), "02:00:00:00:00:07");
    assert_eq!(label(newcomer([172, 16, 0, 7])), "172.16.0.7", "behind a router");
}

#[tokio::test(start_paused = true)]
async fn opening_is_paced_for_each() {
    let paced = Limit { each_per_second: 2, ..limit(100, 100) };
    let table = table(limit(100, 100), paced);
    let opened = |who| table.admit(who, Datagrams).is_some();
    assert_eq!((0..9).filter(|n| opened(address(1, *n))).count(), 4);
    assert!(opened(device(2)), "another passenger");
    assert!(table.admit(device(1), Streams).is_some(), "another kind");
    assert_eq!((0..9).filter(|_| opened(newcomer([127, 0, 0, 1]))).count(), 9, "this machine");
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!((0..9).filter(|_| opened(device(1))).count(), 1);
    let refused = table.counters.refusals.count_refused(refusals::Limit::UdpOpens);
    assert_eq!(refused, 5 + 8);
}

#[test]
fn numbers_are_small_and_stay() {
    let table = table(limit(100, 10), limit(100, 10));
    let number = |who| table.admit(who, Streams).unwrap().number;
    assert_eq!((number(device(1)), number(device(2))), (1, 2));
    assert_eq!((1..10).map(|n| number(address(1, n))).collect::<Vec<_>>(), [1; 9]);
    assert_eq!(number(newcomer([172, 16, 0, 1])), 3, "an address behind a router");
    assert_eq!(table.addresses(&HashSet::from([0, 2, 9])), [(2, device(2).client)]);
    assert_eq!((table.open(Streams), evicted(&table)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_passenger_at_the_limit_loses_its_idlest_flow() {
    let table = table(limit(100, 3), limit(100, 3));
    let mut held: Vec<_> = (0..3).map(|n| table.admit(address(1, n), Streams).unwrap()).collect();
    tokio::time::advance(Duration::from_secs(1)).await;
    held[0].activity().touch();
    held.push(table.admit(device(1), Streams).unwrap());
    assert_eq!(held.iter().map(is_over).collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!((table.open(Streams), evicted(&table)), (3, 1));
    drop(held);
    assert_eq!(table.open(Streams), 0, "nothing is given back twice");
}

#[tokio::test(start_paused = true)]
async fn a_full_table_makes_room_for_newcomers_at_the_expense_of_who_holds_most() {
    let table = table(limit(8, 8), limit(8, 8));
    for kind in [Streams, Ip] {
        let all = if kind == Ip { 64 } else { 8 };
        let greedy: Vec<_> = (0..all).map_while(|n| table.admit(address(1, n), kind)).collect();
        assert_eq!(greedy.len(), all as usize);
        let theirs: Vec<_> = (2..5).map(|n| table.admit(device(n), kind).unwrap()).collect();
        // The newest flows of the largest holder are evicted like its oldest.
        let more: Vec<_> = (0..9).filter_map(|n| table.admit(address(1, n), kind)).collect();
        assert_eq!(more.len(), 9);
        assert!(!theirs.iter().any(is_over), "who holds little loses nothing");
        drop((greedy, theirs, more));
        assert_eq!(table.open(kind), 0);
    }
}

#[test]
fn nobody_loses_a_flow_to_a_newcomer_that_is_refused() {
    // Two unanswered flows at once.
    let table = table(limit(8, 8), limit(8, 8));
    let held: Vec<_> = (0..6)
        .map(|n| {
            let permit = table.admit(address(1, n), Datagrams).unwrap();
            permit.answered();
            permit
        })
        .chain((2..4).map(|n| table.admit(device(n), Datagrams).unwrap()))
        .collect();
    assert!(table.admit(device(4), Datagrams).is_none(), "others hold one unanswered flow each");
    assert!(!held.iter().any(is_over));
    assert_eq!((table.open(Datagrams), evicted(&table)), (8, 0));
    held[7].answered();
    assert!(table.admit(device(4), Datagrams).is_some());
    assert!(is_over(&held[0]));
}

#[test]
fn equals_do_not_evict_each_other() {
    let table = table(limit(4, 4), limit(4, 4));
    let held: Vec<_> = (1..=4).map(|n| table.admit(device(n), Streams).unwrap()).collect();
    assert!(table.admit(device(5), Streams).is_none(), "all have one");
    assert_eq!(table.counters.refusals.count_refused(refusals::Limit::TcpFlows), 1);
    drop(held);
}

#[test]
fn invented_sources_share_a_small_part() {
    let table = table(limit(1_600, 1_600), limit(1_600, 400));
    let spoofed: Vec<_> = (0..=255_u8)
        .flat_map(|n| [n; 8])
        .filter_map(|n| table.admit(newcomer([192, 0, 2, n]), Datagrams))
        .collect();
    assert!(spoofed.iter().all(|permit| permit.number == EVERYONE_ELSE));
    assert_eq!(table.open(Datagrams), 100, "a sixteenth, however many come");
    // A completed handshake proves the address.
    let connected = Newcomer::new([192, 0, 2, 1].into(), true, PassengerIs::Device, &Cabin);
    assert_ne!(table.admit(connected, Streams).unwrap().number, EVERYONE_ELSE);
}

#[tokio::test(start_paused = true)]
async fn flows_without_an_answer_have_a_quarter() {
    let table = table(limit(64, 64), limit(64, 64));
    for (kind, pool) in [(Datagrams, UNANSWERED_UDP), (Ip, UNANSWERED_IP)] {
        let admit = |who| table.admit(who, kind).unwrap();
        let answered: Vec<_> = (0..8).map(|n| admit(address(1, n))).collect();
        answered.iter().for_each(FlowPermit::answered);
        let scan: Vec<_> = (0..48).map(|n| admit(address(2, n))).collect();
        assert_eq!(scan.iter().filter(|permit| !is_over(permit)).count(), 16);
        assert_eq!(table.open(kind), 24);
        let theirs = admit(device(3));
        assert!(!is_over(&theirs) && !answered.iter().any(is_over));
        drop((scan, theirs));
        assert_eq!((table.open(kind), table.lock().pools[pool].count().total()), (8, 0));
    }
}

/// One device with 1,000 addresses of both families and a crowd of spoofed sources, against nine
/// devices with normal browsing.
#[tokio::test(start_paused = true)]
async fn one_device_with_a_thousand_addresses_takes_nobodys_place() {
    let paced = Limit { all: 4_096, each: 1_024, each_per_second: 50, burst_seconds: 4 };
    let table = table(paced, paced);
    let (mut hostile, mut theirs) = (Vec::new(), Vec::new());
    let mut n = 0;
    for round in 0..600 {
        tokio::time::advance(Duration::from_millis(100)).await;
        for kind in [Streams, Datagrams, Ip] {
            // Ten times the permitted rate, and its own servers answer.
            for _ in 0..50 {
                n += 1;
                hostile
                    .extend(table.admit(address(1, n % 1_000), kind).inspect(FlowPermit::answered));
                let invented = newcomer([192, 0, 2, n as u8]);
                hostile.extend(table.admit(invented, kind).inspect(FlowPermit::answered));
            }
            if round % 20 == 0 {
                for victim in 2..=10 {
                    let permit = table.admit(device(victim), kind).expect("a victim is refused");
                    permit.answered();
                    theirs.push((kind, permit));
                }
            }
        }
        hostile.retain(|permit| !is_over(permit));
    }
    // 30 flows of each kind for each victim; for other protocols, the limit is 16.
    let lost = |kind| theirs.iter().filter(|(of, permit)| *of == kind && is_over(permit)).count();
    assert_eq!((lost(Streams), lost(Datagrams)), (0, 0));
    for kind in [Streams, Datagrams, Ip] {
        assert!(table.open(kind) <= table.limits[kind as usize].all);
        let numbers: HashSet<u32> =
            hostile.iter().filter(|permit| permit.kind == kind).map(|it| it.number).collect();
        assert_eq!(numbers.len(), 2, "one share for the device, one for invented sources");
    }
    // A fair share of the table of other protocols: 64 entries for eleven holders.
    let mut held: Vec<usize> = (2..=10)
        .map(|victim| {
            let is_its = |(kind, permit): &&(Kind, FlowPermit)| {
                *kind == Ip && !is_over(permit) && permit.newcomer == device(victim)
            };
            theirs.iter().filter(is_its).count()
        })
        .collect();
    held.sort_unstable();
    assert!(held[0] >= 5 && held[8] - held[0] <= 1, "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_to_sites_are_bounded_for_each() {
    let table = table(limit(100, 100), limit(100, 100));
    let other = table.admit(device(1), Streams).unwrap();
    let sites: Vec<_> = (0..20)
        .map(|n| {
            let permit = table.admit(address(1, n), Streams).unwrap();
            permit.at_site();
            permit
        })
        .collect();
    assert_eq!(sites.iter().filter(|permit| !is_over(permit)).count(), MAX_SITE_CONNECTIONS);
    assert!(!is_over(&other), "only connections to sites end for them");
    drop((sites, other));
    assert_eq!((table.open(Streams), table.lock().pools[SITES].count().total()), (0, 0));
}

#[test]
fn further_flows_of_a_connection_end_none_of_its_passenger() {
    let table = table(limit(100, 3), limit(100, 3));
    let connection = table.admit(device(1), Streams).unwrap();
    let further: Vec<_> = (0..9).filter_map(|_| connection.another()).collect();
    assert_eq!((further.len(), evicted(&table)), (2, 0));
    assert!(further.iter().all(|permit| permit.number == connection.number));
    drop(further);
    assert!(connection.another().is_some());
}

#[test]
fn the_table_is_bounded_and_devices_go_before_made_up_addresses() {
    let table = table(limit(100_000, 10), limit(100, 10));
    let routed = |n: u32| newcomer(Ipv4Addr::from_bits(0xac10_0000 + n));
    let count = MAX_PASSENGERS as u32;
    let held: Vec<_> = (1..=count).map(|n| table.admit(routed(n), Streams).unwrap()).collect();
    let beyond = table.admit(routed(count + 1), Streams).unwrap();
    assert_eq!(beyond.number, EVERYONE_ELSE);
    let refused = table.counters.refusals.count_refused(refusals::Limit::Passengers);
    assert_eq!(refused, 1, "it has no number of its own");
    let theirs = table.admit(device(1), Streams).unwrap();
    assert_eq!(theirs.number, held[0].number);
    assert_eq!(held.iter().position(is_over), Some(0));
    let number = held[7].number;
    drop(held);
    // Numbers up to 7 are seen again, so the passenger that has been idle for longest is replaced.
    drop((2..8).map(|n| table.admit(routed(n), Streams)).collect::<Vec<_>>());
    assert_eq!(table.admit(routed(count + 2), Streams).unwrap().number, number);
    drop((beyond, theirs));
    assert_eq!((table.open(Streams), table.lock().idle.len()), (0, MAX_PASSENGERS));
}

/// Sources of one host behind a router in the cabin, each of which it can invent.
fn routed(number: u32) -> Newcomer {
    newcomer(Ipv4Addr::from_bits(0xac10_0000 + number))
}

/// A thousand invented sources take the place of nobody whose address is not invented.
#[tokio::test(start_paused = true)]
async fn invented_sources_behind_a_router_do_not_shut_devices_out() {
    let table = table(limit(64, 64), limit(64, 64));
    for kind in [Streams, Datagrams, Ip] {
        let mut held: Vec<_> = (0..64).filter_map(|n| table.admit(routed(n), kind)).collect();
        let theirs = table.admit(device(1), kind).expect("a device is refused");
        held.extend((100..200).filter_map(|n| table.admit(routed(n), kind)));
        assert!(!is_over(&theirs), "nobody behind a router takes a device's place");
        let open = held.iter().filter(|permit| !is_over(permit)).count();
        assert_eq!((table.open(kind), open), if kind == Streams { (64, 63) } else { (16, 15) });
        drop((held, theirs));
        assert_eq!(table.open(kind), 0);
    }
}

/// Among sources behind routers that hold one flow each, the idlest flow gives way.
#[tokio::test(start_paused = true)]
async fn a_source_behind_a_router_takes_the_place_of_the_idlest() {
    let table = table(limit(4, 4), limit(4, 4));
    let held: Vec<_> = (0..4).map(|n| table.admit(routed(n), Streams).unwrap()).collect();
    tokio::time::advance(Duration::from_secs(1)).await;
    held[0].activity().touch();
    let newest = table.admit(routed(9), Streams).unwrap();
    assert_eq!(held.iter().position(is_over), Some(1));
    let more = table.admit(routed(9), Streams);
    assert!(more.is_none_or(|more| !is_over(&newest) || !is_over(&more)), "its own at most");
    assert_eq!(held.iter().filter(|permit| is_over(permit)).count(), 1, "one place each");
}

/// Sources behind routers share one opening rate of datagrams, so that invented ones cannot use up
/// the aircraft's. Handshakes verify those of TCP.
#[tokio::test(start_paused = true)]
async fn sources_behind_routers_share_an_opening_rate() {
    let paced = Limit { each_per_second: 2, ..limit(1_000, 100) };
    let table = table(paced, paced);
    let open = |kind| {
        let source =
            |n| Newcomer::new(routed(n).client, kind == Streams, PassengerIs::Device, &Cabin);
        (0..100).filter(|n| table.admit(source(*n), kind).is_some()).count()
    };
    assert_eq!((open(Datagrams), open(Streams)), (16, 100));
    assert!(table.admit(device(1), Datagrams).is_some(), "devices have their own");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(open(Datagrams), 8);
}
