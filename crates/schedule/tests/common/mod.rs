//! A link in virtual time that pulls packets out of a scheduler.

#![allow(dead_code)] // not every test needs all of it

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_schedule::{Class, ClassSettings, Handle, Limits, Passenger, Scheduler};
use bentpipe_units::BitRate;

/// The largest packet.
pub const PACKET: usize = 1500;

/// Numbers that look random and are the same in every run.
pub struct Noise(pub u64);

impl Noise {
    /// One of `from..=to`.
    pub fn within(&mut self, from: usize, to: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.0 >> 33) as usize % (to - from + 1)
    }
}

/// Times at which a flow has something to send.
pub enum Source {
    /// Always, in packets of so many bytes.
    Always(usize, usize),
    /// A packet of `bytes` every so often, the first at `next`.
    Every { interval: Duration, bytes: usize, next: Duration },
}

pub struct Flow {
    pub handle: Handle,
    pub class: Class,
    pub passenger: Passenger,
    pub source: Source,
    waiting: VecDeque<(Duration, usize)>,
}

/// A packet that left.
pub struct Sent {
    pub at: Duration,
    pub flow: usize,
    pub class: Class,
    pub passenger: Passenger,
    pub bytes: usize,
    /// From its arrival until it began to leave; nothing of a flow that always has something.
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

    /// Limits a class; `None` for no limit.
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

    /// A flow that always has something to send.
    pub fn add_bulk(&mut self, class: Class, passenger: Passenger) -> usize {
        self.add(class, passenger, Source::Always(PACKET, PACKET))
    }

    /// The flow has nothing more to send, ever.
    pub fn stop(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        flow.source = Source::Every { interval: Duration::MAX, bytes: 0, next: Duration::MAX };
        flow.waiting.clear();
        self.scheduler.deactivate(flow.handle);
    }

    /// Lets time pass until `until`.
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

    /// Rate of what left in `class` from `from` until now.
    pub fn rate_of(&self, class: Class, from: Duration) -> f64 {
        let bytes = self.bytes(from, |sent| sent.class == class);
        bytes as f64 * 8.0 / (self.now - from).as_secs_f64()
    }

    pub fn bytes(&self, from: Duration, which: impl Fn(&Sent) -> bool) -> usize {
        let since = |sent: &&Sent| sent.at >= from && which(sent);
        self.sent.iter().filter(since).map(|sent| sent.bytes).sum()
    }

    /// The waits of a flow's packets, the shortest first.
    pub fn waits(&self, flow: usize) -> Vec<Duration> {
        let of = self.sent.iter().filter(|sent| sent.flow == flow);
        let mut waits: Vec<_> = of.filter_map(|sent| sent.waited).collect();
        waits.sort();
        waits
    }

    /// Takes what has arrived; when the next packet does.
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
