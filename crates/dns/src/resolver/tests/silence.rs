//! Unresponsive or slow ground, name servers and links.

use super::*;

#[test]
fn a_silent_ground_leaves_cached_answers_usable() {
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
    let (_, reply) = cabin.replies.last().unwrap();
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    // Stale answers continue, and the ground is left alone for a while.
    let sent = cabin.sent;
    assert!(cabin.ask(1, "a.test.").is_some());
    assert_eq!(cabin.sent, sent);
    cabin.pass(s(30));
    assert!(cabin.ask(1, "a.test.").is_some());
    assert_eq!(cabin.sent, sent + 1);
}

#[test]
fn a_lost_query_is_retransmitted_within_two_round_trips() {
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
    let before = cabin.replies.len();
    cabin.pass(Duration::from_millis(1700));
    assert_eq!(cabin.replies.len(), before + 1);
    assert_eq!(cabin.resolver.counts().sent_again, 1);
}

#[test]
fn a_slow_name_is_answered_late_and_then_cached() {
    let mut cabin = Cabin::with_ttl(300);
    assert!(cabin.ask(1, "slow.test.").is_none());
    cabin.in_flight[0].0 = cabin.now + s(9);
    // Retransmissions are duplicates of one pending query at the ground.
    cabin.ground = Box::new(|_| None);
    cabin.pass(s(8));
    assert!(cabin.replies.is_empty() && cabin.ask(2, "slow.test.").is_none());
    cabin.pass(s(1));
    let codes: Vec<_> =
        cabin.replies.iter().map(|(client, reply)| (*client, code(reply))).collect();
    assert_eq!(codes, [(1, ResponseCode::NoError), (2, ResponseCode::NoError)]);
    assert!(cabin.ask(1, "slow.test.").is_some());
}

#[test]
fn an_unanswered_name_is_not_queried_again_at_once() {
    let mut cabin = Cabin::new(Settings::default(), |_| None);
    assert!(cabin.ask(1, "silent.test.").is_none());
    cabin.pass(s(12));
    assert_eq!(code(&cabin.replies[0].1), ResponseCode::ServFail);
    // RFC 9520 section 3.2.
    let sent = cabin.sent;
    assert_eq!(code(&cabin.ask(1, "silent.test.").unwrap()), ResponseCode::ServFail);
    assert_eq!((cabin.sent, cabin.resolver.counts().failed), (sent, 1));
    cabin.pass(s(5));
    assert!(cabin.ask(1, "silent.test.").is_none());
}

#[test]
fn without_a_link_every_client_is_answered_at_once() {
    let mut cabin = Cabin::with_ttl(60);
    assert!(cabin.ask(1, "known.test.").is_none());
    cabin.pass(s(100));
    assert!(cabin.ask(1, "new.test.").is_none());
    cabin.resolver.set_reachable(false, cabin.now);
    cabin.act();
    assert_eq!(code(&cabin.replies[1].1), ResponseCode::ServFail, "waiting clients get an error");
    cabin.in_flight.clear();
    let sent = cabin.sent;
    for n in 0..50 {
        assert_eq!(code(&cabin.ask(2, &format!("n{n}.test.")).unwrap()), ResponseCode::ServFail);
        assert_eq!(cabin.ask(3, "known.test.").unwrap().answers[0].ttl, 30, "stale");
        cabin.pass(s(1));
    }
    assert_eq!((cabin.sent, cabin.resolver.counts().cut_off), (sent, 50));
    // The names are not marked as failed.
    cabin.resolver.set_reachable(true, cabin.now);
    assert!(cabin.ask(2, "n1.test.").is_none());
    assert!(cabin.ask(3, "known.test.").is_some());
    cabin.pass(RTT);
    assert_eq!(cabin.ask(3, "known.test.").unwrap().answers[0].ttl, 60);
}
