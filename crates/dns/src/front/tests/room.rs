//! Clients that ask too much, and the questions that end for others.

use super::*;

#[test]
fn who_asks_too_much_is_refused() {
    let settings = Settings { client_burst: 50.0, ..Settings::default() };
    let mut cabin = Cabin::new(settings, |_| None);
    let told = (0..100).filter_map(|n| cabin.ask(1, &format!("n{n}.test.")));
    assert_eq!(told.filter(|told| code(told) == ResponseCode::Refused).count(), 50);
    assert_eq!((cabin.asked, cabin.front.counts().refused), (50, 50));
    // Whoever serves it hears of each, and can say who holds most.
    let client: IpAddr = [10, 0, 0, 1].into();
    assert_eq!(cabin.limited, [(client, Limited::Rate); 50]);
    let holding = cabin.front.holding([10, 0, 0, 2].into());
    assert_eq!((holding.own, holding.all, holding.most), (0, 50, 1024));
    assert_eq!(holding.largest, Some((client, 50)));
}

#[test]
fn who_asks_for_silent_names_leaves_the_others_room() {
    let mut cabin = Cabin::new(Settings::default(), |query| {
        let asked = Message::from_vec(query).unwrap();
        let silent = asked.queries[0].name().to_ascii().starts_with("silent");
        (!silent).then(|| address(query, 300, 1))
    });
    // Nothing comes of what thirty ask for, who have all places between them then.
    for client in 1..31 {
        for n in 0..100 {
            cabin.ask(client, &format!("silent{client}-{n}.test."));
        }
    }
    assert_eq!(cabin.front.asks.len(), 1024);
    // A page of the next has all its names in a round trip nevertheless.
    for n in 0..30 {
        assert!(cabin.ask(99, &format!("page{n}.test.")).is_none());
    }
    let told = |cabin: &Cabin, who| cabin.told.iter().filter(|(it, _)| *it == who).count();
    assert!(told(&cabin, 1) > 50, "who is ousted is told so at once");
    cabin.pass(RTT);
    assert_eq!(told(&cabin, 99), 30);
    assert!(
        cabin.told.iter().all(|(who, told)| (*who == 99) == (code(told) == ResponseCode::NoError))
    );
    // What the silent names held comes back.
    cabin.pass(s(20));
    assert_eq!((cabin.front.asks.len(), cabin.front.asks.waiting()), (0, (0, 0)));
}

#[test]
fn none_ends_whose_answer_may_be_under_way() {
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
    assert_eq!((code(&refused), cabin.told.len()), (ResponseCode::ServFail, 0));
    // The first wait, as nothing has been answered yet.
    cabin.pass(Duration::from_millis(1499));
    assert!(cabin.ask(4, "page.test.").is_some());
    cabin.pass(Duration::from_millis(1));
    assert!(cabin.ask(4, "page.test.").is_none());
    assert_eq!(cabin.told.iter().map(|(who, _)| *who).collect::<Vec<_>>(), [1]);
    // Who has more than a page's gives them up before.
    cabin.pass(s(20));
    cabin.told.clear();
    fill(&mut cabin, 1, 64);
    fill(&mut cabin, 2, 31);
    assert!(cabin.told.iter().all(|(who, _)| *who == 1) && cabin.told.len() == 31);
    assert!(cabin.ask(3, "page.test.").is_none(), "the thirty-third of the first");
    assert_eq!((cabin.told.len(), cabin.ask(3, "other.test.").is_some()), (32, true));
}

#[test]
fn an_extended_error_says_that_there_is_no_room() {
    let settings = Settings { max_asks: 1, ..Settings::default() };
    let mut front = Front::<u32>::new(settings, false);
    let ask = |front: &mut Front<u32>, name: &str| {
        let message = query_with(name, RecordType::A, |it| _ = it.set_edns(Edns::new()));
        front.query(from(1), &message, Room::Stream, s(0))
    };
    assert!(ask(&mut front, "a.test.").is_none());
    let told = ask(&mut front, "b.test.").unwrap();
    assert_eq!(front.counts().crowded, 1);
    assert!(told.ends_with(&[0, 6, 0, 15, 0, 2, 0, OTHER_ERROR as u8]), "{told:?}");
}

#[test]
fn that_the_ground_had_no_room_is_no_failure_of_the_name() {
    use hickory_proto::rr::rdata::opt::EdnsOption;
    // "Other", and then "No Reachable Authority", which is one.
    for (error, asked_again) in [(OTHER_ERROR, true), (UNREACHABLE, false)] {
        let mut refuses = true;
        let mut cabin = Cabin::new(Settings::default(), move |query| {
            if !std::mem::take(&mut refuses) {
                return Some(address(query, 300, 1));
            }
            Some(answer_with(query, |message| {
                message.metadata.response_code = ResponseCode::ServFail;
                let mut edns = Edns::new();
                let told = error.to_be_bytes().to_vec();
                edns.options_mut().insert(EdnsOption::Unknown(15, told));
                message.set_edns(edns);
            }))
        });
        assert!(cabin.ask(1, "a.test.").is_none());
        cabin.pass(RTT);
        assert_eq!(code(&cabin.told[0].1), ResponseCode::ServFail);
        let again = cabin.ask(1, "a.test.");
        assert_eq!((again.is_none(), cabin.asked), (asked_again, 1 + usize::from(asked_again)));
        cabin.pass(RTT);
        assert_eq!(cabin.front.counts().failed, u64::from(!asked_again));
    }
}

#[test]
fn a_datagram_that_comes_again_takes_no_second_place() {
    let mut front = Front::<u32>::new(Settings::default(), false);
    let message = query("a.test.", RecordType::A);
    let mut other = message.clone();
    other[1] ^= 1;
    for _ in 0..50 {
        for message in [&message, &other] {
            assert!(front.query(by_datagram(1), message, Room::Packet(1232), s(0)).is_none());
        }
    }
    assert!(front.query(by_datagram(2), &message, Room::Packet(1232), s(0)).is_none());
    assert_eq!((front.asks.waiting().0, front.counts().repeated), (3, 98));
    // Questions on a stream have answers of their own.
    assert!(front.query(from(1), &message, Room::Stream, s(0)).is_none());
    assert!(front.query(from(1), &message, Room::Stream, s(0)).is_none());
    assert_eq!(front.asks.waiting().0, 5);
}

#[test]
fn a_cabin_behind_one_address_waits_for_one_name() {
    let mut cabin = Cabin::with_ttl(300);
    // The burst that one address may ask for, by as many devices as a large cabin has.
    let refused = (0..400).filter(|_| cabin.ask(1, "portal.test.").is_some()).count();
    assert_eq!((refused, cabin.asked), (0, 1));
    cabin.pass(RTT);
    assert_eq!(cabin.told.iter().filter(|(_, it)| code(it) == ResponseCode::NoError).count(), 400);
}

#[test]
fn who_fills_a_questions_places_gives_them_to_the_next() {
    let settings = Settings { client_burst: 2000.0, ..Settings::default() };
    let mut cabin = Cabin::new(settings, |_| None);
    for client in [1, 2] {
        let waits = (0..600).filter(|_| cabin.ask(client, "a.test.").is_none()).count();
        assert_eq!(waits, 512);
    }
    // All places are taken; others have theirs nevertheless, until all have alike.
    assert!((3..30).all(|client| cabin.ask(client, "a.test.").is_none()));
    assert_eq!((cabin.told.len(), cabin.front.asks.waiting().0), (27, 1024));
    assert!(cabin.told.iter().all(|(who, _)| *who < 3), "those who had most");
    assert_eq!(cabin.front.counts().crowded, 2 * 88 + 27);
    let count = |by| cabin.limited.iter().filter(|(_, it)| *it == by).count();
    assert_eq!([Limited::Room, Limited::Evicted].map(count), [2 * 88, 27]);
    cabin.pass(s(20));
    assert_eq!(cabin.front.asks.waiting(), (0, 0));
}

#[test]
fn what_waits_stays_within_its_memory() {
    let mut cabin = Cabin::new(Settings::default(), |_| None);
    let name = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(50)].join(".");
    for client in 0..400 {
        for n in 0..100 {
            cabin.ask(client, &format!("n{}.{name}.", (client * 100 + n) % 900));
        }
    }
    let (count, bytes) = cabin.front.asks.waiting();
    assert!(bytes <= 8 << 20 && bytes > 7 << 20, "{bytes} bytes of {count} clients");
    assert!(cabin.ask(1000, "n1.test.").is_none(), "the next still has a place");
}
