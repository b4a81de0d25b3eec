//! The queue and the sender behind it: when a packet leaves, or that it found no room.

use crate::capacity::{Capacity, Work, bytes, work};
use crate::outage::{During, Interval, Outages};
use crate::sent::Sent;
use crate::slots::Demand;
use crate::spec::DirectionSpec;

/// The ways to send.
#[derive(Debug, Clone)]
pub(crate) enum Sender {
    /// At once.
    Unlimited,
    /// At a rate.
    Paced(Box<Paced>),
    /// In slots granted on request.
    Demand(Box<Demand>),
}

impl Sender {
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let (Some(rate), Some(limit_bytes)) = (&spec.rate, spec.queue_bytes) else {
            return Self::Unlimited;
        };
        if let Some(demand) = &spec.demand {
            let rate_bps = rate.at(0).bps();
            return Self::Demand(Box::new(Demand::new(demand, rate_bps, limit_bytes)));
        }
        let held = spec.outages.as_ref().filter(|outages| outages.packets() == During::Held);
        let held = held.map(|outages| Outages::new(outages, seed));
        Self::Paced(Box::new(Paced::new(Capacity::new(rate), held, limit_bytes)))
    }

    /// Queues a packet offered at `now_ns` and returns its times; `None` if the queue is full.
    pub fn offer(&mut self, now_ns: u64, bytes: usize) -> Option<Sent> {
        match self {
            Self::Unlimited => Some(Sent { start_ns: now_ns, finish_ns: now_ns }),
            Self::Paced(paced) => paced.offer(now_ns, bytes),
            Self::Demand(demand) => demand.offer(now_ns, bytes),
        }
    }

    /// Bytes accepted and not yet sent.
    pub fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Paced(paced) => paced.queued_bytes(now_ns),
            Self::Demand(demand) => demand.queued_bytes(now_ns),
        }
    }
}

/// A sender with a rate.
///
/// It stores no packets: the queue is how much more work was promised than could be done by now.
/// Work is counted in the time outside outages, so that one during which the sender holds still
/// is time that does not pass.
#[derive(Debug, Clone)]
pub(crate) struct Paced {
    capacity: Capacity,
    held: Option<Outages>,
    limit_bytes: u64,
    /// The work by which the last accepted packet is sent.
    promised: Work,
    /// Time at which its sending ends.
    finish_ns: u64,
    /// The capacity that passed unused in held outages: those that ended by the last offer…
    idle_now: Work,
    /// …and those that begin before `finish_ns`, of which `ahead` have not ended.
    idle_finish: Work,
    ahead: usize,
}

impl Paced {
    fn new(capacity: Capacity, held: Option<Outages>, limit_bytes: u64) -> Self {
        Self {
            capacity,
            held,
            limit_bytes,
            promised: 0,
            finish_ns: 0,
            idle_now: 0,
            idle_finish: 0,
            ahead: 0,
        }
    }

    fn offer(&mut self, now_ns: u64, packet_bytes: usize) -> Option<Sent> {
        let done = self.done(now_ns);
        let queued = bytes(self.promised.saturating_sub(done));
        let full = queued.saturating_add(packet_bytes as u64) > self.limit_bytes;
        // A sender at rest takes any packet: the queue is for those that must wait.
        if full && queued > 0 {
            return None;
        }
        let start_ns = self.finish_ns.max(now_ns);
        self.promised = self.promised.max(done) + work(packet_bytes as u64);
        self.finish_ns = self.when_promised().max(start_ns);
        Some(Sent { start_ns, finish_ns: self.finish_ns })
    }

    fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        bytes(self.promised.saturating_sub(self.done(now_ns)))
    }

    /// The work that can have been done by `now_ns`.
    fn done(&mut self, now_ns: u64) -> Work {
        let Some(held) = &mut self.held else { return self.capacity.until(now_ns) };
        while let Some(ended) = held.pop_ended(now_ns) {
            let idle = idle(&self.capacity, ended);
            self.idle_now += idle;
            match self.ahead.checked_sub(1) {
                Some(ahead) => self.ahead = ahead,
                None => self.idle_finish += idle,
            }
        }
        let stopped_ns = held.get(0).map_or(now_ns, |outage| outage.start_ns.min(now_ns));
        self.capacity.until(stopped_ns) - self.idle_now
    }

    /// Time at which the work promised so far is done.
    fn when_promised(&mut self) -> u64 {
        loop {
            let finish_ns = self.capacity.when(self.promised + self.idle_finish);
            let next = self.held.as_mut().and_then(|held| held.get(self.ahead));
            match next.filter(|outage| outage.start_ns < finish_ns) {
                None => return finish_ns,
                Some(outage) => {
                    self.idle_finish += idle(&self.capacity, outage);
                    self.ahead += 1;
                }
            }
        }
    }
}

fn idle(capacity: &Capacity, outage: Interval) -> Work {
    capacity.until(outage.end_ns) - capacity.until(outage.start_ns)
}
