//! Passengers' traffic over the radio transport, in exact virtual time: streams and steady
//! datagrams in any class, in both directions at once.
//!
//! The server answers a request the moment it reaches the hub, so the measurements show only the
//! transport.

mod beat;
mod stream;

use std::time::Duration;

use bentpipe_link::{Class, Core, Session, SessionId, Settings};

use super::pair::Pair;
use super::trace::Digest;
use super::transfer::NoSession;
use crate::profile::Profile;
use crate::traffic::{Carry, Counted, Course, Talk, Traffic, Transit};
use beat::Beat;
use stream::Stream;

/// Maximum time until the session is up, if handshakes can get through at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(600);
/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;

/// Both gateways' ends of the link, with all traffic between them.
pub struct SimTraffic {
    pair: Pair,
    streams: Vec<Stream>,
    /// Streams that have not ended.
    live: Vec<usize>,
    beats: Vec<Beat>,
    hub_session: Option<SessionId>,
    buffer: Vec<u8>,
}

impl SimTraffic {
    /// Makes a session over `profile`'s radio link and waits until it is up. `air` and `hub` are
    /// the settings of its ends, except the rates, which come from the link.
    pub fn new(
        profile: &Profile,
        air: &Settings,
        hub: &Settings,
        seed: u64,
    ) -> Result<Self, NoSession> {
        Self::over(Pair::between(profile, air, hub, seed), profile)
    }

    /// The same over `pair`, whose first link is that of `profile`.
    pub fn over(pair: Pair, profile: &Profile) -> Result<Self, NoSession> {
        let pair = pair.with_digest(Digest::of_sizes());
        let (streams, live, beats) = (Vec::new(), Vec::new(), Vec::new());
        let buffer = vec![0; CHUNK_BYTES];
        let mut cabin = Self { pair, streams, live, beats, hub_session: None, buffer };
        let up = cabin.pair.run(CONNECT_LIMIT, |pair| pair.air.current().is_some());
        if up { Ok(cabin) } else { Err(NoSession::over(profile, CONNECT_LIMIT)) }
    }

    /// Both ends and their links.
    pub fn pair(&mut self) -> &mut Pair {
        &mut self.pair
    }

    /// Lets clients, servers and talkers read and write as much as possible.
    fn tend(&mut self) {
        while let Some(flow) = self.pair.accept() {
            self.hub_session = Some(flow.0);
            let now = self.pair.now();
            // A flow has one number at both ends; streams and datagrams share the numbers.
            let stream = self.live.iter().find(|&&live| self.streams[live].is_named(flow.1));
            match stream {
                Some(&live) => self.streams[live].heard(flow, now),
                None => {
                    let beat = self.beats.iter_mut().find(|beat| beat.is_named(flow.1));
                    beat.into_iter().for_each(|beat| beat.heard(flow, now));
                }
            }
        }
        for &live in &self.live {
            self.streams[live].tend(&mut self.pair, &mut self.buffer);
        }
        self.live.retain(|&live| !self.streams[live].is_over());
        for beat in &mut self.beats {
            beat.tend(&mut self.pair);
        }
    }
}

impl Traffic for SimTraffic {
    fn now(&self) -> Duration {
        self.pair.now()
    }

    fn open(&mut self, carry: Carry) -> usize {
        self.streams.push(Stream::new(carry, self.now()));
        self.live.push(self.streams.len() - 1);
        self.tend();
        self.streams.len() - 1
    }

    fn course(&self, stream: usize) -> Course {
        self.streams[stream].course()
    }

    fn talk(&mut self, talk: Talk) -> usize {
        self.beats.push(Beat::new(talk));
        self.tend();
        self.beats.len() - 1
    }

    fn has_begun(&self, talk: usize) -> bool {
        self.beats[talk].has_begun()
    }

    fn transits(&self, talk: usize, way: usize) -> Vec<Transit> {
        self.beats[talk].transits(way).collect()
    }

    fn step(&mut self, end: Duration) {
        let due = self.beats.iter().filter_map(Beat::next_at).min();
        self.pair.step_within(due.map_or(end, |due| due.min(end)));
        self.tend();
    }

    fn counted(&mut self) -> Counted {
        let hub = self.hub_session.and_then(|id| self.pair.hub.session(id));
        let hub = hub.map(|session| session.counters()).unwrap_or_default();
        let air = self.pair.air.current().map(|(_, session)| session.counters());
        let (down, up) = self.pair.counters();
        Counted { at: self.now(), sent: [hub, air.unwrap_or_default()], link: [down, up] }
    }

    fn class_bytes(&mut self, class: Class) -> [u64; 2] {
        let of = |session: &mut Session| {
            let counters = session.class_counters(class);
            counters.sent.bytes + counters.charged_bytes
        };
        let hub = self.hub_session.and_then(|id| self.pair.hub.session(id)).map(of);
        let air = self.pair.air.current().map(|(_, session)| of(session));
        [hub.unwrap_or(0), air.unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use bentpipe_units::Ratio;

    use super::*;
    use crate::traffic::{DOWN, ENDLESS, Passing, REQUEST_BYTES, UP};

    fn cabin(loss: f64, seed: u64) -> SimTraffic {
        let mss = Profile::named("mss").unwrap();
        let profile = mss.with_loss(Ratio::new(loss).unwrap(), 1.0).unwrap();
        SimTraffic::new(&profile, &Settings::default(), &Settings::default(), seed).unwrap()
    }

    #[test]
    fn an_object_takes_a_round_trip_and_its_sending_time_and_leaves_nothing_behind() {
        let mut cabin = cabin(0.0, 1);
        let carry =
            Carry { class: Class::BestEffort, passenger: 1, up: REQUEST_BYTES, down: 100_000 };
        let number = cabin.open(carry);
        assert!(cabin.wait(Duration::from_secs(5), |cabin| cabin.course(number).is_done()));
        let took = cabin.course(number).took().unwrap().as_secs_f64();
        assert!((1.18..1.30).contains(&took), "{took}");
        cabin.pass(Duration::from_secs(5));
        assert!(cabin.live.is_empty());
        assert_eq!(cabin.counted().sent.map(|sent| sent.flows), [0, 0]);
    }

    #[test]
    fn steady_datagrams_come_in_order_after_the_links_delay() {
        let mut cabin = cabin(0.0, 1);
        cabin.pass(Duration::from_secs(5)); // the path's MTU is known
        let sizes: Vec<usize> = iter::repeat_n(160, 50).collect();
        let gap = Duration::from_millis(20);
        let talk = Talk { class: Class::Network, passenger: 1, gap, sizes, phase: Duration::ZERO };
        let number = cabin.talk(talk);
        cabin.pass(Duration::from_secs(5));
        for way in [DOWN, UP] {
            let transits: Vec<_> = cabin.transits(number, way);
            assert_eq!(transits.len(), 50);
            for (_, transit) in transits {
                let transit = transit.expect("nothing is lost without loss");
                let beyond = transit.checked_sub(Duration::from_micros(380_500)).unwrap();
                assert!(beyond < Duration::from_millis(3), "{beyond:?}");
            }
        }
    }

    #[test]
    fn bulk_goes_on_both_ways_and_repeats_exactly() {
        let run = |seed| {
            let mut cabin = cabin(0.06, seed);
            let bulk = Carry { class: Class::Assured, passenger: 1, up: ENDLESS, down: ENDLESS };
            let number = cabin.open(bulk);
            cabin.pass(Duration::from_secs(10));
            cabin.course(number).got
        };
        let got = run(1);
        assert!(got.iter().all(|&bytes| bytes > 1_000_000), "{got:?}");
        assert_eq!(got, run(1));
        assert_ne!(got, run(2));
    }
}
