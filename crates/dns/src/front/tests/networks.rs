//! A cabin that is one network of IPv6, in which addresses cost nothing.

use super::*;

/// A client of a cabin that is one network of IPv6.
fn in_network(client: u32) -> (u32, Source) {
    (
        client,
        Source::Stream(std::net::Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(client)).into()),
    )
}

#[test]
fn each_passenger_of_a_network_has_places_of_its_own() {
    let mut cabin = Cabin::with_ttl(300);
    let message = query("portal.test.", RecordType::A);
    for client in 0..300 {
        let told = cabin.front.query(in_network(client), &message, Room::Stream, cabin.now);
        assert_eq!(told, None, "{client} waits like the others");
    }
    cabin.act();
    cabin.pass(RTT);
    assert_eq!(cabin.told.len(), 300);
    assert!(cabin.told.iter().all(|(_, told)| code(told) == ResponseCode::NoError));
    assert_eq!(cabin.front.counts().crowded, 0);
}

/// One whose ground says nothing about names that begin with "silent".
fn with_silent_names() -> Cabin {
    Cabin::new(Settings::default(), |query| {
        let asked = Message::from_vec(query).unwrap();
        let silent = asked.queries[0].name().to_ascii().starts_with("silent");
        (!silent).then(|| address(query, 300, 1))
    })
}

/// Immediate answer to `from` about `name`.
fn ask_from(cabin: &mut Cabin, from: (u32, Source), name: &str) -> Option<ResponseCode> {
    let message = query(name, RecordType::A);
    let told = cabin.front.query(from, &message, Room::Stream, cabin.now);
    cabin.act();
    told.map(|told| code(&Message::from_vec(&told).unwrap()))
}

#[test]
fn made_up_addresses_leave_others_room() {
    let mut cabin = with_silent_names();
    let known = in_network(1);
    assert_eq!(ask_from(&mut cabin, known, "before.test."), None);
    cabin.pass(RTT);
    let (mut expected, mut newcomers, mut most) = (vec![1], 0, 0);
    // Two in each millisecond, each from an address of its own, for longer than a question lasts.
    for ms in 0..14_000 {
        if ms % 50 == 0
            && ask_from(&mut cabin, in_network(100_000 + ms), &format!("new{ms}.test.")).is_none()
        {
            expected.push(100_000 + ms);
            newcomers += 1;
        }
        if ms % 1000 == 0 {
            for n in 0..30 {
                for from in [known, from(2)] {
                    let name = format!("page{n}-{ms}-{}.test.", from.0);
                    assert_eq!(ask_from(&mut cabin, from, &name), None, "{name}");
                    expected.push(from.0);
                }
            }
        }
        for n in [2 * ms, 2 * ms + 1] {
            let told = ask_from(&mut cabin, in_network(200_000 + n), &format!("silent{n}.test."));
            assert!(told.is_none_or(|code| code == ResponseCode::ServFail));
        }
        cabin.pass(Duration::from_millis(1));
        most = most.max(cabin.front.asks.len());
    }
    cabin.pass(RTT);
    assert!(newcomers > 10, "{newcomers}");
    assert!((768..768 + 60).contains(&most), "the network had three quarters of 1024: {most}");
    let told = cabin.told.iter().filter(|(who, _)| *who < 200_000);
    let mut told: Vec<_> = told.map(|(who, told)| (*who, code(told))).collect();
    told.sort_by_key(|(who, _)| *who);
    expected.sort_unstable();
    let expected = expected.into_iter().map(|who| (who, ResponseCode::NoError));
    assert_eq!(told, expected.collect::<Vec<_>>(), "each has its answer in a round trip");
    cabin.pass(s(20));
    assert_eq!((cabin.front.asks.len(), cabin.front.asks.waiting()), (0, (0, 0)));
}

#[test]
fn made_up_addresses_have_a_part_of_what_waits_for_one_name() {
    let mut cabin = with_silent_names();
    let begun =
        |n: &u32| ask_from(&mut cabin, in_network(*n), &format!("silent{n}.test.")).is_none();
    assert_eq!((0..2000).filter(begun).count(), 128, "a sixth of the network's 768");
    let waits = |n: &u32| ask_from(&mut cabin, in_network(*n), "silent0.test.").is_none();
    assert_eq!((5000..7000).filter(waits).count(), 767);
    assert_eq!(ask_from(&mut cabin, from(9002), "silent0.test."), None);
}

#[test]
fn who_waits_is_not_put_out_by_made_up_addresses_while_its_answer_may_come() {
    let mut cabin = with_silent_names();
    assert_eq!(ask_from(&mut cabin, in_network(1), "page.test."), None);
    let name = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(36)].join(".");
    // Whose waiting came to nothing at once.
    let flood = |cabin: &mut Cabin, first: u32, count: u32| {
        cabin.told.clear();
        for n in 0..count {
            let name = format!("silent{}.{name}.", first + n % 10);
            assert_eq!(ask_from(cabin, in_network(first + n), &name), None);
        }
        assert!(cabin.told.iter().all(|(_, told)| code(told) == ResponseCode::ServFail));
        cabin.told.iter().map(|(who, _)| *who).collect::<Vec<_>>()
    };
    let refused = flood(&mut cabin, 10_000, 7000);
    assert!(refused.len() > 500 && refused.is_sorted(), "the newest: {refused:?}");
    cabin.pass(RTT);
    assert_eq!(
        cabin.told[refused.len()..]
            .iter()
            .map(|(who, told)| (*who, code(told)))
            .collect::<Vec<_>>(),
        [(1, ResponseCode::NoError)]
    );
    // Those that have waited for as long as an answer takes give up their places.
    cabin.pass(s(3));
    let ended = flood(&mut cabin, 20_000, 5000);
    assert!(ended.len() > 4900 && ended.iter().all(|who| (10_000..20_000).contains(who)));
}
