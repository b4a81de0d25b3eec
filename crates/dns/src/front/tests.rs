use super::*;
use crate::journal::Record;
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

/// A cabin whose ground answers one round trip later, or never.
struct Cabin {
    front: Front<u32>,
    now: Duration,
    ground: Ground,
    on_the_way: Vec<(Duration, Vec<u8>)>,
    asked: usize,
    told: Vec<(u32, Message)>,
    limited: Vec<(IpAddr, Limited)>,
}

impl Cabin {
    fn new(settings: Settings, ground: impl FnMut(&[u8]) -> Option<Vec<u8>> + 'static) -> Self {
        let front = Front::new(settings, true);
        let (on_the_way, told, limited) = Default::default();
        let (now, ground) = (s(1_000_000), Box::new(ground));
        Self { front, now, ground, on_the_way, asked: 0, told, limited }
    }

    /// One whose every name has an address for `ttl` seconds.
    fn with_ttl(ttl: u32) -> Self {
        Self::new(Settings::default(), move |query| Some(address(query, ttl, 1)))
    }

    fn act(&mut self) {
        while let Some(action) = self.front.poll() {
            match action {
                Action::Ask { message, .. } => {
                    self.asked += 1;
                    if let Some(answer) = (self.ground)(&message) {
                        self.on_the_way.push((self.now + RTT, answer));
                    }
                }
                Action::Reply { client, message } => {
                    self.told.push((client, Message::from_vec(&message).unwrap()));
                }
                Action::Limited { client, by } => self.limited.push((client, by)),
                Action::Told { .. } | Action::Say(_) => {}
            }
        }
    }

    /// Lets time pass, and everything happen at its own.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.act();
            let next = self.on_the_way.iter().map(|it| it.0).chain(self.front.next_tick()).min();
            match next.filter(|at| *at <= end) {
                None => break,
                Some(at) => self.now = self.now.max(at),
            }
            self.front.tick(self.now);
            let (come, later) =
                std::mem::take(&mut self.on_the_way).into_iter().partition(|it| it.0 <= self.now);
            self.on_the_way = later;
            for (_, message) in come {
                let message: Vec<u8> = message;
                self.front.answered(&message, self.now);
            }
        }
        self.now = end;
    }

    fn ask(&mut self, client: u32, name: &str) -> Option<Message> {
        let message = query(name, RecordType::A);
        let answer = self.front.query(from(client), &message, Room::Packet(1232), self.now);
        self.act();
        answer.map(|answer| Message::from_vec(&answer).unwrap())
    }
}

/// A client with an address of its own, whose every question has another port.
fn from(client: u32) -> (u32, Source) {
    (client, Source::Stream([10, 0, (client >> 8) as u8, client as u8].into()))
}

/// One that asks by datagrams from one port.
fn by_datagram(client: u32) -> (u32, Source) {
    let at = ([10, 0, 0, client as u8], 5353).into();
    (client, Source::Datagram { client: at, server: None })
}

fn code(told: &Message) -> ResponseCode {
    told.metadata.response_code
}

#[test]
fn a_miss_costs_one_round_trip_and_a_hit_none() {
    let mut cabin = Cabin::with_ttl(300);
    assert!(cabin.ask(1, "a.test.").is_none() && cabin.ask(2, "A.test.").is_none());
    cabin.pass(RTT - Duration::from_millis(1));
    assert!(cabin.told.is_empty());
    cabin.pass(Duration::from_millis(1));
    let told: Vec<_> = cabin.told.iter().map(|(client, it)| (*client, it.answers[0].ttl)).collect();
    assert_eq!((told, cabin.asked), (vec![(1, 300), (2, 300)], 1));
    assert_eq!(cabin.told[1].1.queries[0].name().to_ascii(), "A.test.", "as it was asked");
    cabin.pass(s(100));
    assert_eq!(cabin.ask(3, "a.test.").unwrap().answers[0].ttl, 180, "200 s are left");
    let counts = cabin.front.counts();
    assert_eq!((counts.missed, counts.collapsed, counts.hits), (1, 1, 1));
}

#[test]
fn a_stale_answer_goes_out_at_once_and_is_asked_for_behind() {
    let mut cabin = Cabin::with_ttl(20);
    assert!(cabin.ask(1, "a.test.").is_none());
    cabin.pass(s(3600));
    assert_eq!(cabin.ask(1, "a.test.").unwrap().answers[0].ttl, 30, "RFC 8767 section 4");
    assert_eq!((cabin.asked, cabin.front.counts().stale), (2, 1));
    cabin.pass(s(1));
    assert_eq!(cabin.ask(1, "a.test.").unwrap().answers[0].ttl, 20);
    cabin.pass(s(20 + 24 * 3600));
    assert!(cabin.ask(1, "a.test.").is_none(), "too old");
}

#[test]
fn denials_and_failures_are_kept_for_their_time() {
    let mut cabin = Cabin::new(Settings::default(), |query| {
        let asked = Message::from_vec(query).unwrap();
        let is = |text: &str| asked.queries[0].name() == &name(text);
        Some(if is("no.test.") { denial(query, 900, 60) } else { failure(query) })
    });
    assert!(cabin.ask(1, "no.test.").is_none() && cabin.ask(1, "bad.test.").is_none());
    cabin.pass(s(2));
    let told = cabin.ask(1, "no.test.").unwrap();
    assert_eq!(told.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(told.authorities[0].ttl, 30, "59 s are left");
    let told = cabin.ask(1, "bad.test.").unwrap();
    assert_eq!(told.metadata.response_code, ResponseCode::ServFail);
    let counts = cabin.front.counts();
    assert_eq!((counts.negative, counts.failed), (1, 1));
    // RFC 9520: longer each time, for five minutes at most.
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
fn a_failure_does_not_take_the_place_of_what_is_known() {
    let mut good = true;
    let mut cabin = Cabin::new(Settings::default(), move |query| {
        Some(if std::mem::take(&mut good) { address(query, 20, 1) } else { failure(query) })
    });
    assert!(cabin.ask(1, "a.test.").is_none());
    cabin.pass(s(60));
    for _ in 0..10 {
        let told = cabin.ask(1, "a.test.").unwrap();
        assert_eq!(told.metadata.response_code, ResponseCode::NoError);
        cabin.pass(s(10));
    }
    assert!(cabin.asked <= 1 + 4, "at most every 30 s: {}", cabin.asked);
}

#[test]
fn popular_names_are_asked_for_before_their_end() {
    let mut cabin = Cabin::with_ttl(60);
    assert!(cabin.ask(1, "a.test.").is_none() && cabin.ask(1, "rare.test.").is_none());
    for _ in 0..30 {
        cabin.pass(s(20));
        assert!(cabin.ask(1, "a.test.").is_some());
    }
    let counts = cabin.front.counts();
    // Three queries in every lifetime make it popular; a few fall between.
    assert!(counts.prefetched >= 5 && counts.stale <= 8, "{counts:?}");
    assert!(counts.prefetch_used >= counts.prefetched - 1, "{counts:?}");
    cabin.pass(s(200));
    let asked = cabin.asked;
    cabin.pass(s(3600));
    assert_eq!(cabin.asked, asked, "nobody asks any more");
}

#[test]
fn what_is_asked_about_the_resolver_itself_never_crosses() {
    use crate::designated::Endpoint;
    let mut cabin = Cabin::with_ttl(300);
    let message = query("_dns.resolver.arpa.", RecordType::SVCB);
    let tell = |cabin: &mut Cabin, source, message: &[u8]| {
        let told = cabin.front.query((1, source), message, Room::Stream, cabin.now).unwrap();
        let told = Message::from_vec(&told).unwrap();
        assert_eq!(code(&told), ResponseCode::NoError);
        told.answers.len()
    };
    let (_, own) = from(1);
    assert_eq!(tell(&mut cabin, own, &message), 0);
    let at = Endpoint { ip: [10, 0, 0, 1].into(), port: 853, doh_path: None };
    cabin.front.set_designated(Designated::new("dns.example", &[at]));
    assert_eq!(tell(&mut cabin, own, &message), 1);
    assert_eq!(tell(&mut cabin, own, &query("x.resolver.arpa.", RecordType::SVCB)), 0);
    // Who asks another resolver would find that its certificate is not that one's.
    let server = Some(([8, 8, 8, 8], 53).into());
    let datagram = Source::Datagram { client: ([10, 0, 0, 1], 5353).into(), server };
    for elsewhere in [datagram, Source::Diverted([10, 0, 0, 1].into())] {
        assert_eq!(tell(&mut cabin, elsewhere, &message), 0);
    }
    cabin.act();
    assert_eq!((cabin.asked, cabin.front.counts().negative), (0, 4));
}

#[test]
fn a_denial_holds_no_longer_for_who_waited_for_it() {
    let mut cabin = Cabin::new(Settings::default(), |query| Some(denial(query, 900, 60)));
    assert!(cabin.ask(1, "no.test.").is_none());
    cabin.pass(RTT);
    let waited = cabin.told[0].1.authorities[0].ttl;
    assert_eq!((waited, cabin.ask(1, "no.test.").unwrap().authorities[0].ttl), (60, 60));
}

#[test]
fn codes_beyond_the_header_go_to_who_understands_them() {
    // BADCOOKIE, 23, is 7 in the header.
    let mut cabin = Cabin::new(Settings::default(), |query| {
        Some(answer_with(query, |it| {
            it.metadata.response_code = ResponseCode::from(1, 7);
            it.set_edns(Edns::new());
        }))
    });
    let edns = query_with("a.test.", RecordType::A, |it| _ = it.set_edns(Edns::new()));
    let plain = query("a.test.", RecordType::A);
    let mut asked = [(&edns, ResponseCode::BADCOOKIE), (&plain, ResponseCode::ServFail)];
    // Each is asked for what is not known, and for what is.
    for round in 0..2 {
        for (message, expected) in asked {
            let at_once = cabin.front.query(from(1), message, Room::Stream, cabin.now);
            cabin.act();
            cabin.pass(RTT);
            let told = at_once.map(|told| Message::from_vec(&told).unwrap());
            let told = told.or_else(|| Some(cabin.told.pop()?.1)).unwrap();
            assert_eq!(code(&told), expected, "round {round}");
        }
        cabin.pass(s(10));
        asked.reverse();
    }
}

#[test]
fn a_large_answer_is_asked_for_over_a_stream() {
    let mut front = Front::<u32>::new(Settings::default(), false);
    let message = query("big.test.", RecordType::TXT);
    assert!(front.query(from(1), &message, Room::Stream, s(0)).is_none());
    let Some(Action::Ask { id, message, over_stream: false }) = front.poll() else { panic!() };
    let cut = answer_with(&message, |it| it.metadata.truncation = true);
    front.answered(&cut, s(1));
    let again = front.poll();
    assert_eq!(again, Some(Action::Ask { id, message: message.clone(), over_stream: true }));
    front.answered(&cut, s(2));
    assert_eq!(front.poll(), None, "it is under way already");
    front.failed(id, s(3));
    assert!(matches!(front.poll(), Some(Action::Reply { client: 1, .. })));
}

#[test]
fn the_ground_answers_only_what_was_asked() {
    let mut front = Front::<u32>::new(Settings::default(), false);
    let message = query("a.test.", RecordType::A);
    front.answered(&address(&message, 300, 1), s(0));
    assert!(front.query(from(1), &message, Room::Stream, s(0)).is_none());
    let Some(Action::Ask { message, .. }) = front.poll() else { panic!() };
    let mut other = query("b.test.", RecordType::A);
    other[..2].copy_from_slice(&message[..2]);
    front.answered(&address(&other, 300, 1), s(0));
    front.answered(b"x", s(0));
    assert_eq!((front.counts().unasked, front.kept().0), (3, 0));
    front.answered(&address(&message, 300, 1), s(0));
    assert_eq!(front.kept().0, 1);
}

#[test]
fn the_gateway_is_told_of_addresses_while_clients_may_use_them() {
    let mut front = Front::<u32>::new(Settings::default(), false);
    let message = query("a.test.", RecordType::A);
    assert!(front.query(from(1), &message, Room::Stream, s(0)).is_none());
    let Some(Action::Ask { message: asked, .. }) = front.poll() else { panic!() };
    front.answered(&address(&asked, 300, 7), s(1));
    let told = std::iter::from_fn(|| front.poll()).find_map(|it| {
        if let Action::Told { name, addresses, lifetime } = it {
            Some((name, addresses, lifetime))
        } else {
            None
        }
    });
    let addresses = vec!["192.0.2.7".parse().unwrap()];
    assert_eq!(told, Some(("a.test".into(), addresses, s(360))));
    assert!(front.query(from(1), &message, Room::Stream, s(200)).is_some());
    assert_eq!(front.poll(), None, "they are known for long enough");
    assert!(front.query(from(1), &message, Room::Stream, s(400)).is_some());
    assert!(matches!(front.poll(), Some(Action::Told { .. })), "a stale answer is used too");
}

#[test]
fn a_restart_goes_on_with_what_was_known() {
    let mut cabin = Cabin::with_ttl(300);
    for n in 0..50 {
        assert!(cabin.ask(n, &format!("n{n}.test.")).is_none());
    }
    cabin.pass(s(1));
    let written = cabin.front.take_journal();
    let (snapshot, next) = cabin.front.snapshot(0, cabin.now);
    assert_eq!(snapshot, written, "the same records");
    assert_eq!(cabin.front.snapshot(next.unwrap(), cabin.now), (vec![], None));
    let mut again = Cabin::with_ttl(300);
    again.now = cabin.now + s(100);
    for record in written.clone() {
        again.front.restore(record, again.now);
    }
    assert_eq!(again.front.kept().0, 50);
    assert_eq!(again.ask(1, "n7.test.").unwrap().answers[0].ttl, 180);
    let mut late = Cabin::with_ttl(300);
    late.now = cabin.now + s(2 * 24 * 3600);
    for record in written {
        late.front.restore(record, late.now);
    }
    assert_eq!(late.front.kept().0, 0, "nothing of that counts any more");
}

#[test]
fn instant_names_wait_for_nobody() {
    let mut cabin = Cabin::with_ttl(300);
    let pool = Pool::new(([100, 64, 0, 0].into(), 10), None, &["gov.uk".into()], 1).unwrap();
    cabin.front.set_pool(Some(pool));
    let told = cabin.ask(1, "www.gov.uk.").unwrap();
    assert_eq!(told.answers.len(), 1);
    assert_eq!((cabin.asked, cabin.front.counts().instant), (0, 1));
    assert!(cabin.ask(1, "other.test.").is_none());
    let journal = cabin.front.take_journal();
    assert!(matches!(journal[..], [Record::Instant { number: 1, .. }]));
}

proptest! {
    /// Whatever is asked and whenever, an answer never says what the ground did not, nor for longer.
    #[test]
    fn answers_are_the_grounds(
        steps in prop::collection::vec((0u32..12, 0u64..90, 0u8..8), 1..120), min in 0u64..40, stale in 0u64..100,
    ) {
        let settings = Settings {
            min_ttl: s(min),
            max_ttl: s(80),
            max_stale: s(stale),
            memory_bytes: 8 << 10,
            ..Settings::default()
        };
        // The last number of an address tells when the ground said it.
        let mut said = 0u8;
        let mut cabin = Cabin::new(settings, move |query| {
            said = said.wrapping_add(1);
            match said % 5 {
                0 => None,
                1 => Some(failure(query)),
                2 => Some(answer_with(query, |it| {
                    let soa = soa(20);
                    it.add_authority(hickory_proto::rr::Record::from_rdata(name("test."), 50, soa));
                })),
                _ => Some(address(query, 60, said)),
            }
        });
        for (n, wait, client) in steps {
            if let Some(told) = cabin.ask(client.into(), &format!("n{n}.test.")) {
                let ttls = told.answers.iter().chain(&told.authorities).map(|it| it.ttl);
                prop_assert!(ttls.max().unwrap_or(0) <= 80);
                let asked = name(&format!("n{n}.test."));
                prop_assert!(told.answers.iter().all(|it| it.name == asked));
            }
            cabin.pass(s(wait));
            prop_assert!(cabin.front.kept().1 <= 8 << 10);
        }
        cabin.pass(s(30));
        prop_assert_eq!(cabin.front.asks.len(), 0, "nobody waits for ever");
    }
}

#[test]
fn who_begins_without_anything_is_given_what_it_offers_to_take() {
    let settings = Settings { warm_start_bytes: 200, ..Settings::default() };
    let mut front = Front::<u32>::new(settings.clone(), false);
    front.begin(s(0));
    // It says so until it is heard.
    let mut said = 0;
    for at in 0..60 {
        front.tick(s(at));
        while let Some(action) = front.poll() {
            let Action::Say(message) = action else { panic!("{action:?}") };
            assert_eq!(push::read_beginning(&message), Some(200));
            said += 1;
        }
        if at == 4 {
            front.answered(&push::beginning(200, true), s(at));
        }
    }
    assert_eq!((said, front.next_tick()), (2, None));
    let pushed = |name: &str| {
        let mut answer = address(&query(name, RecordType::A), 300, 7);
        push::mark_pushed(&mut answer);
        answer
    };
    for name in ["a.test.", "a.test.", "b.test.", "c.test.", "d.test.", "e.test."] {
        front.answered(&pushed(name), s(60));
    }
    let counts = front.counts();
    let length = pushed("a.test.").len() as u64;
    assert_eq!((counts.pushed, counts.push_bytes), (200 / length, 200 / length * length));
    assert_eq!((counts.push_wasted, counts.unasked), (1, 6 - 200 / length));
    assert!(front.query(from(1), &query("a.test.", RecordType::A), Room::Stream, s(61)).is_some());
    assert_eq!((front.counts().push_used, front.counts().hits), (1, 1));
    // Who knows something, or takes nothing, says nothing; and is not made to take it.
    front.begin(s(70));
    assert_eq!(front.next_tick(), None);
    let mut none = Front::<u32>::new(Settings::default(), false);
    none.begin(s(0));
    none.answered(&pushed("a.test."), s(0));
    assert_eq!((none.next_tick(), none.kept().0, none.counts().unasked), (None, 0, 1));
}
