//! Two ends over a pipe with loss, delay and pacing: a minimal model for the transport's own tests.
//! The lab has the real link model.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::OpenDatagrams;
use bentpipe_link::{
    AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, Read, Receive,
    SecretKey, Session, SessionId, Settings, Write,
};
use bentpipe_units::BitRate;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const AIR: &str = "198.18.0.1:40000";
pub const HUB: &str = "198.18.0.2:4500";

/// A datagram, its source, and whether it arrives marked.
type Arrival = (Vec<u8>, SocketAddr, bool);

/// One direction: Bernoulli loss, a serializing transmitter, a fixed delay.
pub struct Pipe {
    pub loss: f64,
    pub delay: Duration,
    pub rate: BitRate,
    pub cut: bool,
    /// Datagrams dropped on the path.
    pub drops: fn(&[u8]) -> bool,
    /// Times at which the first and the last data packet with each receiver index were offered.
    pub keys: BTreeMap<[u8; 4], (Duration, Duration)>,
    /// ECN-capable packets arrive marked.
    pub marks: bool,
    /// Longer IP packets are dropped.
    pub mtu_bytes: usize,
    free_at: Duration,
    in_flight: BTreeMap<(Duration, u64), Arrival>,
    count: u64,
    pub bytes: u64,
    pub packets: u64,
    /// The longest IP packet offered.
    pub longest: u64,
}

impl Pipe {
    fn new(loss: f64, rate: BitRate) -> Self {
        let delay = Duration::from_micros(380_500);
        let in_flight = BTreeMap::new();
        Self {
            loss,
            delay,
            rate,
            cut: false,
            drops: |_| false,
            keys: BTreeMap::new(),
            marks: false,
            mtu_bytes: usize::MAX,
            free_at: Duration::ZERO,
            in_flight,
            count: 0,
            bytes: 0,
            packets: 0,
            longest: 0,
        }
    }

    /// Length with outer headers of the family of `air`, the air's present address.
    fn offer(
        &mut self,
        (datagram, from, ect): Arrival,
        air: SocketAddr,
        now: Duration,
        rng: &mut ChaCha8Rng,
    ) {
        let bytes = datagram.len() as u64 + if air.is_ipv4() { 28 } else { 48 };
        self.longest = self.longest.max(bytes);
        if bytes > self.mtu_bytes as u64 || (self.drops)(&datagram) {
            return;
        }
        if let [0x40..=0x4f, a, b, c, d, ..] = datagram[..] {
            self.keys.entry([a, b, c, d]).or_insert((now, now)).1 = now;
        }
        self.bytes += bytes;
        self.packets += 1;
        self.free_at = self.free_at.max(now) + self.rate.time_for(bytes);
        self.count += 1;
        if !self.cut && !rng.random_bool(self.loss) {
            let arrival = (datagram, from, ect && self.marks);
            self.in_flight.insert((self.free_at + self.delay, self.count), arrival);
        }
    }

    fn next(&self) -> Option<Duration> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }

    fn deliver(&mut self, now: Duration) -> Option<Arrival> {
        let key = *self.in_flight.keys().next().filter(|(at, _)| *at <= now)?;
        self.in_flight.remove(&key)
    }
}

/// An air and a hub, and the behaviour of the hub's flows: echo, sink or serve.
pub struct Pair {
    pub now: Duration,
    pub air: AirCore,
    pub hub: HubCore,
    pub up: Pipe,
    pub down: Pipe,
    pub air_address: SocketAddr,
    pub opened: Vec<(SessionId, u64)>,
    /// Classes of all flows reported to the hub.
    pub classes: Vec<Class>,
    pub settings: Settings,
    pub secrets: (SecretKey, SecretKey),
    rng: ChaCha8Rng,
}

impl Pair {
    pub fn new(seed: u64, loss: f64) -> Self {
        let rate = BitRate::from_bps(1_890_000);
        Self::with(seed, loss, Settings { rate, ..Settings::default() })
    }

    pub fn with(seed: u64, loss: f64, settings: Settings) -> Self {
        Self::with_rates(seed, loss, settings.clone(), settings)
    }

    /// Creates ends with different settings, and so pipes of different rates.
    pub fn with_rates(seed: u64, loss: f64, settings: Settings, hubs: Settings) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let rate = settings.rate;
        // Outages of these tests may be longer than the default session lifetime.
        let hubs = Settings { session_lifetime: Duration::from_secs(86_400), ..hubs };
        Self {
            now: Duration::ZERO,
            air: new_air(&air, &hub, &settings, 1, rng.random()),
            hub: new_hub(&air, &hub, &hubs, rng.random()),
            up: Pipe::new(loss, rate),
            down: Pipe::new(loss, hubs.rate),
            air_address: AIR.parse().unwrap(),
            opened: Vec::new(),
            classes: Vec::new(),
            settings,
            secrets: (air, hub),
            rng,
        }
    }

    /// Restarts the air's process with the same key.
    pub fn restart_air(&mut self) {
        let seed = self.rng.random();
        self.air = new_air(&self.secrets.0, &self.secrets.1, &self.settings, 1_000_000, seed);
    }

    /// Restarts the hub's process with the same key.
    pub fn restart_hub(&mut self) {
        let seed = self.rng.random();
        self.hub = new_hub(&self.secrets.0, &self.secrets.1, &self.settings, seed);
    }

    /// Handles everything that is due now.
    pub fn work(&mut self) {
        while let Some((datagram, from, ce)) = self.up.deliver(self.now) {
            self.hub.handle_datagram(&datagram, from, ce, self.now);
        }
        while let Some((datagram, from, ce)) = self.down.deliver(self.now) {
            self.air.handle_datagram(&datagram, from, ce, self.now);
        }
        self.air.handle_timeout(self.now);
        self.hub.handle_timeout(self.now);
        self.note_opened();
        self.flush();
    }

    /// Advances the time to the next event.
    pub fn advance(&mut self) {
        self.flush();
        let due = [self.air.next_timeout(self.now), self.hub.next_timeout(self.now)];
        let deliveries = [self.up.next(), self.down.next()];
        let next = due.into_iter().chain(deliveries.into_iter().flatten()).min().unwrap();
        self.now = next.max(self.now + Duration::from_nanos(1));
    }

    pub fn flush(&mut self) {
        let mut datagram = Vec::new();
        while self.air.transmit(self.now, &mut datagram).is_some() {
            let arrival = (std::mem::take(&mut datagram), self.air_address, self.air.is_ect());
            self.up.offer(arrival, self.air_address, self.now, &mut self.rng);
        }
        while let Some(to) = self.hub.transmit(self.now, &mut datagram) {
            let datagram = std::mem::take(&mut datagram);
            if to == self.air_address {
                let arrival = (datagram, HUB.parse().unwrap(), self.hub.is_ect());
                self.down.offer(arrival, self.air_address, self.now, &mut self.rng);
            }
        }
    }

    pub fn note_opened(&mut self) {
        while let Some((session, event)) = self.hub.next_event() {
            let (flow, class) = match event {
                FlowEvent::Opened { flow, class, .. } => (flow, class),
                FlowEvent::OpenedDatagrams { flow, open } => (flow, open.class),
                FlowEvent::Wake(_) => continue,
            };
            self.opened.push((session, flow));
            self.classes.push(class);
        }
        while self.air.next_event().is_some() {}
    }

    pub fn run_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) {
        let end = self.now + limit;
        loop {
            self.work();
            if done(self) {
                return;
            }
            assert!(self.now < end, "{what} did not happen within {limit:?}");
            self.advance();
        }
    }

    /// Runs for `span`, and calls `each` after every event.
    pub fn run_for(&mut self, span: Duration, mut each: impl FnMut(&mut Self)) {
        let end = self.now + span;
        while self.now < end {
            self.work();
            each(self);
            self.advance();
        }
    }

    pub fn connect(&mut self) {
        self.run_until("the session", Duration::from_secs(60), |pair| {
            pair.air.current().is_some() && pair.hub.sessions().count() == 1
        });
    }

    /// Opens a flow from the air with its first bytes.
    pub fn open(&mut self, first: &[u8]) -> (SessionId, u64) {
        let target = "origin.example:80".parse().unwrap();
        let opened = self.air.open(&target, bentpipe_link::Class::BestEffort, 1, first, self.now);
        let (flow, taken) = opened.unwrap();
        assert_eq!(taken, first.len());
        flow
    }

    /// Opens a flow of datagrams from the air.
    pub fn open_datagrams(&mut self) -> (SessionId, u64) {
        let open = OpenDatagrams {
            target: "192.0.2.7:443".parse().unwrap(),
            protocol: 17,
            source: 50_000,
            class: Class::BestEffort,
            passenger: 1,
        };
        self.air.open_datagrams(&open, self.now).unwrap()
    }

    /// Waits until the hub is told of its next flow.
    pub fn accept(&mut self) -> (SessionId, u64) {
        self.run_until("an opening", Duration::from_secs(60), |pair| !pair.opened.is_empty());
        self.opened.remove(0)
    }
}

fn new_air(
    air: &SecretKey,
    hub: &SecretKey,
    settings: &Settings,
    first_counter: u64,
    seed: [u8; 32],
) -> AirCore {
    let address = HUB.parse().unwrap();
    let config = AirConfig {
        secret: air.clone(),
        hub: hub.public(),
        address,
        settings: settings.clone(),
        first_counter,
    };
    AirCore::new(config, seed)
}

fn new_hub(air: &SecretKey, hub: &SecretKey, settings: &Settings, seed: [u8; 32]) -> HubCore {
    let aircraft = vec![Aircraft {
        key: air.public(),
        settings: settings.clone(),
        highest_class: Class::BestEffort,
    }];
    HubCore::new(HubConfig { secret: hub.clone(), aircraft }, seed)
}

/// Returns `len` bytes without short-range repetition.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Fetches `len` bytes with a small request. Returns the time it took.
pub fn fetch(pair: &mut Pair, len: usize) -> Duration {
    let start = pair.now;
    let flow = pair.open(b"GET");
    pair.flush();
    let far = pair.accept();
    let (body, mut sent, mut got) = (bytes(len), 0, Vec::new());
    pair.run_until("the answer", Duration::from_secs(600), |pair| {
        write_all(&mut pair.hub, far, pair.now, &body, &mut sent);
        pair.flush();
        read_all(&mut pair.air, flow, pair.now, &mut got)
    });
    assert!(got == body, "the received bytes differ from those sent");
    let mut request = Vec::new();
    read_all(&mut pair.hub, far, pair.now, &mut request);
    assert_eq!(request, b"GET");
    pair.air.session(flow.0).unwrap().release(flow.1);
    pair.hub.session(far.0).unwrap().release(far.1);
    pair.now - start
}

/// Reads everything available. Returns `true` if the peer has finished.
pub fn read_all(
    core: &mut impl Core<Session = Session>,
    (session, flow): (SessionId, u64),
    now: Duration,
    out: &mut Vec<u8>,
) -> bool {
    let Some(session) = core.session(session) else { return false };
    let mut buffer = [0; 4096];
    loop {
        match session.read(flow, &mut buffer, now) {
            Read::Taken(n) => out.extend_from_slice(&buffer[..n]),
            Read::Blocked => return false,
            Read::Finished => return true,
            Read::Reset(code) => panic!("reset: {code:?}"),
        }
    }
}

/// Writes as much of `data[*at..]` as there is room for, and finishes at the end.
pub fn write_all(
    core: &mut impl Core<Session = Session>,
    (session, flow): (SessionId, u64),
    now: Duration,
    data: &[u8],
    at: &mut usize,
) {
    let Some(session) = core.session(session) else { return };
    while *at < data.len() {
        match session.write(flow, &data[*at..], now) {
            Write::Taken(n) => *at += n,
            Write::Blocked => return,
            other => panic!("{other:?}"),
        }
    }
    session.finish(flow);
}

/// Takes every datagram that waits.
pub fn receive_all(
    core: &mut impl Core<Session = Session>,
    (session, flow): (SessionId, u64),
    now: Duration,
) -> Vec<Vec<u8>> {
    let Some(session) = core.session(session) else { return Vec::new() };
    let next = || match session.receive_datagram(flow, now) {
        Receive::Taken(payload) => Some(payload.to_vec()),
        Receive::Blocked | Receive::Reset(_) => None,
    };
    std::iter::from_fn(next).collect()
}
