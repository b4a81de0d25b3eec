//! Direction of a link with its state.

use std::collections::VecDeque;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use bentpipe_units::{Ratio, Span};

use crate::aqm::Aqm;
use crate::bucket::{Policer, Shaper};
use crate::codel::Item;
use crate::counters::Counters;
use crate::draws::{Purpose, stream};
use crate::jitter::Jitter;
use crate::loss::{CLOCK_PACKET_BYTES, Loss, frame_loss};
use crate::outage::{OutagePolicy, Outages};
use crate::raw::Order;
use crate::reordering::Reordering;
use crate::sender::Sender;
use crate::series::{Varying, nanos};
use crate::spec::DirectionSpec;
use crate::transmission::Transmission;

/// Direction of a link: takes packets in order of time and returns the fate of each.
///
/// It stores no packets, and its memory does not grow with the traffic. Memory holds only series,
/// the outages that a full queue reaches into, and the sizes of packets that wait for granted
/// slots, in a shaper or under an AQM. The same spec, seed and packets give the same fates. Use
/// different seeds for the two directions of a link.
#[derive(Debug, Clone)]
pub struct Direction {
    policer: Option<Policer>,
    shaper: Option<Shaper>,
    aqm: Option<Managed>,
    sender: Sender,
    /// Outages that lose packets. Outages that hold packets belong to the sender.
    outages: Option<Outages>,
    loss: Loss,
    bit_errors: Option<(Varying<Ratio>, ChaCha8Rng)>,
    delay: Varying<Span>,
    jitter: Option<Jitter>,
    order: Order,
    reordering: Option<Reordering>,
    mark_above_bytes: Option<u64>,
    mtu_bytes: usize,
    now_ns: u64,
    last_arrival_ns: u64,
    counters: Counters,
}

/// Queue with an AQM, and the fates that it decided.
#[derive(Debug, Clone)]
struct Managed {
    queue: Aqm,
    next_id: u64,
    decided: VecDeque<Decision>,
}

/// Packet offered to a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// IP bytes.
    pub bytes: usize,
    /// Key of its flow, for example a hash of its addresses and ports. Only a fair queue uses it.
    pub flow: u64,
    /// `true` if it has ECT(0) or ECT(1) in its IP header.
    pub is_ect: bool,
}

/// Fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Arrives intact.
    Delivered {
        /// Arrival time of its last bit, on the clock of [`Direction::offer`].
        at: Duration,
    },
    /// Sent, but does not arrive.
    Lost,
    /// Not sent, because the queue is full or its AQM dropped the packet.
    QueueDropped,
    /// Not sent, because it exceeds the link's MTU.
    TooLong,
    /// Not sent, because it exceeds the policer's bucket.
    Policed,
    /// Waits in a queue with an AQM; [`Direction::decide`] returns its fate under this number.
    Waiting(u64),
}

/// Fate of a packet that had to wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Number from [`Fate::Waiting`].
    pub number: u64,
    /// Fate, never [`Fate::Waiting`].
    pub fate: Fate,
    /// `true` if the packet arrives marked Congestion Experienced.
    pub marked: bool,
}

impl Direction {
    /// Creates an idle direction at time zero.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let packet_time = spec.rate().map(|rate| rate.time_for(CLOCK_PACKET_BYTES));
        let lossy = spec.outages.as_ref().filter(|outages| outages.packets() == OutagePolicy::Lost);
        let any_errors = spec.ber.values().any(|ber| ber != Ratio::ZERO);
        let managed = spec.aqm.as_ref().zip(spec.queue_bytes).map(|(aqm, limit_bytes)| Managed {
            queue: Aqm::new(aqm, limit_bytes),
            next_id: 0,
            decided: VecDeque::new(),
        });
        Self {
            policer: spec.policer.as_ref().map(Policer::new),
            shaper: spec.shaper.as_ref().map(Shaper::new),
            aqm: managed,
            sender: Sender::new(spec, seed),
            outages: lossy.map(|outages| Outages::new(outages, seed)),
            loss: Loss::new(&spec.loss, packet_time, seed),
            bit_errors: any_errors.then(|| (spec.ber.clone(), stream(seed, Purpose::BitErrors))),
            delay: spec.delay.clone(),
            jitter: spec.jitter.map(|jitter| Jitter::new(jitter, seed)),
            order: spec.order,
            reordering: spec.reordering.map(|it| Reordering::new(it, seed)),
            mark_above_bytes: spec.mark_above_bytes,
            mtu_bytes: spec.mtu_bytes.unwrap_or(usize::MAX),
            now_ns: 0,
            last_arrival_ns: 0,
            counters: Counters::default(),
        }
    }

    /// Offers a packet of `bytes` IP bytes at `now`, the time since the run began.
    ///
    /// `now` must not go backwards. If it does, the time of the previous packet is used.
    pub fn offer(&mut self, now: Duration, bytes: usize) -> Fate {
        self.offer_packet(now, Packet { bytes, flow: 0, is_ect: false }).0
    }

    /// Offers a packet with ECT(0) or ECT(1) in its IP header. The second value is `true` if the
    /// packet arrives marked Congestion Experienced (RFC 3168 section 5), because it found more
    /// than the threshold queued.
    pub fn offer_ect(&mut self, now: Duration, bytes: usize) -> (Fate, bool) {
        self.offer_packet(now, Packet { bytes, flow: 0, is_ect: true })
    }

    /// Offers a packet, like [`Self::offer`] and [`Self::offer_ect`].
    pub fn offer_packet(&mut self, now: Duration, packet: Packet) -> (Fate, bool) {
        self.now_ns = self.now_ns.max(nanos(now));
        let bytes = packet.bytes;
        self.counters.offered.add(bytes);
        if bytes > self.mtu_bytes {
            self.counters.too_long.add(bytes);
            return (Fate::TooLong, false);
        }
        if self.policer.as_mut().is_some_and(|policer| !policer.admits(self.now_ns, bytes)) {
            self.counters.policed.add(bytes);
            return (Fate::Policed, false);
        }
        if self.aqm.is_some() {
            return (self.wait(packet), false);
        }
        let threshold = self.mark_above_bytes.filter(|_| packet.is_ect);
        let mark = threshold.is_some_and(|above| self.queued_bytes(now) > above);
        let Some(transmission) = self.transmit(bytes) else {
            self.counters.queue_dropped.add(bytes);
            return (Fate::QueueDropped, false);
        };
        self.fate(transmission, bytes, mark)
    }

    /// Next time at which [`Self::decide`] may return something; `None` while nothing waits under
    /// an AQM.
    pub fn next_decision(&self) -> Option<Duration> {
        let managed = self.aqm.as_ref()?;
        if !managed.decided.is_empty() {
            return Some(Duration::from_nanos(self.now_ns));
        }
        let came_ns = managed.queue.waits_since()?;
        Some(Duration::from_nanos(self.sender.finish_ns().max(came_ns)))
    }

    /// Next packet whose fate an AQM decided by `now`. Call it at [`Self::next_decision`], until it
    /// returns `None`.
    pub fn decide(&mut self, now: Duration) -> Option<Decision> {
        self.now_ns = self.now_ns.max(nanos(now));
        self.settle();
        self.aqm.as_mut()?.decided.pop_front()
    }

    /// Drops packets longer than `bytes` from now on, as after a route change; `None` removes the
    /// limit.
    pub fn set_mtu(&mut self, bytes: Option<usize>) {
        self.mtu_bytes = bytes.unwrap_or(usize::MAX);
    }

    /// Bytes accepted and not yet sent at `now`, including the rest of the packet being sent. With
    /// a shaper, including all of that packet.
    pub fn queued_bytes(&mut self, now: Duration) -> u64 {
        self.now_ns = self.now_ns.max(nanos(now));
        self.settle();
        if let Some(shaper) = &mut self.shaper {
            return shaper.queued_bytes(self.now_ns);
        }
        let waiting = self.aqm.as_ref().map_or(0, |managed| managed.queue.queued_bytes());
        waiting + self.sender.queued_bytes(self.now_ns)
    }

    /// Time from `now` until everything accepted is sent: the delay that a packet offered at `now`
    /// finds in front of it. Excludes bytes that wait under an AQM, which may be sent in any order.
    pub fn backlog(&mut self, now: Duration) -> Duration {
        self.now_ns = self.now_ns.max(nanos(now));
        self.settle();
        Duration::from_nanos(self.sender.finish_ns().saturating_sub(self.now_ns))
    }

    /// Counters of all packets offered so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Passes the packet through the shaper and the sender. `None` if a queue is full.
    fn transmit(&mut self, bytes: usize) -> Option<Transmission> {
        let Some(shaper) = &mut self.shaper else { return self.sender.offer(self.now_ns, bytes) };
        let transmission = self.sender.offer(shaper.offer(self.now_ns, bytes)?, bytes)?;
        shaper.sent(transmission.finish_ns, bytes);
        Some(transmission)
    }

    /// Queues the packet under the AQM.
    fn wait(&mut self, packet: Packet) -> Fate {
        self.settle();
        let Some(managed) = &mut self.aqm else { return Fate::QueueDropped };
        let id = managed.next_id;
        managed.next_id += 1;
        let Packet { bytes, flow, is_ect } = packet;
        let mut dropped = Vec::new();
        managed.queue.push(Item { id, bytes, is_ect, came_ns: self.now_ns }, flow, &mut dropped);
        self.dropped(&dropped);
        self.settle();
        Fate::Waiting(id)
    }

    /// Sends the packets that the AQM chooses whenever the sender is free, until now.
    fn settle(&mut self) {
        loop {
            let Some(managed) = &mut self.aqm else { return };
            let Some(came_ns) = managed.queue.waits_since() else { return };
            let free_ns = self.sender.finish_ns().max(came_ns);
            if free_ns > self.now_ns {
                return;
            }
            let mut dropped = Vec::new();
            let next = managed.queue.next(free_ns, &mut dropped);
            self.dropped(&dropped);
            let Some((item, marked)) = next else { continue };
            // The sender is idle, and an idle sender accepts any packet.
            let Some(transmission) = self.sender.offer(free_ns, item.bytes) else { return };
            let (fate, marked) = self.fate(transmission, item.bytes, marked);
            if let Some(managed) = &mut self.aqm {
                managed.decided.push_back(Decision { number: item.id, fate, marked });
            }
        }
    }

    fn dropped(&mut self, dropped: &[(u64, usize)]) {
        let Some(managed) = &mut self.aqm else { return };
        for (number, bytes) in dropped {
            self.counters.queue_dropped.add(*bytes);
            let fate = Fate::QueueDropped;
            managed.decided.push_back(Decision { number: *number, fate, marked: false });
        }
    }

    /// Fate of a packet that was sent, and `true` if it arrives with the mark it got.
    fn fate(&mut self, transmission: Transmission, bytes: usize, mark: bool) -> (Fate, bool) {
        // Jitter and reordering are drawn for lost packets too, and every cause of loss for every
        // packet. No cause then shifts the draws of another.
        let mut at_ns = self.arrival_ns(transmission.finish_ns);
        let late_ns = self.reordering.as_mut().map_or(0, Reordering::next_ns);
        if self.is_lost(transmission, bytes) {
            self.counters.lost.add(bytes);
            return (Fate::Lost, false);
        }
        self.counters.delivered.add(bytes);
        if mark {
            self.counters.marked.add(bytes);
        }
        if self.order == Order::Kept {
            at_ns = at_ns.max(self.last_arrival_ns);
            self.last_arrival_ns = at_ns;
        }
        let at = Duration::from_nanos(at_ns.saturating_add(late_ns));
        (Fate::Delivered { at }, mark)
    }

    fn is_lost(&mut self, transmission: Transmission, bytes: usize) -> bool {
        let in_outage = match &mut self.outages {
            Some(outages) => outages.overlaps(transmission.start_ns, transmission.finish_ns),
            None => false,
        };
        let dropped = self.loss.drops(transmission.start_ns);
        let damaged = match &mut self.bit_errors {
            Some((ber, rng)) => {
                rng.random::<f64>() < frame_loss(ber.at(transmission.start_ns).get(), bytes)
            }
            None => false,
        };
        in_outage || dropped || damaged
    }

    fn arrival_ns(&mut self, finish_ns: u64) -> u64 {
        let delay_ns = nanos(self.delay.at(finish_ns).duration());
        let jitter_ns = self.jitter.as_mut().map_or(0, |jitter| jitter.at(finish_ns));
        finish_ns.saturating_add(delay_ns).saturating_add(jitter_ns)
    }
}

#[cfg(test)]
#[path = "direction_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "stages_tests.rs"]
mod stages_tests;
