//! Clients that query too much, and evictions.

use super::*;

#[test]
fn too_many_queries_are_refused() {
    let settings = Settings { client_burst: 50, ..Settings::default() };
    let mut cabin = Cabin::new(settings, |_| None);
    let reply = (0..100).filter_map(|n| cabin.ask(1, &format!("n{n}.test.")));
    assert_eq!(reply.filter(|reply| code(reply) == ResponseCode::Refused).count(), 50);
    assert_eq!((cabin.sent, cabin.resolver.counts().refused), (50, 50));
    // Each limit is reported, and the largest holder is known.
    let client: Asker = [10, 0, 0, 1].into();
    assert_eq!(cabin.limited, [(client, Limited::Rate); 50]);
    let usage = cabin.resolver.usage([10, 0, 0, 2].into());
    assert_eq!((usage.own, usage.all, usage.max), (0, 50, 1024));
    assert_eq!(usage.largest, Some((client, 50)));
}

#[test]
fn unanswered_names_leave_room_for_others() {
    let mut cabin = Cabin::new(Settings::default(), |query| {
        let question = Message::from_vec(query).unwrap();
        let silent = question.queries[0].name().to_ascii().starts_with("silent");
        (!silent).then(|| address(query, 300, 1))
    });
    // Thirty clients query unanswered names and fill all slots.
    for client in 1..31 {
        for n in 0..100 {
            cabin.ask(client, &format!("silent{client}-{n}.test."));
        }
    }
    assert_eq!(cabin.resolver.pending.len(), 1024);
    // The page of another client still resolves all its names in a round trip.
    for n in 0..30 {
        assert!(cabin.ask(99, &format!("page{n}.test.")).is_none());
    }
    let reply = |cabin: &Cabin, who| cabin.replies.iter().filter(|(it, _)| *it == who).count();
    assert!(reply(&cabin, 1) > 50, "an evicted client gets an error at once");
    cabin.pass(RTT);
    assert_eq!(reply(&cabin, 99), 30);
    assert!(
        cabin
            .replies
            .iter()
            .all(|(who, reply)| (*who == 99) == (code(reply) == ResponseCode::NoError))
    );
    // The slots of the unanswered names are released.
    cabin.pass(s(20));
    assert_eq!((cabin.resolver.pending.len(), cabin.resolver.pending.waiters()), (0, (0, 0)));
}

#[test]
fn queries_with_answers_in_flight_are_not_evicted() {
    let settings = Settings { max_asks: 64, ..Settings::default() };
    let mut cabin = Cabin::new(settings, |_| None);
    let fill = |cabin: &mut Cabin, client: u32, count: u32| {
        for n in 0..count {
            assert!(cabin.ask(client, &format!("n{client}-{n}.test.")).is_none());
        }
    };
    fill(&mut cabin, 1, 30);
    fill(&mut cabin, 2, 30);
    fill(&mut cabin, 3, 4);
    let refused = cabin.ask(4, "page.test.").unwrap();
    assert_eq!((code(&refused), cabin.replies.len()), (ResponseCode::ServFail, 0));
    // The initial timeout applies, because nothing has been answered yet.
    cabin.pass(Duration::from_millis(1499));
    assert!(cabin.ask(4, "page.test.").is_some());
    cabin.pass(Duration::from_millis(1));
    assert!(cabin.ask(4, "page.test.").is_none());
    assert_eq!(cabin.replies.iter().map(|(who, _)| *who).collect::<Vec<_>>(), [1]);
    // A client with more than a page's queries loses them earlier.
    cabin.pass(s(20));
    cabin.replies.clear();
    fill(&mut cabin, 1, 64);
    fill(&mut cabin, 2, 31);
    assert!(cabin.replies.iter().all(|(who, _)| *who == 1) && cabin.replies.len() == 31);
    assert!(cabin.ask(3, "page.test.").is_none(), "client 1 has 33 queries");
    assert_eq!((cabin.replies.len(), cabin.ask(3, "other.test.").is_some()), (32, true));
}

#[test]
fn an_extended_error_reports_lack_of_room() {
    let settings = Settings { max_asks: 1, ..Settings::default() };
    let mut resolver = Resolver::<u32>::new(settings, false, [7; 16]);
    let ask = |resolver: &mut Resolver<u32>, name: &str| {
        let message = query_with(name, RecordType::A, |it| _ = it.set_edns(Edns::new()));
        resolver.query(from(1), &message, Room::Stream, s(0))
    };
    assert!(ask(&mut resolver, "a.test.").is_none());
    let reply = ask(&mut resolver, "b.test.").unwrap();
    assert_eq!(resolver.counts().crowded, 1);
    assert!(reply.ends_with(&[0, 6, 0, 15, 0, 2, 0, OTHER_ERROR as u8]), "{reply:?}");
}

#[test]
fn a_full_ground_resolver_is_not_cached_as_a_name_failure() {
    use hickory_proto::rr::rdata::opt::EdnsOption;
    // "Other", and then "No Reachable Authority", which does say something about the name.
    for (error, asked_again) in [(OTHER_ERROR, true), (UNREACHABLE, false)] {
        let mut refuses = true;
        let mut cabin = Cabin::new(Settings::default(), move |query| {
            if !std::mem::take(&mut refuses) {
                return Some(address(query, 300, 1));
            }
            Some(answer_with(query, |message| {
                message.metadata.response_code = ResponseCode::ServFail;
                let mut edns = Edns::new();
                let reply = error.to_be_bytes().to_vec();
                edns.options_mut().insert(EdnsOption::Unknown(15, reply));
                message.set_edns(edns);
            }))
        });
        assert!(cabin.ask(1, "a.test.").is_none());
        cabin.pass(RTT);
        assert_eq!(code(&cabin.replies[0].1), ResponseCode::ServFail);
        let again = cabin.ask(1, "a.test.");
        assert_eq!((again.is_none(), cabin.sent), (asked_again, 1 + usize::from(asked_again)));
        cabin.pass(RTT);
        assert_eq!(cabin.resolver.counts().failed, u64::from(!asked_again));
    }
}

#[test]
fn a_repeated_datagram_takes_no_second_slot() {
    let mut resolver = Resolver::<u32>::new(Settings::default(), false, [7; 16]);
    let message = query("a.test.", RecordType::A);
    let mut other = message.clone();
    other[1] ^= 1;
    for _ in 0..50 {
        for message in [&message, &other] {
            assert!(resolver.query(by_datagram(1), message, Room::Packet(1232), s(0)).is_none());
        }
    }
    assert!(resolver.query(by_datagram(2), &message, Room::Packet(1232), s(0)).is_none());
    assert_eq!((resolver.pending.waiters().0, resolver.counts().repeated), (3, 98));
    // Each query on a stream gets its own answer.
    assert!(resolver.query(from(1), &message, Room::Stream, s(0)).is_none());
    assert!(resolver.query(from(1), &message, Room::Stream, s(0)).is_none());
    assert_eq!(resolver.pending.waiters().0, 5);
}

#[test]
fn a_cabin_behind_one_address_may_wait_for_one_name() {
    let mut cabin = Cabin::with_ttl(300);
    // The burst of one address, by as many devices as a large cabin has.
    let refused = (0..400).filter(|_| cabin.ask(1, "portal.test.").is_some()).count();
    assert_eq!((refused, cabin.sent), (0, 1));
    cabin.pass(RTT);
    assert_eq!(
        cabin.replies.iter().filter(|(_, it)| code(it) == ResponseCode::NoError).count(),
        400
    );
}

#[test]
fn the_largest_holder_of_a_querys_slots_loses_them() {
    let settings = Settings { client_burst: 2000, ..Settings::default() };
    let mut cabin = Cabin::new(settings, |_| None);
    for client in [1, 2] {
        let waits = (0..600).filter(|_| cabin.ask(client, "a.test.").is_none()).count();
        assert_eq!(waits, 512);
    }
    // All slots are taken. Others still get slots until shares are equal.
    assert!((3..30).all(|client| cabin.ask(client, "a.test.").is_none()));
    assert_eq!((cabin.replies.len(), cabin.resolver.pending.waiters().0), (27, 1024));
    assert!(cabin.replies.iter().all(|(who, _)| *who < 3), "the largest holders");
    assert_eq!(cabin.resolver.counts().crowded, 2 * 88 + 27);
    let count = |by| cabin.limited.iter().filter(|(_, it)| *it == by).count();
    assert_eq!([Limited::Room, Limited::Evicted].map(count), [2 * 88, 27]);
    cabin.pass(s(20));
    assert_eq!(cabin.resolver.pending.waiters(), (0, 0));
}

#[test]
fn waiters_stay_within_their_memory() {
    let mut cabin = Cabin::new(Settings::default(), |_| None);
    let name = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(50)].join(".");
    for client in 0..400 {
        for n in 0..100 {
            cabin.ask(client, &format!("n{}.{name}.", (client * 100 + n) % 900));
        }
    }
    let (count, bytes) = cabin.resolver.pending.waiters();
    assert!(bytes <= 8 << 20 && bytes > 7 << 20, "{bytes} bytes of {count} clients");
    assert!(cabin.ask(1000, "n1.test.").is_none(), "the next client still gets a slot");
}

/// One device whose answers are all too large for datagrams holds every stream; others still get
/// theirs.
#[test]
fn a_client_with_many_streams_gives_way() {
    const MAX_STREAMS: usize = 20;
    let mut cabin = Cabin::with_ttl(300);
    let mut streams: Vec<u16> = Vec::new();
    let mut ask = |cabin: &mut Cabin, client: u32, n: usize| {
        cabin.resolver.query(
            from(client),
            &query(&format!("n{client}-{n}.test."), RecordType::A),
            Room::Packet(1232),
            cabin.now,
        );
        let mut id = None;
        while let Some(action) = cabin.resolver.poll() {
            match action {
                Action::Query { id: of, .. } => id = Some(of),
                Action::Reply { client, message } => {
                    cabin.replies.push((client, Message::from_vec(&message).unwrap()));
                }
                Action::Limited { client, by } => cabin.limited.push((client, by)),
                _ => {}
            }
        }
        let id = id.expect("a query");
        if streams.len() >= MAX_STREAMS {
            cabin.resolver.on_streams_full(id, cabin.now);
            streams.retain(|id| cabin.resolver.is_pending(*id));
        }
        if cabin.resolver.is_pending(id) {
            cabin.resolver.over_stream(id, cabin.now);
            streams.push(id);
        }
        cabin.act();
        assert!(streams.len() <= MAX_STREAMS);
        streams.iter().filter(|stream| **stream == id).count() == 1
    };
    assert!((0..MAX_STREAMS).all(|n| ask(&mut cabin, 1, n)), "all streams are its own");
    assert!(!ask(&mut cabin, 1, MAX_STREAMS), "there is no room for another of its own");
    assert_eq!(cabin.limited, [([10, 0, 0, 1].into(), Limited::Room)]);
    let others = (0..30).filter(|n| ask(&mut cabin, 2 + n % 2, *n as usize)).count();
    // Three clients converge to equal shares.
    assert_eq!(others, 13);
    let evicted = |by| cabin.limited.iter().filter(|it| **it == ([10, 0, 0, 1].into(), by)).count();
    assert_eq!((evicted(Limited::Evicted), evicted(Limited::Room)), (13, 1));
    assert!(cabin.replies.iter().all(|(_, reply)| code(reply) == ResponseCode::ServFail));
}
