//! A cabin in exact virtual time: passengers with streams and datagrams in every class, both ways at
//! once, and what each class takes of the link.

use std::time::Duration;

use bentpipe_channel::Counters;
use bentpipe_link::{
    Class, ClassSettings, Core, OpenDatagrams, PerClass, Read, Receive, Session, SessionId,
    Settings, Write,
};

use super::pair::{FlowKey, Pair};
use crate::profile::Profile;

/// Bytes handed over or taken at once.
const CHUNK: [u8; 16 << 10] = [0x5a; 16 << 10];
/// The session, or a flow, must be up within this.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// What may still be under way when the last probe has left.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Which way bytes go; also where in a pair of figures they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the aircraft.
    Down = 0,
    /// From it.
    Up = 1,
}

impl Way {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Down, Self::Up];
}

/// A stream, and what is to go over it.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Its class.
    pub class: Class,
    /// Whose it is.
    pub passenger: u32,
    /// Bytes towards the aircraft.
    pub down: u64,
    /// Bytes from it.
    pub up: u64,
}

/// Datagrams at a steady pace, both ways.
#[derive(Debug, Clone, Copy)]
pub struct Probes {
    /// Their class.
    pub class: Class,
    /// How far apart they are.
    pub gap: Duration,
    /// How many.
    pub count: u32,
    /// Payload of each, at least four.
    pub bytes: usize,
}

/// Both ends, and what goes on between them.
pub struct Cabin {
    pair: Pair,
    hub: Option<SessionId>,
    streams: Vec<Stream>,
    buffer: Vec<u8>,
}

struct Stream {
    at: [Option<FlowKey>; 2],
    /// Still to be written, either way.
    left: [u64; 2],
    /// Read so far, either way.
    read: [u64; 2],
}

impl Cabin {
    /// A cabin over `profile`'s radio link, up; `settings` are both ends' but for the rates.
    pub fn new(profile: &Profile, settings: &Settings, seed: u64) -> Self {
        let pair = Pair::new(profile, settings, seed);
        let mut cabin = Self { pair, hub: None, streams: Vec::new(), buffer: CHUNK.to_vec() };
        let first = cabin.start(Transfer { class: Class::Network, passenger: 0, down: 1, up: 1 });
        assert!(cabin.run_until(OPEN_LIMIT, |cabin| cabin.read(first) == [1, 1]), "no session");
        cabin
    }

    /// The time since the run began.
    pub fn now(&self) -> Duration {
        self.pair.now()
    }

    /// From now on each class gets this of what goes that way.
    pub fn set_classes(&mut self, way: Way, classes: PerClass<ClassSettings>) {
        let now = self.pair.now();
        self.sender(way).set_classes(classes, now).expect("such classes can be");
    }

    /// Begins a transfer; returns what it is called here.
    pub fn start(&mut self, transfer: Transfer) -> usize {
        let Transfer { class, passenger, down, up } = transfer;
        let mut opened = None;
        let came = self.run_until(OPEN_LIMIT, |cabin| {
            let flow = opened.or_else(|| cabin.pair.open_in(class, passenger, b""));
            opened = flow;
            opened.is_some()
        });
        assert!(came, "no flow could be opened");
        self.streams.push(Stream { at: [None, opened], left: [down, up], read: [0, 0] });
        self.streams.len() - 1
    }

    /// What of a transfer was read: at the aircraft, and on the ground.
    pub fn read(&self, transfer: usize) -> [u64; 2] {
        self.streams[transfer].read
    }

    /// A page of so many objects at once: how long until all of them are there.
    pub fn page(&mut self, class: Class, passenger: u32, objects: usize, bytes: u64) -> Duration {
        let began = self.pair.now();
        let object = Transfer { class, passenger, down: bytes, up: 200 };
        let objects: Vec<usize> = (0..objects).map(|_| self.start(object)).collect();
        let came = self.run_until(OPEN_LIMIT, |cabin| {
            objects.iter().all(|&object| cabin.read(object)[Way::Down as usize] == bytes)
        });
        assert!(came, "a page took longer than {OPEN_LIMIT:?}");
        self.pair.now() - began
    }

    /// Lets time pass.
    pub fn pass(&mut self, length: Duration) {
        self.run_until(length, |_| false);
    }

    /// IP bytes that each class has paid for, that way.
    pub fn class_bytes(&mut self, way: Way) -> PerClass<u64> {
        let session = self.sender(way);
        PerClass::new(|class| {
            let counters = session.class_counters(class);
            counters.sent.bytes + counters.charged_bytes
        })
    }

    /// What its sender counted, that way.
    pub fn sender_counters(&mut self, way: Way) -> bentpipe_link::Counters {
        self.sender(way).counters()
    }

    /// What the link counted, that way.
    pub fn link_counters(&self, way: Way) -> Counters {
        let (down, up) = self.pair.counters();
        if way == Way::Down { down } else { up }
    }

    /// Sends probes both ways at once: how long each took, in the order of sending, `None` for those
    /// that never came.
    pub fn probe(&mut self, probes: Probes) -> [Vec<Option<Duration>>; 2] {
        let open = OpenDatagrams {
            target: "192.0.2.7:5004".parse().expect("it is a target"),
            protocol: 17,
            source: 5004,
            class: probes.class,
            passenger: u32::MAX,
        };
        let now = self.pair.now();
        let air = self.pair.air.open_datagrams(&open, now).expect("there is room");
        let mut hub = None;
        let came = self.run_until(OPEN_LIMIT, |cabin| {
            hub = cabin.hub.map(|session| (session, air.1));
            let known =
                |session: &mut Session| session.receive_datagram(air.1, now) == Receive::Blocked;
            hub.is_some_and(|(id, _)| cabin.pair.hub.session(id).is_some_and(known))
        });
        assert!(came, "the flow of probes did not come up");
        let keys = [hub.expect("it is there"), air];
        self.exchange(probes, keys)
    }

    fn exchange(&mut self, probes: Probes, keys: [FlowKey; 2]) -> [Vec<Option<Duration>>; 2] {
        let count = probes.count as usize;
        let mut took = [vec![None; count], vec![None; count]];
        let start = self.pair.now();
        for number in 0..probes.count {
            let at = start + probes.gap * number;
            self.await_probes(at, start, probes.gap, keys, &mut took);
            let mut payload = vec![0; probes.bytes];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            for way in Way::BOTH {
                let sent = self.sender(way).send_datagram(keys[way as usize].1, &payload, at);
                sent.expect("the flow is up");
            }
        }
        let end = self.pair.now() + AFTERWARDS;
        self.await_probes(end, start, probes.gap, keys, &mut took);
        took
    }

    fn await_probes(
        &mut self,
        end: Duration,
        start: Duration,
        gap: Duration,
        keys: [FlowKey; 2],
        took: &mut [Vec<Option<Duration>>; 2],
    ) {
        while self.pair.now() < end {
            self.tend();
            self.pair.step_within(end);
            let now = self.pair.now();
            for way in Way::BOTH {
                // What comes down is received where what goes up is sent.
                let back = if way == Way::Down { Way::Up } else { Way::Down };
                let flow = keys[back as usize].1;
                while let Receive::Taken(payload) = self.sender(back).receive_datagram(flow, now) {
                    let number = payload.first_chunk().map_or(0, |it| u32::from_be_bytes(*it));
                    took[way as usize][number as usize] = Some(now - (start + gap * number));
                }
            }
        }
        self.tend();
    }

    /// The session that sends that way.
    fn sender(&mut self, way: Way) -> &mut Session {
        let session = match way {
            Way::Down => self.hub.and_then(|id| self.pair.hub.session(id)),
            Way::Up => self.pair.air.current().map(|(_, session)| session),
        };
        session.expect("the session is up")
    }

    fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.pair.now() + limit;
        loop {
            self.tend();
            if done(self) {
                return true;
            }
            if self.pair.now() >= end {
                return false;
            }
            self.pair.step_within(end);
        }
    }

    /// Everybody writes and reads what there is.
    fn tend(&mut self) {
        while let Some(flow) = self.pair.accept() {
            self.hub = Some(flow.0);
            let ours = |stream: &&mut Stream| stream.at[1].is_some_and(|(_, id)| id == flow.1);
            if let Some(stream) = self.streams.iter_mut().find(ours) {
                stream.at[0] = Some(flow);
            }
        }
        let now = self.pair.now();
        for stream in &mut self.streams {
            for way in Way::BOTH {
                let Some((session, flow)) = stream.at[way as usize] else { continue };
                let session = match way {
                    Way::Down => self.pair.hub.session(session),
                    Way::Up => self.pair.air.session(session),
                };
                let Some(session) = session else { continue };
                let left = &mut stream.left[way as usize];
                write(session, flow, left, now);
                let came = &mut stream.read[1 - way as usize];
                while let Read::Taken(bytes) = session.read(flow, &mut self.buffer, now) {
                    *came += bytes as u64;
                }
            }
        }
    }
}

fn write(session: &mut Session, flow: u64, left: &mut u64, now: Duration) {
    while *left > 0 {
        let most = CHUNK.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        match session.write(flow, &CHUNK[..most], now) {
            Write::Taken(bytes) => *left -= bytes as u64,
            _ => return,
        }
    }
}
