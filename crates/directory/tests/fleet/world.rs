//! Grounds, their streams and their aircraft.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use bentpipe_directory::{Directory, Key, Place, Side, Source, Statement};
use curve25519_dalek::MontgomeryPoint;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Aircraft with which a ground is full.
const CAPACITY: usize = 40;
/// Headers of a packet: IPv6, UDP, QUIC.
const HEADER_BYTES: usize = 64;
/// Bytes that are read at once.
const MAX_READ_BYTES: usize = 4 << 10;
/// Contents of a packet.
const PACKET_BYTES: usize = 1_200;

/// Connections of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Every ground is hub and egress of every other.
    Mesh,
    /// Ground 0 is the egress of 49 hubs.
    Star,
    /// Hubs and egresses, half and half. Each hub has every egress.
    Halves,
    /// The same, and each hub has four egresses.
    Sparse,
}

impl Shape {
    pub const ALL: [Self; 4] = [Self::Mesh, Self::Star, Self::Halves, Self::Sparse];

    /// Returns `true` if ground `a` has `b` as egress.
    fn has(self, count: usize, a: usize, b: usize) -> bool {
        let half = count / 2;
        match self {
            Self::Mesh => a != b,
            Self::Star => a != 0 && b == 0,
            Self::Halves => a < half && b >= half,
            Self::Sparse => a < half && b >= half && (b - half + 3 * a) % half < 4,
        }
    }
}

struct Ground {
    keys: ([u8; 32], Key),
    directory: Directory,
    statement: Statement,
    is_dead: bool,
    /// Bytes sent and received in each second.
    traffic: BTreeMap<u64, (u64, u64)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Bytes for `to` on the stream that `from` wrote to, in this age of the stream.
    Arrive { to: usize, from: usize, side: Side, age: u32, bytes: Vec<u8> },
    /// A second has passed at this ground.
    Tick(usize),
}

/// Arrival of a change.
pub struct Change {
    pub arrived: Vec<Duration>,
    pub missing: usize,
}

/// A fleet in virtual time.
pub struct World {
    now: Duration,
    rng: ChaCha8Rng,
    grounds: Vec<Ground>,
    /// Streams, by the ground that opened it and the other, with one-way delay and age.
    streams: BTreeMap<(usize, usize), (Duration, u32)>,
    /// Streams of each ground: the other end, and the side.
    ends: Vec<Vec<(usize, Side)>>,
    cut: BTreeSet<(usize, usize)>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    sequence: u64,
    /// The ground of each aircraft.
    aircraft: Vec<usize>,
    /// Changed ground, and who has seen the change when.
    change: Option<(usize, BTreeMap<usize, Duration>)>,
}

/// Name of a stream of ground `at`.
fn ends_of(at: usize, to: usize, side: Side) -> (usize, usize) {
    match side {
        Side::Ours => (at, to),
        Side::Theirs => (to, at),
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Ours => Side::Theirs,
        Side::Theirs => Side::Ours,
    }
}

pub fn keys(number: u32) -> ([u8; 32], Key) {
    let mut secret = [9; 32];
    secret[..4].copy_from_slice(&number.to_be_bytes());
    (secret, MontgomeryPoint::mul_base_clamped(secret).to_bytes())
}

pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

impl World {
    pub fn new(count: usize, shape: Shape, aircraft: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut streams = BTreeMap::new();
        for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            if shape.has(count, a, b) {
                streams.insert((a, b), (Duration::from_millis(rng.random_range(2..150)), 0));
            }
        }
        let ground = |number: usize| {
            let statement = Statement {
                is_hub: streams.keys().any(|(a, _)| *a == number),
                is_egress: streams.keys().any(|(_, b)| *b == number),
                place: Place::new(number as f64, -(number as f64)),
                addresses: vec![format!("ground-{number}.fleet.example:4433").parse().unwrap()],
                ..Statement::default()
            };
            let keys = keys(number as u32);
            let directory = directory(&streams, number, 1 << 40);
            Ground { keys, directory, statement, is_dead: false, traffic: BTreeMap::new() }
        };
        let grounds = (0..count).map(ground).collect();
        let aircraft = (0..aircraft).map(|_| rng.random_range(0..count)).collect();
        let mut ends = vec![Vec::new(); count];
        for (a, b) in streams.keys() {
            ends[*a].push((*b, Side::Ours));
            ends[*b].push((*a, Side::Theirs));
        }
        let (now, events, cut, sequence) = Default::default();
        let mut world = Self {
            now,
            rng,
            grounds,
            streams,
            ends,
            cut,
            events,
            sequence,
            aircraft,
            change: None,
        };
        world.connect_all(|_, _| true);
        for number in 0..count {
            let at = Duration::from_millis(world.rng.random_range(0..1000));
            world.push(at, Event::Tick(number));
        }
        world
    }

    pub fn now(&self) -> Duration {
        self.now
    }

    fn push(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Begins the streams that `which` selects, in place of earlier ones.
    fn connect_all(&mut self, which: impl Fn(usize, usize) -> bool) {
        let streams: Vec<_> = self.streams.keys().copied().filter(|(a, b)| which(*a, *b)).collect();
        for (a, b) in streams {
            self.streams.entry((a, b)).and_modify(|(_, age)| *age += 1);
            for (at, to, side) in [(a, b, Side::Ours), (b, a, Side::Theirs)] {
                let peer = self.grounds[to].keys.1;
                assert!(self.grounds[at].directory.connect(peer, side, self.now));
            }
            self.flush(a);
            self.flush(b);
        }
    }

    pub fn run_until(&mut self, end: Duration) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            let Reverse((at, sequence, event)) = self.events.pop().unwrap();
            self.now = at;
            match event {
                Event::Tick(number) => self.tick(number),
                Event::Arrive { to, from, side, age, bytes } => {
                    let stream = ends_of(to, from, side);
                    let (peer, ground) = (self.grounds[from].keys.1, &mut self.grounds[to]);
                    if age != self.streams[&stream].1
                        || self.cut.contains(&stream)
                        || ground.is_dead
                    {
                        continue;
                    }
                    let pause = ground.directory.pause(&peer, at);
                    if pause > Duration::ZERO {
                        let event = Event::Arrive { to, from, side, age, bytes };
                        self.events.push(Reverse((at + pause, sequence, event)));
                        continue;
                    }
                    ground.traffic.entry(at.as_secs()).or_default().1 += on_wire(bytes.len());
                    if ground.directory.receive((peer, side), &bytes, at) == Ok(true) {
                        self.flush(to);
                    }
                    self.note_change(to);
                }
            }
        }
        self.now = end;
    }

    fn tick(&mut self, number: usize) {
        let at = self.now + Duration::from_secs(1);
        self.push(at, Event::Tick(number));
        // An aircraft has a hub for 10 minutes.
        for aircraft in 0..self.aircraft.len() {
            if self.aircraft[aircraft] == number && self.rng.random_bool(1.0 / 600.0) {
                self.aircraft[aircraft] = self.rng.random_range(0..self.grounds.len());
            }
        }
        let here = self.aircraft.iter().filter(|it| **it == number).count();
        self.grounds[number].statement.load = (here * 255 / CAPACITY).min(255) as u8;
        self.state(number);
    }

    fn state(&mut self, number: usize) {
        let mut random = [0; 64];
        self.rng.fill_bytes(&mut random);
        let (ground, now) = (&mut self.grounds[number], self.now);
        if !ground.is_dead {
            ground.directory.state(&ground.statement, now, random);
            self.flush(number);
        }
    }

    /// Sends everything that a ground has to say.
    fn flush(&mut self, number: usize) {
        for (to, side) in self.ends[number].clone() {
            if self.cut.contains(&ends_of(number, to, side)) {
                continue;
            }
            let (peer, ground) = (self.grounds[to].keys.1, &mut self.grounds[number]);
            let bytes = ground.directory.take((peer, side), self.now);
            ground.traffic.entry(self.now.as_secs()).or_default().0 += on_wire(bytes.len());
            self.send((number, to), side, &bytes);
        }
    }

    /// Writes to a stream, from which the other end reads at most 4 kB at once.
    fn send(&mut self, (from, to): (usize, usize), side: Side, bytes: &[u8]) {
        let (delay, age) = self.streams[&ends_of(from, to, side)];
        for bytes in bytes.chunks(MAX_READ_BYTES) {
            let event = Event::Arrive { to, from, side: other(side), age, bytes: bytes.to_vec() };
            self.push(self.now + delay, event);
        }
    }

    /// Writes `bytes` to each stream of a ground, whatever its directory has to say.
    pub fn write(&mut self, number: usize, bytes: &[u8]) {
        for (to, side) in self.ends[number].clone() {
            self.send((number, to), side, bytes);
        }
    }

    /// Changes a ground's statement.
    pub fn flip(&mut self, number: usize) {
        self.change = Some((number, BTreeMap::new()));
        let ground = &mut self.grounds[number];
        ground.statement.is_leaving = !ground.statement.is_leaving;
        self.state(number);
    }

    fn note_change(&mut self, at: usize) {
        let Some((changed, seen)) = &mut self.change else { return };
        let expected = self.grounds[*changed].statement.is_leaving;
        if seen.contains_key(&at) {
            return;
        }
        let key = self.grounds[*changed].keys.1;
        let found = self.grounds[at].directory.seen(self.now).into_iter().find(|it| it.key == key);
        if found.and_then(|it| it.statement).is_some_and(|(it, _)| it.is_leaving == expected) {
            seen.insert(at, self.now);
        }
    }

    /// Arrival of the last change at all who are at most two steps away.
    pub fn change(&self, number: usize) -> Change {
        let (_, seen) = self.change.as_ref().unwrap();
        let expected: Vec<_> =
            self.reach(number).into_iter().filter(|it| !self.grounds[*it].is_dead).collect();
        let missing = expected.iter().filter(|it| !seen.contains_key(it)).count();
        Change { arrived: seen.values().copied().collect(), missing }
    }

    fn neighbours(&self, of: usize) -> BTreeSet<usize> {
        self.ends[of].iter().map(|(to, _)| *to).collect()
    }

    /// Grounds that are at most two steps away, by one that lives.
    fn reach(&self, of: usize) -> BTreeSet<usize> {
        let near = self.neighbours(of);
        let relays = near.iter().filter(|it| !self.grounds[**it].is_dead);
        let far = relays.flat_map(|it| self.neighbours(*it));
        let mut all: BTreeSet<_> = far.chain(near.iter().copied()).collect();
        all.remove(&of);
        all
    }

    /// Returns `true` if the entry of `ground` comes to `at` without the help of `hostile`.
    pub fn has_other_way(&self, at: usize, ground: usize, hostile: usize) -> bool {
        let near = self.neighbours(at);
        near.contains(&ground)
            || self.neighbours(ground).iter().any(|it| *it != hostile && near.contains(it))
    }

    /// Grounds whose statement ground `at` has.
    pub fn known_at(&self, at: usize) -> BTreeMap<usize, Statement> {
        let numbers: BTreeMap<_, _> =
            self.grounds.iter().enumerate().map(|(n, it)| (it.keys.1, n)).collect();
        let seen = self.grounds[at].directory.seen(self.now);
        let known = seen
            .into_iter()
            .filter_map(|it| Some((*numbers.get(&it.key)?, it.statement?.0.clone())));
        known.collect()
    }

    /// Number of grounds at `at` that nobody in the fleet is.
    pub fn invented_at(&self, at: usize) -> usize {
        let real: BTreeSet<_> = self.grounds.iter().map(|it| it.keys.1).collect();
        self.grounds[at]
            .directory
            .seen(self.now)
            .iter()
            .filter(|it| !real.contains(&it.key))
            .count()
    }

    fn is_complete_but(&self, without: Option<usize>) -> bool {
        let is_out = |it: usize| Some(it) == without || self.grounds[it].is_dead;
        (0..self.grounds.len()).filter(|it| !is_out(*it)).all(|at| {
            let known = self.known_at(at);
            self.reach(at).into_iter().filter(|it| !is_out(*it)).all(|it| known.contains_key(&it))
        })
    }

    pub fn assert_complete(&self) {
        assert!(self.is_complete_but(None));
    }

    pub fn assert_complete_without(&self, number: usize) {
        assert!(self.is_complete_but(Some(number)));
    }

    /// Runs until everybody knows everybody, and returns how long that took.
    pub fn run_until_complete(&mut self, max: Duration) -> Duration {
        let began = self.now;
        while !self.is_complete_but(None) {
            assert!(self.now - began < max, "after {max:?} somebody is missing");
            self.run_until(self.now + Duration::from_millis(20));
        }
        self.now - began
    }

    pub fn cut(&mut self, is_cut: impl Fn(usize, usize) -> bool) {
        self.cut = self.streams.keys().copied().filter(|(a, b)| is_cut(*a, *b)).collect();
        for (a, b) in self.cut.clone() {
            self.disconnect(a, b);
        }
    }

    fn disconnect(&mut self, a: usize, b: usize) {
        let (of_a, of_b) = (self.grounds[a].keys.1, self.grounds[b].keys.1);
        self.grounds[a].directory.disconnect(of_b, Side::Ours);
        self.grounds[b].directory.disconnect(of_a, Side::Theirs);
    }

    pub fn heal(&mut self) {
        let cut = std::mem::take(&mut self.cut);
        self.connect_all(|a, b| cut.contains(&(a, b)));
    }

    /// Returns `true` if nobody knows a ground from the other side that is reached only through the cut.
    pub fn knows_nothing_across(&self, is_cut: impl Fn(usize, usize) -> bool) -> bool {
        (0..self.grounds.len()).all(|at| self.known_at(at).keys().all(|it| !is_cut(at, *it)))
    }

    /// Restarts a ground with an empty directory and versions after `version`.
    pub fn wipe(&mut self, number: usize, version: u64) {
        self.grounds[number].directory = directory(&self.streams, number, version);
        self.connect_all(|a, b| a == number || b == number);
        self.state(number);
    }

    pub fn kill(&mut self, number: usize) {
        self.grounds[number].is_dead = true;
        let of: Vec<_> =
            self.streams.keys().copied().filter(|(a, b)| *a == number || *b == number).collect();
        of.into_iter().for_each(|(a, b)| self.disconnect(a, b));
    }

    /// Number of living grounds that have a statement of ground `number`.
    pub fn knowers_of(&self, number: usize) -> usize {
        let living = (0..self.grounds.len()).filter(|it| !self.grounds[*it].is_dead);
        living.filter(|at| self.known_at(*at).contains_key(&number)).count()
    }

    /// Returns `true` if ground `at` has a stream to ground `to`.
    pub fn is_connected(&self, at: usize, to: usize) -> bool {
        let key = self.grounds[to].keys.1;
        let seen = self.grounds[at].directory.seen(self.now);
        seen.iter().any(|it| it.key == key && it.source == Source::Directly { is_connected: true })
    }

    pub fn forget_traffic(&mut self) {
        self.grounds.iter_mut().for_each(|it| it.traffic.clear());
    }

    /// Bits per second that a ground has sent, and received, in its busiest minute.
    pub fn busiest_minute(&self) -> (u64, u64) {
        let minute = |ground: &Ground, from: u64| {
            let seconds = ground.traffic.range(from..from + 60).map(|(_, it)| *it);
            seconds.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
        };
        let all = self
            .grounds
            .iter()
            .flat_map(|ground| ground.traffic.keys().map(|from| minute(ground, *from)));
        let most = all.fold((0, 0), |most, it| (most.0.max(it.0), most.1.max(it.1)));
        (most.0 * 8 / 60, most.1 * 8 / 60)
    }
}

fn on_wire(bytes: usize) -> u64 {
    (bytes + bytes.div_ceil(PACKET_BYTES) * HEADER_BYTES) as u64
}

fn directory(
    streams: &BTreeMap<(usize, usize), (Duration, u32)>,
    number: usize,
    version: u64,
) -> Directory {
    let ends = streams.keys().filter(|(a, b)| *a == number || *b == number);
    let peers: BTreeSet<_> = ends.map(|(a, b)| if *a == number { *b } else { *a }).collect();
    let peers: Vec<_> = peers.into_iter().map(|it| keys(it as u32).1).collect();
    Directory::new(keys(number as u32), &peers, version)
}
