//! Link in virtual time that pulls packets from a scheduler.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_schedule::{Class, ClassSettings, Handle, Limits, Passenger, Scheduler};
use bentpipe_units::BitRate;

/// Maximum packet size in bytes.
pub const PACKET: usize = 1500;

/// Deterministic pseudo-random numbers.
pub struct Noise(pub u64);

impl Noise {
    /// Returns a number in `from..=to`.
    pub fn within(&mut self, from: usize, to: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.0 >> 33) as usize % (to - from + 1)
    }
}

/// Arrival process of a flow.
pub enum Source {
    /// Always backlogged, with packet sizes in this range of bytes.
    Always(usize, usize),
    /// A packet of `bytes` every `interval`, the first at `next`.
    Every { interval: Duration, bytes: usize, next: Duration },
}

pub struct Flow {
    pub handle: Handle,
    pub class: Class,
    pub passenger: Passenger,
    pub source: Source,
    waiting: VecDeque<(Duration, usize)>,
}

/// Sent packet.
pub struct Sent {
    pub at: Duration,
    pub flow: usize,
    pub class: Class,
    pub passenger: Passenger,
    pub bytes: usize,
    /// Time from arrival to the start of transmission; `None` for a flow that is always backlogged.
    pub waited: Option<Duration>,
}

pub struct Link {
    pub scheduler: Scheduler,
    pub now: Duration,
    pub rate: BitRate,
    pub flows: Vec<Flow>,
    pub sent: Vec<Sent>,
    noise: Noise,
}

pub fn kbps(kbps: u64) -> BitRate {
    BitRate::from_bps(kbps * 1000)
}

impl Link {
    pub fn new(rate: BitRate, seed: u64) -> Self {
        let (scheduler, noise) = (Scheduler::new(), Noise(seed));
        Self { scheduler, now: Duration::ZERO, rate, flows: vec![], sent: vec![], noise }
    }

    /// Sets the limits of a class; `None` means unlimited.
    pub fn limit(&mut self, class: Class, rate: Option<BitRate>, ceil: Option<BitRate>) {
        let settings = ClassSettings { limits: Limits { rate, ceil }, ..ClassSettings::default() };
        self.scheduler.configure(class, settings, self.now);
    }

    pub fn add(&mut self, class: Class, passenger: Passenger, source: Source) -> usize {
        let id = self.flows.len();
        let handle = self.scheduler.add(id as u64, class, passenger);
        self.flows.push(Flow { handle, class, passenger, source, waiting: VecDeque::new() });
        id
    }

    /// Adds a flow that is always backlogged.
    pub fn add_bulk(&mut self, class: Class, passenger: Passenger) -> usize {
        self.add(class, passenger, Source::Always(PACKET, PACKET))
    }

    /// Ends the flow's traffic.
    pub fn stop(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        flow.source = Source::Every { interval: Duration::MAX, bytes: 0, next: Duration::MAX };
        flow.waiting.clear();
        self.scheduler.deactivate(flow.handle);
    }

    /// Runs the link until `until`.
    pub fn run(&mut self, until: Duration) {
        while self.now < until {
            let next_arrival = self.arrivals();
            if let Some(id) = self.scheduler.pick(self.now) {
                self.send(id as usize);
                continue;
            }
            let ready = self.scheduler.next_ready(self.now).unwrap_or(Duration::MAX);
            assert!(ready > self.now, "nothing is picked although its ceiling is open");
            self.now = next_arrival.min(ready).min(until);
        }
    }

    /// Send rate of `class` from `from` until now, in bit/s.
    pub fn rate_of(&self, class: Class, from: Duration) -> f64 {
        let bytes = self.bytes(from, |sent| sent.class == class);
        bytes as f64 * 8.0 / (self.now - from).as_secs_f64()
    }

    pub fn bytes(&self, from: Duration, which: impl Fn(&Sent) -> bool) -> usize {
        let since = |sent: &&Sent| sent.at >= from && which(sent);
        self.sent.iter().filter(since).map(|sent| sent.bytes).sum()
    }

    /// Waits of a flow's packets, the shortest first.
    pub fn waits(&self, flow: usize) -> Vec<Duration> {
        let sent = self.sent.iter().filter(|sent| sent.flow == flow);
        let mut waits: Vec<_> = sent.filter_map(|sent| sent.waited).collect();
        waits.sort();
        waits
    }

    /// Queues the packets that have arrived and returns the time of the next arrival.
    fn arrivals(&mut self) -> Duration {
        let mut first = Duration::MAX;
        for flow in &mut self.flows {
            match &mut flow.source {
                Source::Always(..) => self.scheduler.activate(flow.handle, self.now),
                Source::Every { interval, bytes, next } => {
                    while *next <= self.now {
                        flow.waiting.push_back((*next, *bytes));
                        self.scheduler.activate(flow.handle, *next);
                        *next = next.saturating_add(*interval);
                    }
                    first = first.min(*next);
                }
            }
        }
        first
    }

    fn send(&mut self, id: usize) {
        let flow = &mut self.flows[id];
        let (bytes, since) = match flow.source {
            Source::Always(from, to) => (self.noise.within(from, to), None),
            Source::Every { .. } => {
                let (since, bytes) = flow.waiting.pop_front().expect("an idle flow was picked");
                (bytes, Some(since))
            }
        };
        self.scheduler.spent(flow.handle, bytes, self.now);
        if since.is_some() && flow.waiting.is_empty() {
            self.scheduler.deactivate(flow.handle);
        }
        let (class, passenger) = (flow.class, flow.passenger);
        let waited = since.map(|since| self.now - since);
        self.sent.push(Sent { at: self.now, flow: id, class, passenger, bytes, waited });
        self.now += self.rate.time_for(bytes as u64);
    }
}
