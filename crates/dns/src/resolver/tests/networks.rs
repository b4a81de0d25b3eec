//! Cabin that is one IPv6 network, in which addresses are free.

use super::*;

/// Client of a cabin that is one IPv6 network.
fn in_network(client: u32) -> (u32, Source) {
    (
        client,
        Source::Stream(std::net::Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(client)).into()),
    )
}

#[test]
fn each_passenger_of_a_network_has_its_own_slots() {
    let mut cabin = Cabin::with_ttl(300);
    let message = query("portal.test.", RecordType::A);
    for client in 0..300 {
        let reply = cabin.resolver.query(in_network(client), &message, Room::Stream, cabin.now);
        assert_eq!(reply, None, "{client} waits like the others");
    }
    cabin.act();
    cabin.pass(RTT);
    assert_eq!(cabin.replies.len(), 300);
    assert!(cabin.replies.iter().all(|(_, reply)| code(reply) == ResponseCode::NoError));
    assert_eq!(cabin.resolver.counts().crowded, 0);
}

/// Cabin whose ground does not answer names that begin with "silent".
fn with_silent_names() -> Cabin {
    Cabin::new(Settings::default(), |query| {
        let question = Message::from_vec(query).unwrap();
        let silent = question.queries[0].name().to_ascii().starts_with("silent");
        (!silent).then(|| address(query, 300, 1))
    })
}

/// Immediate answer to `from` about `name`.
fn ask_from(cabin: &mut Cabin, from: (u32, Source), name: &str) -> Option<ResponseCode> {
    let message = query(name, RecordType::A);
    let reply = cabin.resolver.query(from, &message, Room::Stream, cabin.now);
    cabin.act();
    reply.map(|reply| code(&Message::from_vec(&reply).unwrap()))
}

#[test]
fn forged_addresses_leave_room_for_others() {
    let mut cabin = with_silent_names();
    let known = in_network(1);
    assert_eq!(ask_from(&mut cabin, known, "before.test."), None);
    cabin.pass(RTT);
    let (mut expected, mut newcomers, mut max) = (vec![1], 0, 0);
    // Two queries per millisecond, each from its own address, for longer than a query lasts.
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
            let reply = ask_from(&mut cabin, in_network(200_000 + n), &format!("silent{n}.test."));
            assert!(reply.is_none_or(|code| code == ResponseCode::ServFail));
        }
        cabin.pass(Duration::from_millis(1));
        max = max.max(cabin.resolver.pending.len());
    }
    cabin.pass(RTT);
    assert!(newcomers > 10, "{newcomers}");
    assert!((768..768 + 60).contains(&max), "the network had three quarters of 1024: {max}");
    let replies = cabin.replies.iter().filter(|(who, _)| *who < 200_000);
    let mut replies: Vec<_> = replies.map(|(who, reply)| (*who, code(reply))).collect();
    replies.sort_by_key(|(who, _)| *who);
    expected.sort_unstable();
    let expected = expected.into_iter().map(|who| (who, ResponseCode::NoError));
    assert_eq!(replies, expected.collect::<Vec<_>>(), "each has its answer in a round trip");
    cabin.pass(s(20));
    assert_eq!((cabin.resolver.pending.len(), cabin.resolver.pending.waiters()), (0, (0, 0)));
}

#[test]
fn forged_addresses_share_the_waiters_of_one_name() {
    let mut cabin = with_silent_names();
    let begun =
        |n: &u32| ask_from(&mut cabin, in_network(*n), &format!("silent{n}.test.")).is_none();
    assert_eq!((0..2000).filter(begun).count(), 128, "a sixth of the network's 768");
    let waits = |n: &u32| ask_from(&mut cabin, in_network(*n), "silent0.test.").is_none();
    assert_eq!((5000..7000).filter(waits).count(), 767);
    assert_eq!(ask_from(&mut cabin, from(9002), "silent0.test."), None);
}

#[test]
fn forged_addresses_do_not_evict_a_waiter_whose_answer_is_in_flight() {
    let mut cabin = with_silent_names();
    assert_eq!(ask_from(&mut cabin, in_network(1), "page.test."), None);
    let name = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(36)].join(".");
    // Returns the clients whose wait ended at once.
    let flood = |cabin: &mut Cabin, first: u32, count: u32| {
        cabin.replies.clear();
        for n in 0..count {
            let name = format!("silent{}.{name}.", first + n % 10);
            assert_eq!(ask_from(cabin, in_network(first + n), &name), None);
        }
        assert!(cabin.replies.iter().all(|(_, reply)| code(reply) == ResponseCode::ServFail));
        cabin.replies.iter().map(|(who, _)| *who).collect::<Vec<_>>()
    };
    let refused = flood(&mut cabin, 10_000, 7000);
    assert!(refused.len() > 500 && refused.is_sorted(), "the newest: {refused:?}");
    cabin.pass(RTT);
    assert_eq!(
        cabin.replies[refused.len()..]
            .iter()
            .map(|(who, reply)| (*who, code(reply)))
            .collect::<Vec<_>>(),
        [(1, ResponseCode::NoError)]
    );
    // Waiters that have waited as long as an answer takes are evicted.
    cabin.pass(s(3));
    let ended = flood(&mut cabin, 20_000, 5000);
    assert!(ended.len() > 4900 && ended.iter().all(|who| (10_000..20_000).contains(who)));
}
