//! Queue and sender: computes when a packet leaves, or that the queue is full.

use crate::capacity::{Capacity, Work, bytes, work};
use crate::outage::{Interval, OutagePolicy, Outages};
use crate::slots::Demand;
use crate::spec::DirectionSpec;
use crate::transmission::Transmission;

/// Kinds of senders.
#[derive(Debug, Clone)]
pub(crate) enum Sender {
    /// Sends immediately.
    Unlimited,
    /// Sends at a rate.
    Paced(Box<Paced>),
    /// Sends in slots granted on request.
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
        let stalls =
            spec.outages.as_ref().filter(|outages| outages.packets() == OutagePolicy::Held);
        let stalls = stalls.map(|outages| Outages::new(outages, seed));
        Self::Paced(Box::new(Paced::new(Capacity::new(rate), stalls, limit_bytes)))
    }

    /// Queues a packet offered at `now_ns` and returns its times; `None` if the queue is full.
    pub fn offer(&mut self, now_ns: u64, bytes: usize) -> Option<Transmission> {
        match self {
            Self::Unlimited => Some(Transmission { start_ns: now_ns, finish_ns: now_ns }),
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

    /// Time at which the last accepted packet is sent; zero if none was accepted.
    pub fn finish_ns(&self) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Paced(paced) => paced.finish_ns,
            Self::Demand(demand) => demand.finish_ns(),
        }
    }
}

/// Sender with a rate.
///
/// It stores no packets: the queue is the excess of committed work over the work that could be done
/// by now. Work is counted in the time outside outages. Time in an outage during which the sender
/// pauses does not count.
#[derive(Debug, Clone)]
pub(crate) struct Paced {
    capacity: Capacity,
    stalls: Option<Outages>,
    limit_bytes: u64,
    /// Work after which the last accepted packet is sent.
    committed: Work,
    /// Time at which the last accepted packet is sent.
    finish_ns: u64,
    /// Capacity that passed unused in outages that ended by the last offer.
    idle_now: Work,
    /// Capacity that passes unused in outages that begin before `finish_ns`, of which `ahead` have
    /// not ended.
    idle_finish: Work,
    ahead: usize,
}

impl Paced {
    fn new(capacity: Capacity, stalls: Option<Outages>, limit_bytes: u64) -> Self {
        Self {
            capacity,
            stalls,
            limit_bytes,
            committed: 0,
            finish_ns: 0,
            idle_now: 0,
            idle_finish: 0,
            ahead: 0,
        }
    }

    fn offer(&mut self, now_ns: u64, packet_bytes: usize) -> Option<Transmission> {
        let done = self.done(now_ns);
        let queued = bytes(self.committed.saturating_sub(done));
        let full = queued.saturating_add(packet_bytes as u64) > self.limit_bytes;
        // An idle sender accepts any packet; only waiting packets need room.
        if full && queued > 0 {
            return None;
        }
        let start_ns = self.finish_ns.max(now_ns);
        self.committed = self.committed.max(done) + work(packet_bytes as u64);
        self.finish_ns = self.committed_finish_ns().max(start_ns);
        Some(Transmission { start_ns, finish_ns: self.finish_ns })
    }

    fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        bytes(self.committed.saturating_sub(self.done(now_ns)))
    }

    /// Work that can be done by `now_ns`.
    fn done(&mut self, now_ns: u64) -> Work {
        let Some(stalls) = &mut self.stalls else { return self.capacity.until(now_ns) };
        while let Some(ended) = stalls.pop_ended(now_ns) {
            let idle = idle(&self.capacity, ended);
            self.idle_now += idle;
            match self.ahead.checked_sub(1) {
                Some(ahead) => self.ahead = ahead,
                None => self.idle_finish += idle,
            }
        }
        let paused_ns = stalls.get(0).map_or(now_ns, |outage| outage.start_ns.min(now_ns));
        self.capacity.until(paused_ns) - self.idle_now
    }

    /// Time at which the committed work is done.
    fn committed_finish_ns(&mut self) -> u64 {
        loop {
            let finish_ns = self.capacity.when(self.committed + self.idle_finish);
            let next = self.stalls.as_mut().and_then(|stalls| stalls.get(self.ahead));
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
