//! Both sides of a session over a simulated wire, in virtual time.

use std::time::Duration;

use bentpipe_dlep::{
    INITIALIZATION_TIMEOUT, MAX_DESTINATIONS, MacAddress, Modem, ModemEvent, ModemSettings, Rates,
    Router, RouterEvent, RouterSettings, Side, StatusCode, TERMINATION_TIMEOUT,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rates(transmit_bps: u64) -> Rates {
    Rates { transmit_bps, receive_bps: 20_000_000, latency: ms(300) }
}

fn mac(last: u8) -> MacAddress {
    MacAddress::new_eui48([2, 0, 0, 0, 0, last])
}

/// A router and a modem.
struct Pair {
    now: Duration,
    router: Router,
    modem: Modem,
    /// `true` while bytes reach the router.
    modem_reaches_router: bool,
}

impl Pair {
    fn new(transmit_bps: u64) -> Self {
        let settings = ModemSettings {
            description: "test \u{1b}[31mmodem".into(),
            heartbeat: ms(1000),
            rates: rates(transmit_bps),
        };
        let (now, settings_r) =
            (ms(100), RouterSettings { heartbeat: ms(2000), ..Default::default() });
        let router = Router::new(&settings_r, now);
        Self { now, router, modem: Modem::new(&settings, now), modem_reaches_router: true }
    }

    /// Carries bytes until none are left.
    fn carry(&mut self) {
        loop {
            let (out, back) = (self.router.take_output(), self.modem.take_output());
            if out.is_empty() && back.is_empty() {
                return;
            }
            self.modem.receive(self.now, &out);
            if self.modem_reaches_router {
                self.router.receive(self.now, &back);
            }
        }
    }

    /// Advances time, firing every timer when it is due.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            let due = self.router.next_due().into_iter().chain(self.modem.next_due()).min();
            match due.filter(|due| *due <= until) {
                Some(due) => self.now = due,
                None => break,
            }
            self.router.advance(self.now);
            self.modem.advance(self.now);
            self.carry();
        }
        self.now = until;
    }

    fn router_events(&mut self) -> Vec<RouterEvent> {
        std::iter::from_fn(|| self.router.poll_event()).collect()
    }

    fn take_rates(&mut self) -> Vec<Option<u64>> {
        let events = self.router_events().into_iter();
        let rates = events.filter_map(|event| match event {
            RouterEvent::Rates(rates) => Some(rates.map(|rates| rates.transmit_bps)),
            _ => None,
        });
        rates.collect()
    }

    fn up(transmit_bps: u64) -> Self {
        let mut pair = Self::new(transmit_bps);
        pair.carry();
        let up = RouterEvent::Up { modem: "test [31mmodem".into(), heartbeat: ms(1000) };
        assert_eq!(pair.router_events().first(), Some(&up));
        assert_eq!(pair.modem.poll_event(), Some(ModemEvent::Up));
        pair
    }
}

#[test]
fn the_first_answer_reports_the_rate() {
    let mut pair = Pair::new(4_000_000);
    pair.carry();
    assert_eq!(pair.router_events().last(), Some(&RouterEvent::Rates(Some(rates(4_000_000)))));
}

#[test]
fn a_session_update_takes_effect_at_once() {
    let mut pair = Pair::up(4_000_000);
    for bps in [1_000_000, 4_000_000] {
        pair.modem.set_session(pair.now, rates(bps));
        let update = pair.modem.take_output();
        assert_eq!(update[..2], [0, 3], "one Session Update");
        pair.router.receive(pair.now, &update);
        assert_eq!(pair.take_rates(), [Some(bps)]);
        pair.carry();
    }
    // Section 8: one update at a time; the newest waiting one is sent.
    for bps in [1, 2, 3] {
        pair.modem.set_session(pair.now, rates(bps));
    }
    let first = pair.modem.take_output();
    pair.router.receive(pair.now, &first);
    assert_eq!(pair.take_rates(), [Some(1)]);
    pair.carry();
    assert_eq!(pair.take_rates(), [Some(3)]);
}

#[test]
fn destination_rates_override_session_rates() {
    let mut pair = Pair::up(0);
    assert_eq!(pair.take_rates(), [], "all zeros mean unknown");
    pair.modem.set_destination(pair.now, mac(1), rates(3_000_000));
    pair.carry();
    pair.modem.set_destination(pair.now, mac(2), rates(2_000_000));
    pair.carry();
    pair.modem.set_destination(pair.now, mac(1), rates(1_000_000));
    pair.carry();
    assert_eq!(pair.take_rates(), [Some(1_000_000)], "a newer report replaces a queued one");
    pair.modem.set_session(pair.now, rates(5_000_000));
    pair.carry();
    assert_eq!(
        pair.take_rates(),
        [Some(5_000_000)],
        "a session update applies to all destinations (section 12.7)"
    );
    pair.modem.set_destination(pair.now, mac(2), rates(2_500_000));
    pair.carry();
    assert_eq!(pair.take_rates(), [Some(2_500_000)]);
    pair.modem.drop_destination(pair.now, mac(2));
    pair.carry();
    assert_eq!(pair.take_rates(), [Some(5_000_000)]);
    pair.modem.set_destination(pair.now, mac(1), rates(0));
    pair.carry();
    assert_eq!(pair.take_rates(), [Some(0)], "once a rate was reported, zero means zero");
}

#[test]
fn heartbeats_keep_an_idle_session_up_and_their_absence_ends_it() {
    let mut pair = Pair::up(4_000_000);
    pair.router_events();
    pair.pass(Duration::from_secs(3600));
    assert_eq!(pair.router_events(), []);
    assert_eq!(pair.modem.poll_event(), None);

    // The modem falls silent right after a heartbeat. Two of its intervals later the session ends.
    pair.pass(pair.modem.next_due().unwrap() - pair.now);
    let silent_since = pair.now;
    pair.modem_reaches_router = false;
    while pair.router_events().is_empty() {
        pair.pass(ms(10));
        assert!(pair.now < silent_since + ms(2_500), "silence is not detected");
    }
    assert!(pair.now >= silent_since + ms(2_000), "ended after {:?}", pair.now - silent_since);
    assert!(!pair.router.is_closed(), "the Session Termination may still be confirmed");
    pair.pass(TERMINATION_TIMEOUT);
    assert!(pair.router.is_closed());
    let Some(ModemEvent::Ended(reason)) = pair.modem.poll_event() else { panic!("no event") };
    assert_eq!((reason.by, reason.code), (Side::Peer, StatusCode::TIMED_OUT));
}

#[test]
fn both_sides_can_stop_in_order() {
    let mut pair = Pair::up(4_000_000);
    pair.router_events();
    pair.modem.shut_down(pair.now);
    pair.carry();
    let events = pair.router_events();
    let [RouterEvent::Ended(reason)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((reason.by, reason.code), (Side::Peer, StatusCode::SHUTTING_DOWN));
    assert!(pair.router.is_closed() && pair.modem.is_closed());

    let mut pair = Pair::up(4_000_000);
    pair.router.shut_down(pair.now);
    pair.carry();
    let Some(ModemEvent::Ended(reason)) = pair.modem.poll_event() else { panic!("no event") };
    assert_eq!((reason.by, reason.code), (Side::Peer, StatusCode::SHUTTING_DOWN));
    assert!(pair.router.is_closed() && pair.modem.is_closed());
}

#[test]
fn a_modem_that_never_answers_times_out() {
    let mut router = Router::new(&RouterSettings::default(), ms(0));
    assert_eq!(router.take_output()[..2], [0, 1], "Session Initialization");
    assert_eq!(router.next_due(), Some(INITIALIZATION_TIMEOUT));
    router.advance(INITIALIZATION_TIMEOUT);
    let Some(RouterEvent::Ended(reason)) = router.poll_event() else { panic!("no event") };
    assert_eq!(reason.code, StatusCode::TIMED_OUT);
    assert!(router.is_closed());

    let mut router = Router::new(&RouterSettings::default(), ms(0));
    router.disconnected(ms(1));
    assert!(router.is_closed());
    let Some(RouterEvent::Ended(reason)) = router.poll_event() else { panic!("no event") };
    assert_eq!(reason.by, Side::Peer);
}

/// Session Initialization Response as an independent implementation might send it.
const RESPONSE: &[u8] = &[
    0, 2, 0, 80, // message type and length of 80 bytes
    0, 1, 0, 1, 0, // status: success
    0, 4, 0, 3, 0, b'h', b'i', // peer type "hi"
    0, 5, 0, 4, 0, 0, 0x27, 0x10, // a heartbeat every 10,000 ms
    0, 12, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, // maximum data rate, receive
    0, 13, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, // maximum data rate, transmit
    0, 14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 8, // current data rate, receive
    0, 15, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, // current data rate, transmit
    0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0, 6, // latency, in microseconds
];

fn response(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = RESPONSE.to_vec();
    change(&mut bytes);
    let length = u16::try_from(bytes.len() - 4).unwrap();
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn answered(answer: &[u8]) -> (Vec<RouterEvent>, Vec<u8>) {
    let mut router = Router::new(&RouterSettings::default(), ms(0));
    router.take_output();
    router.receive(ms(1), answer);
    let events = std::iter::from_fn(|| router.poll_event()).collect();
    (events, router.take_output().to_vec())
}

#[test]
fn hand_written_answers_are_decoded() {
    let (events, out) = answered(&response(|_| {}));
    let expected = Rates { transmit_bps: 7, receive_bps: 8, latency: Duration::from_micros(6) };
    let up = RouterEvent::Up { modem: "hi".into(), heartbeat: ms(10_000) };
    assert_eq!(events, [up, RouterEvent::Rates(Some(expected))]);
    assert!(out.is_empty());
}

#[test]
fn malformed_answers_end_the_session_with_the_status_of_section_12_1() {
    let bad_item = |item: &'static [u8]| response(move |bytes| bytes.extend_from_slice(item));
    let cases: [(Vec<u8>, u8, &str); 7] = [
        (bad_item(&[0xff, 0xf0, 0, 0]), 130, "lacks, repeats or misplaces"),
        (bad_item(&[0, 17, 0, 1, 101]), 130, "value out of range for resources: 101"),
        (bad_item(&[0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0, 6]), 130, "repeats"),
        (bad_item(&[0, 20, 0, 9, 5]), 130, "cannot be read: buffer too short"),
        (response(|bytes| bytes.truncate(bytes.len() - 12)), 130, "lacks"),
        (vec![0, 16, 0, 0], 129, "a Heartbeat message is unexpected here"),
        (vec![0, 99, 0, 0], 128, "a message of type 99 is not known"),
    ];
    for (answer, status, why) in cases {
        let (events, out) = answered(&answer);
        let [RouterEvent::Ended(reason)] = &events[..] else { panic!("{why}: {events:?}") };
        assert_eq!((reason.by, reason.code.0), (Side::Local, status), "{why}");
        assert!(reason.to_string().contains(why), "{reason}");
        // A Session Termination with that status (sections 12.9, 13.1).
        assert_eq!(out, [0, 5, 0, 5, 0, 1, 0, 1, status], "{why}");
    }
}

#[test]
fn the_memory_a_modem_can_use_is_bounded() {
    let mut pair = Pair::up(4_000_000);
    pair.router_events();
    for number in 0..=MAX_DESTINATIONS {
        // Destination Up (section 12.11) with only a MAC address.
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        let up = [0, 7, 0, 10, 0, 7, 0, 6, 2, 0, 0, 0, high, low];
        pair.router.receive(pair.now, &up);
        pair.router.take_output();
    }
    let events = pair.router_events();
    let [RouterEvent::Ended(reason)] = &events[..] else { panic!("{events:?}") };
    assert!(reason.to_string().contains("more destinations than the 256"), "{reason}");

    let mut pair = Pair::up(4_000_000);
    pair.router_events();
    for number in 0..2_000_u16 {
        // Session Updates (section 12.7), each with another IPv4 address (section 13.8).
        let [high, low] = number.to_be_bytes();
        let update = [0, 3, 0, 9, 0, 8, 0, 5, 1, 10, 0, high, low];
        pair.router.receive(pair.now, &update);
        pair.router.take_output();
    }
    let events = pair.router_events();
    let [RouterEvent::Ended(reason)] = &events[..] else { panic!("{events:?}") };
    assert!(reason.to_string().contains("1025 addresses are announced"), "{reason}");
}
