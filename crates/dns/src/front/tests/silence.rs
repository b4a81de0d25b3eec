//! A ground, a name server or a link that says nothing, or late.

use super::*;

#[test]
fn a_silent_ground_costs_nobody_what_is_known() {
    let mut answers = 1;
    let mut cabin = Cabin::new(Settings::default(), move |query| {
        answers -= 1;
        (answers >= 0).then(|| address(query, 20, 1))
    });
    assert!(cabin.ask(1, "a.test.").is_none());
    cabin.pass(s(60));
    assert!(cabin.ask(1, "a.test.").is_some());
    assert!(cabin.ask(1, "b.test.").is_none());
    cabin.pass(s(15));
    let (_, told) = cabin.told.last().unwrap();
    assert_eq!(told.metadata.response_code, ResponseCode::ServFail);
    // Stale answers go on, and the ground is left alone for a while.
    let asked = cabin.asked;
    assert!(cabin.ask(1, "a.test.").is_some());
    assert_eq!(cabin.asked, asked);
    cabin.pass(s(30));
    assert!(cabin.ask(1, "a.test.").is_some());
    assert_eq!(cabin.asked, asked + 1);
}

#[test]
fn a_lost_question_is_sent_again_within_a_round_trip_or_two() {
    let mut number = 0;
    let mut cabin = Cabin::new(Settings::default(), move |query| {
        number += 1;
        (number != 20).then(|| address(query, 300, 1))
    });
    for n in 0..19 {
        assert!(cabin.ask(1, &format!("n{n}.test.")).is_none());
        cabin.pass(s(10));
    }
    assert!(cabin.ask(1, "lost.test.").is_none());
    let before = cabin.told.len();
    cabin.pass(Duration::from_millis(1700));
    assert_eq!(cabin.told.len(), before + 1);
    assert_eq!(cabin.front.counts().sent_again, 1);
}

#[test]
fn a_name_whose_servers_are_slow_is_answered_late_and_known_then() {
    let mut cabin = Cabin::with_ttl(300);
    assert!(cabin.ask(1, "slow.test.").is_none());
    cabin.on_the_way[0].0 = cabin.now + s(9);
    // What is sent again meanwhile is one and the same question at the ground.
    cabin.ground = Box::new(|_| None);
    cabin.pass(s(8));
    assert!(cabin.told.is_empty() && cabin.ask(2, "slow.test.").is_none());
    cabin.pass(s(1));
    let codes: Vec<_> = cabin.told.iter().map(|(client, told)| (*client, code(told))).collect();
    assert_eq!(codes, [(1, ResponseCode::NoError), (2, ResponseCode::NoError)]);
    assert!(cabin.ask(1, "slow.test.").is_some());
}

#[test]
fn a_name_that_nobody_answers_is_left_alone_for_a_while() {
    let mut cabin = Cabin::new(Settings::default(), |_| None);
    assert!(cabin.ask(1, "silent.test.").is_none());
    cabin.pass(s(12));
    assert_eq!(code(&cabin.told[0].1), ResponseCode::ServFail);
    // RFC 9520 section 3.2.
    let asked = cabin.asked;
    assert_eq!(code(&cabin.ask(1, "silent.test.").unwrap()), ResponseCode::ServFail);
    assert_eq!((cabin.asked, cabin.front.counts().failed), (asked, 1));
    cabin.pass(s(5));
    assert!(cabin.ask(1, "silent.test.").is_none());
}

#[test]
fn while_the_link_is_gone_everybody_is_answered_at_once() {
    let mut cabin = Cabin::with_ttl(60);
    assert!(cabin.ask(1, "known.test.").is_none());
    cabin.pass(s(100));
    assert!(cabin.ask(1, "new.test.").is_none());
    cabin.front.set_up(false, cabin.now);
    cabin.act();
    assert_eq!(code(&cabin.told[1].1), ResponseCode::ServFail, "who waits is told");
    cabin.on_the_way.clear();
    let asked = cabin.asked;
    for n in 0..50 {
        assert_eq!(code(&cabin.ask(2, &format!("n{n}.test.")).unwrap()), ResponseCode::ServFail);
        assert_eq!(cabin.ask(3, "known.test.").unwrap().answers[0].ttl, 30, "stale");
        cabin.pass(s(1));
    }
    assert_eq!((cabin.asked, cabin.front.counts().cut_off), (asked, 50));
    // Nothing was the names' fault.
    cabin.front.set_up(true, cabin.now);
    assert!(cabin.ask(2, "n1.test.").is_none());
    assert!(cabin.ask(3, "known.test.").is_some());
    cabin.pass(RTT);
    assert_eq!(cabin.ask(3, "known.test.").unwrap().answers[0].ttl, 60);
}
