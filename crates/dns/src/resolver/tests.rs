use super::*;
use crate::action::Limited;
use crate::journal::Record;
use crate::query::Room;
use crate::share::Source;
use crate::testing::{address, answer_with, denial, failure, name, query, query_with, soa};
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::RecordType;
use proptest::prelude::*;

mod networks;
mod room;
mod silence;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const RTT: Duration = Duration::from_millis(760);

type Ground = Box<dyn FnMut(&[u8]) -> Option<Vec<u8>>>;

/// Cabin with a ground that answers one round trip later, or never.
struct Cabin {
    resolver: Resolver<u32>,
    now: Duration,
    ground: Ground,
    in_flight: Vec<(Duration, Vec<u8>)>,
    sent: usize,
    replies: Vec<(u32, Message)>,
    limited: Vec<(Asker, Limited)>,
}

impl Cabin {
    fn new(settings: Settings, ground: impl FnMut(&[u8]) -> Option<Vec<u8>> + 'static) -> Self {
        let resolver = Resolver::new(settings, true, [7; 16]);
        let (in_flight, replies, limited) = Default::default();
        let (now, ground) = (s(1_000_000), Box::new(ground));
        Self { resolver, now, ground, in_flight, sent: 0, replies, limited }
    }

    /// Cabin in which every name has an address for `ttl` seconds.
    fn with_ttl(ttl: u32) -> Self {
        Self::new(Settings::default(), move |query| Some(address(query, ttl, 1)))
    }

    fn act(&mut self) {
        while let Some(action) = self.resolver.poll() {
            match action {
                Action::Query { message, .. } => {
                    self.sent += 1;
                    if let Some(answer) = (self.ground)(&message) {
                        self.in_flight.push((self.now + RTT, answer));
                    }
                }
                Action::Reply { client, message } => {
                    self.replies.push((client, Message::from_vec(&message).unwrap()));
                }
                Action::Limited { client, by } => self.limited.push((client, by)),
                Action::Resolved { .. } | Action::Notify(_) => {}
            }
        }
    }

    /// Advances time and handles every event when it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.act();
            let next = self.in_flight.iter().map(|it| it.0).chain(self.resolver.next_tick()).min();
            match next.filter(|at| *at <= end) {
                None => break,
                Some(at) => self.now = self.now.max(at),
            }
            self.resolver.tick(self.now);
            let (come, later) =
                std::mem::take(&mut self.in_flight).into_iter().partition(|it| it.0 <= self.now);
            self.in_flight = later;
            for (_, message) in come {
                let message: Vec<u8> = message;
                self.resolver.on_answer(&message, self.now);
            }
        }
        self.now = end;
    }

    fn ask(&mut self, client: u32, name: &str) -> Option<Message> {
        let message = query(name, RecordType::A);
        let answer = self.resolver.query(from(client), &message, Room::Packet(1232), self.now);
        self.act();
        answer.map(|answer| Message::from_vec(&answer).unwrap())
    }
}

/// Client with its own address; each query uses another port.
fn from(client: u32) -> (u32, Source) {
    (client, Source::Stream([10, 0, (client >> 8) as u8, client as u8].into()))
}

/// Client that sends datagrams from one port.
fn by_datagram(client: u32) -> (u32, Source) {
    let at = ([10, 0, 0, client as u8], 5353).into();
    (client, Source::Datagram { client: at, asker: at.ip().into(), server: None })
}

fn code(reply: &Message) -> ResponseCode {
    reply.metadata.response_code
}

#[test]
fn a_miss_costs_one_round_trip_and_a_hit_none() {
    let mut cabin = Cabin::with_ttl(300);
    assert!(cabin.ask(1, "a.test.").is_none() && cabin.ask(2, "A.test.").is_none());
    cabin.pass(RTT - Duration::from_millis(1));
    assert!(cabin.replies.is_empty());
    cabin.pass(Duration::from_millis(1));
    let replies: Vec<_> =
        cabin.replies.iter().map(|(client, it)| (*client, it.answers[0].ttl)).collect();
    assert_eq!((replies, cabin.sent), (vec![(1, 300), (2, 300)], 1));
    assert_eq!(
        cabin.replies[1].1.queries[0].name().to_ascii(),
        "A.test.",
        "in the client's spelling"
    );
    cabin.pass(s(100));
    assert_eq!(cabin.ask(3, "a.test.").unwrap().answers[0].ttl, 180, "200 s are left");
    let counts = cabin.resolver.counts();
    assert_eq!((counts.missed, counts.collapsed, counts.hits), (1, 1, 1));
}

#[test]
fn a_stale_answer_is_sent_at_once_and_refreshed() {
    let mut cabin = Cabin::with_ttl(20);
    assert!(cabin.ask(1, "a.test.").is_none());
    cabin.pass(s(3600));
    assert_eq!(cabin.ask(1, "a.test.").unwrap().answers[0].ttl, 30, "RFC 8767 section 4");
    assert_eq!((cabin.sent, cabin.resolver.counts().stale), (2, 1));
    cabin.pass(s(1));
    assert_eq!(cabin.ask(1, "a.test.").unwrap().answers[0].ttl, 20);
    cabin.pass(s(20 + 24 * 3600));
    assert!(cabin.ask(1, "a.test.").is_none(), "too old");
}

#[test]
fn denials_and_failures_are_cached_for_their_lifetime() {
    let mut cabin = Cabin::new(Settings::default(), |query| {
        let question = Message::from_vec(query).unwrap();
        let is = |text: &str| question.queries[0].name() == &name(text);
        Some(if is("no.test.") { denial(query, 900, 60) } else { failure(query) })
    });
    assert!(cabin.ask(1, "no.test.").is_none() && cabin.ask(1, "bad.test.").is_none());
    cabin.pass(s(2));
    let reply = cabin.ask(1, "no.test.").unwrap();
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(reply.authorities[0].ttl, 30, "59 s are left");
    let reply = cabin.ask(1, "bad.test.").unwrap();
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    let counts = cabin.resolver.counts();
    assert_eq!((counts.negative, counts.failed), (1, 1));
    // RFC 9520: the pause grows, up to five minutes.
    let mut waits = vec![];
    for _ in 0..9 {
        let began = cabin.now;
        while cabin.ask(1, "bad.test.").is_some() {
            cabin.pass(Duration::from_millis(500));
        }
        waits.push((cabin.now - began).as_secs());
        cabin.pass(s(1));
    }
    assert!(waits.is_sorted() && waits[0] <= 5 && waits[1] > 5, "{waits:?}");
    assert!((290..=300).contains(waits.last().unwrap()), "{waits:?}");
}

#[test]
fn a_failure_does_not_replace_a_cached_answer() {
    let mut good = true;
    let mut cabin = Cabin::new(Settings::default(), move |query| {
        Some(if std::mem::take(&mut good) { address(query, 20, 1) } else { failure(query) })
    });
    assert!(cabin.ask(1, "a.test.").is_none());
    cabin.pass(s(60));
    for _ in 0..10 {
        let reply = cabin.ask(1, "a.test.").unwrap();
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        cabin.pass(s(10));
    }
    assert!(cabin.sent <= 1 + 4, "at most every 30 s: {}", cabin.sent);
}

#[test]
fn popular_names_are_refreshed_before_they_expire() {
    let mut cabin = Cabin::with_ttl(60);
    assert!(cabin.ask(1, "a.test.").is_none() && cabin.ask(1, "rare.test.").is_none());
    for _ in 0..30 {
        cabin.pass(s(20));
        assert!(cabin.ask(1, "a.test.").is_some());
    }
    let counts = cabin.resolver.counts();
    // Three queries per lifetime make a name popular; a few fall in between.
    assert!(counts.prefetched >= 5 && counts.stale <= 8, "{counts:?}");
    assert!(counts.prefetch_used >= counts.prefetched - 1, "{counts:?}");
    cabin.pass(s(200));
    let sent = cabin.sent;
    cabin.pass(s(3600));
    assert_eq!(cabin.sent, sent, "unused names are not refreshed");
}

#[test]
fn queries_about_the_resolver_are_never_forwarded() {
    use crate::designated::Endpoint;
    let mut cabin = Cabin::with_ttl(300);
    let message = query("_dns.resolver.arpa.", RecordType::SVCB);
    let count_answers = |cabin: &mut Cabin, source, message: &[u8]| {
        let reply = cabin.resolver.query((1, source), message, Room::Stream, cabin.now).unwrap();
        let reply = Message::from_vec(&reply).unwrap();
        assert_eq!(code(&reply), ResponseCode::NoError);
        reply.answers.len()
    };
    let (_, own) = from(1);
    assert_eq!(count_answers(&mut cabin, own, &message), 0);
    let at = Endpoint { ip: [10, 0, 0, 1].into(), port: 853, doh_path: None };
    cabin.resolver.set_designated(Designated::new("dns.example", &[at]));
    assert_eq!(count_answers(&mut cabin, own, &message), 1);
    assert_eq!(count_answers(&mut cabin, own, &query("x.resolver.arpa.", RecordType::SVCB)), 0);
    // A client of another resolver would find that the certificate is not that resolver's.
    let server = Some(([8, 8, 8, 8], 53).into());
    let datagram = Source::Datagram {
        client: ([10, 0, 0, 1], 5353).into(),
        asker: [10, 0, 0, 1].into(),
        server,
    };
    for elsewhere in [datagram, Source::Diverted([10, 0, 0, 1].into())] {
        assert_eq!(count_answers(&mut cabin, elsewhere, &message), 0);
    }
    cabin.act();
    assert_eq!((cabin.sent, cabin.resolver.counts().negative), (0, 4));
}

#[test]
fn a_waiter_gets_the_same_denial_ttl_as_a_later_client() {
    let mut cabin = Cabin::new(Settings::default(), |query| Some(denial(query, 900, 60)));
    assert!(cabin.ask(1, "no.test.").is_none());
    cabin.pass(RTT);
    let waited = cabin.replies[0].1.authorities[0].ttl;
    assert_eq!((waited, cabin.ask(1, "no.test.").unwrap().authorities[0].ttl), (60, 60));
}

#[test]
fn extended_response_codes_go_to_clients_with_edns() {
    // BADCOOKIE, 23, is 7 in the header.
    let mut cabin = Cabin::new(Settings::default(), |query| {
        Some(answer_with(query, |it| {
            it.metadata.response_code = ResponseCode::from(1, 7);
            it.set_edns(Edns::new());
        }))
    });
    let edns = query_with("a.test.", RecordType::A, |it| _ = it.set_edns(Edns::new()));
    let plain = query("a.test.", RecordType::A);
    let mut cases = [(&edns, ResponseCode::BADCOOKIE), (&plain, ResponseCode::ServFail)];
    // Each message is tried with an empty cache and with a cached answer.
    for round in 0..2 {
        for (message, expected) in cases {
            let at_once = cabin.resolver.query(from(1), message, Room::Stream, cabin.now);
            cabin.act();
            cabin.pass(RTT);
            let reply = at_once.map(|reply| Message::from_vec(&reply).unwrap());
            let reply = reply.or_else(|| Some(cabin.replies.pop()?.1)).unwrap();
            assert_eq!(code(&reply), expected, "round {round}");
        }
        cabin.pass(s(10));
        cases.reverse();
    }
}

#[test]
fn a_truncated_answer_is_queried_over_a_stream() {
    let mut resolver = Resolver::<u32>::new(Settings::default(), false, [7; 16]);
    let message = query("big.test.", RecordType::TXT);
    assert!(resolver.query(from(1), &message, Room::Stream, s(0)).is_none());
    let Some(Action::Query { id, message, over_stream: false }) = resolver.poll() else { panic!() };
    let cut = answer_with(&message, |it| it.metadata.truncation = true);
    resolver.on_answer(&cut, s(1));
    let again = resolver.poll();
    assert_eq!(again, Some(Action::Query { id, message: message.clone(), over_stream: true }));
    resolver.on_answer(&cut, s(2));
    assert_eq!(resolver.poll(), None, "the stream query is already pending");
    resolver.on_stream_failed(id, s(3));
    assert!(matches!(resolver.poll(), Some(Action::Reply { client: 1, .. })));
}

#[test]
fn answers_without_a_pending_query_are_ignored() {
    let mut resolver = Resolver::<u32>::new(Settings::default(), false, [7; 16]);
    let message = query("a.test.", RecordType::A);
    resolver.on_answer(&address(&message, 300, 1), s(0));
    assert!(resolver.query(from(1), &message, Room::Stream, s(0)).is_none());
    let Some(Action::Query { message, .. }) = resolver.poll() else { panic!() };
    let mut other = query("b.test.", RecordType::A);
    other[..2].copy_from_slice(&message[..2]);
    resolver.on_answer(&address(&other, 300, 1), s(0));
    resolver.on_answer(b"x", s(0));
    assert_eq!((resolver.counts().unasked, resolver.cached().0), (3, 0));
    resolver.on_answer(&address(&message, 300, 1), s(0));
    assert_eq!(resolver.cached().0, 1);
}

#[test]
fn addresses_are_announced_while_clients_may_use_them() {
    let mut resolver = Resolver::<u32>::new(Settings::default(), false, [7; 16]);
    let message = query("a.test.", RecordType::A);
    assert!(resolver.query(from(1), &message, Room::Stream, s(0)).is_none());
    let Some(Action::Query { message: question, .. }) = resolver.poll() else { panic!() };
    resolver.on_answer(&address(&question, 300, 7), s(1));
    let reply = std::iter::from_fn(|| resolver.poll()).find_map(|it| {
        if let Action::Resolved { name, addresses, lifetime } = it {
            Some((name, addresses, lifetime))
        } else {
            None
        }
    });
    let addresses = vec!["192.0.2.7".parse().unwrap()];
    assert_eq!(reply, Some(("a.test".into(), addresses, s(360))));
    assert!(resolver.query(from(1), &message, Room::Stream, s(200)).is_some());
    assert_eq!(resolver.poll(), None, "they are announced for long enough");
    assert!(resolver.query(from(1), &message, Room::Stream, s(400)).is_some());
    assert!(matches!(resolver.poll(), Some(Action::Resolved { .. })), "a stale answer is used too");
}

#[test]
fn a_restart_continues_with_the_journal() {
    let mut cabin = Cabin::with_ttl(300);
    for n in 0..50 {
        assert!(cabin.ask(n, &format!("n{n}.test.")).is_none());
    }
    cabin.pass(s(1));
    let written = cabin.resolver.take_journal();
    let (snapshot, next) = cabin.resolver.snapshot(0, cabin.now);
    assert_eq!(snapshot, written, "the same records");
    assert_eq!(cabin.resolver.snapshot(next.unwrap(), cabin.now), (vec![], None));
    let mut again = Cabin::with_ttl(300);
    again.now = cabin.now + s(100);
    for record in written.clone() {
        again.resolver.restore(record, again.now);
    }
    assert_eq!(again.resolver.cached().0, 50);
    assert_eq!(again.ask(1, "n7.test.").unwrap().answers[0].ttl, 180);
    let mut late = Cabin::with_ttl(300);
    late.now = cabin.now + s(2 * 24 * 3600);
    for record in written {
        late.resolver.restore(record, late.now);
    }
    assert_eq!(late.resolver.cached().0, 0, "all records have expired");
}

#[test]
fn fake_ip_answers_are_immediate() {
    let mut cabin = Cabin::with_ttl(300);
    let pool = FakeIpPool::new(([100, 64, 0, 0].into(), 10), None, &["gov.uk".into()], 1).unwrap();
    cabin.resolver.set_pool(Some(pool));
    let reply = cabin.ask(1, "www.gov.uk.").unwrap();
    assert_eq!(reply.answers.len(), 1);
    assert_eq!((cabin.sent, cabin.resolver.counts().instant), (0, 1));
    assert!(cabin.ask(1, "other.test.").is_none());
    assert_eq!(cabin.limited, []);
    let journal = cabin.resolver.take_journal();
    assert!(matches!(journal[..], [Record::FakeIp { number: 1, .. }]));
}

#[test]
fn names_beyond_the_rate_of_fake_ip_addresses_are_reported() {
    let mut cabin = Cabin::with_ttl(300);
    let pool = FakeIpPool::new(([100, 64, 0, 0].into(), 10), None, &[], 1).unwrap();
    cabin.resolver.set_pool(Some(pool));
    // More than 1,000 names at once, of clients below their own rates.
    for n in 0..1_010 {
        cabin.ask(n, &format!("n{n}.example."));
    }
    let names = cabin.limited.iter().filter(|(_, by)| *by == Limited::Names).count();
    assert_eq!((names, cabin.resolver.counts().instant), (10, 1_000));
}

proptest! {
    /// Answers contain only what the ground sent, and TTLs never exceed it.
    #[test]
    fn answers_match_the_ground(
        steps in prop::collection::vec((0u32..12, 0u64..90, 0u8..8), 1..120), min in 0u64..40, stale in 0u64..100,
    ) {
        let settings = Settings {
            min_ttl: s(min),
            max_ttl: s(80),
            max_stale: s(stale),
            memory_bytes: 8 << 10,
            ..Settings::default()
        };
        // The last octet of an address tells when the ground sent it.
        let mut sequence = 0u8;
        let mut cabin = Cabin::new(settings, move |query| {
            sequence = sequence.wrapping_add(1);
            match sequence % 5 {
                0 => None,
                1 => Some(failure(query)),
                2 => Some(answer_with(query, |it| {
                    let soa = soa(20);
                    it.add_authority(hickory_proto::rr::Record::from_rdata(name("test."), 50, soa));
                })),
                _ => Some(address(query, 60, sequence)),
            }
        });
        for (n, wait, client) in steps {
            if let Some(reply) = cabin.ask(client.into(), &format!("n{n}.test.")) {
                let ttls = reply.answers.iter().chain(&reply.authorities).map(|it| it.ttl);
                prop_assert!(ttls.max().unwrap_or(0) <= 80);
                let question = name(&format!("n{n}.test."));
                prop_assert!(reply.answers.iter().all(|it| it.name == question));
            }
            cabin.pass(s(wait));
            prop_assert!(cabin.resolver.cached().1 <= 8 << 10);
        }
        cabin.pass(s(30));
        prop_assert_eq!(cabin.resolver.pending.len(), 0, "every query ends");
    }
}

#[test]
fn a_warm_start_accepts_what_it_announced() {
    let settings = Settings { warm_start_bytes: 200, ..Settings::default() };
    let mut resolver = Resolver::<u32>::new(settings.clone(), false, [7; 16]);
    resolver.begin(s(0));
    // The announcement is repeated until it is acknowledged.
    let mut announcements = 0;
    for at in 0..60 {
        resolver.tick(s(at));
        while let Some(action) = resolver.poll() {
            let Action::Notify(message) = action else { panic!("{action:?}") };
            assert_eq!(push::read_start(&message), Some(200));
            announcements += 1;
        }
        if at == 4 {
            resolver.on_answer(&push::start(200, true), s(at));
        }
    }
    assert_eq!((announcements, resolver.next_tick()), (2, None));
    let pushed = |name: &str| {
        let mut answer = address(&query(name, RecordType::A), 300, 7);
        push::mark_pushed(&mut answer);
        answer
    };
    for name in ["a.test.", "a.test.", "b.test.", "c.test.", "d.test.", "e.test."] {
        resolver.on_answer(&pushed(name), s(60));
    }
    let counts = resolver.counts();
    let length = pushed("a.test.").len() as u64;
    assert_eq!((counts.pushed, counts.push_bytes), (200 / length, 200 / length * length));
    assert_eq!((counts.push_wasted, counts.unasked), (1, 6 - 200 / length));
    assert!(
        resolver.query(from(1), &query("a.test.", RecordType::A), Room::Stream, s(61)).is_some()
    );
    assert_eq!((resolver.counts().push_used, resolver.counts().hits), (1, 1));
    // A resolver with cached answers, or that accepts no push, announces nothing and ignores
    // pushes.
    resolver.begin(s(70));
    assert_eq!(resolver.next_tick(), None);
    let mut none = Resolver::<u32>::new(Settings::default(), false, [7; 16]);
    none.begin(s(0));
    none.on_answer(&pushed("a.test."), s(0));
    assert_eq!((none.next_tick(), none.cached().0, none.counts().unasked), (None, 0, 1));
}
