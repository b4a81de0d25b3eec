//! One direction of a link in motion.

use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use bentpipe_units::{Ratio, Span};

use crate::counters::Counters;
use crate::draws::{Purpose, stream};
use crate::jitter::Jitter;
use crate::loss::{CLOCK_PACKET_BYTES, Loss, frame_loss};
use crate::outage::{During, Outages};
use crate::sender::Sender;
use crate::sent::Sent;
use crate::series::{Varying, nanos};
use crate::spec::DirectionSpec;
use crate::written::Order;

/// One direction of a link: give it packets in order of time, and it says what becomes of each.
///
/// It stores no packets, and its memory does not grow with what passes: only a series, the outages
/// that a full queue reaches into, and the packets that wait for granted slots take room. The same
/// spec, seed and packets give the same fates. The two directions of a link want different seeds.
#[derive(Debug, Clone)]
pub struct Direction {
    sender: Sender,
    /// Outages that take packets; those that hold them are the sender's.
    outages: Option<Outages>,
    loss: Loss,
    bit_errors: Option<(Varying<Ratio>, ChaCha8Rng)>,
    delay: Varying<Span>,
    jitter: Option<Jitter>,
    order: Order,
    mark_above_bytes: Option<u64>,
    mtu_bytes: usize,
    now_ns: u64,
    last_arrival_ns: u64,
    counters: Counters,
}

/// Fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives, whole.
    Delivered {
        /// Arrival time of its last bit, on the clock of [`Direction::offer`].
        at: Duration,
    },
    /// It is sent and does not arrive.
    Lost,
    /// It is not sent: the queue is full.
    QueueDropped,
    /// It is not sent: it is longer than the link's MTU.
    TooLong,
}

impl Direction {
    /// A direction at rest, at time zero.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        let packet_time = spec.rate().map(|rate| rate.time_for(CLOCK_PACKET_BYTES));
        let lossy = spec.outages.as_ref().filter(|outages| outages.packets() == During::Lost);
        let any_errors = spec.ber.values().any(|ber| ber != Ratio::ZERO);
        Self {
            sender: Sender::new(spec, seed),
            outages: lossy.map(|outages| Outages::new(outages, seed)),
            loss: Loss::new(&spec.loss, packet_time, seed),
            bit_errors: any_errors.then(|| (spec.ber.clone(), stream(seed, Purpose::BitErrors))),
            delay: spec.delay.clone(),
            jitter: spec.jitter.map(|jitter| Jitter::new(jitter, seed)),
            order: spec.order,
            mark_above_bytes: spec.mark_above_bytes,
            mtu_bytes: spec.mtu_bytes.unwrap_or(usize::MAX),
            now_ns: 0,
            last_arrival_ns: 0,
            counters: Counters::default(),
        }
    }

    /// Offers a packet of `bytes` IP bytes at `now`, the time since the run began.
    ///
    /// `now` must not go backwards; where it does, the time of the packet before is taken.
    pub fn offer(&mut self, now: Duration, bytes: usize) -> Fate {
        self.now_ns = self.now_ns.max(nanos(now));
        self.counters.offered.add(bytes);
        if bytes > self.mtu_bytes {
            self.counters.too_long.add(bytes);
            return Fate::TooLong;
        }
        let Some(sent) = self.sender.offer(self.now_ns, bytes) else {
            self.counters.queue_dropped.add(bytes);
            return Fate::QueueDropped;
        };
        // Jitter is drawn for lost packets too, and every cause of loss for every packet, so that
        // none shifts the draws of another.
        let mut at_ns = self.arrival_ns(sent.finish_ns);
        if self.is_lost(sent, bytes) {
            self.counters.lost.add(bytes);
            return Fate::Lost;
        }
        self.counters.delivered.add(bytes);
        if self.order == Order::Kept {
            at_ns = at_ns.max(self.last_arrival_ns);
            self.last_arrival_ns = at_ns;
        }
        Fate::Delivered { at: Duration::from_nanos(at_ns) }
    }

    /// Offers a packet whose IP header says ECT(0) or ECT(1). The second value says whether it
    /// arrives with Congestion Experienced in its place (RFC 3168, section 5): whether it found
    /// more than the threshold queued.
    pub fn offer_ect(&mut self, now: Duration, bytes: usize) -> (Fate, bool) {
        let queued = self.queued_bytes(now);
        let fate = self.offer(now, bytes);
        let delivered = matches!(fate, Fate::Delivered { .. });
        let marked = delivered && self.mark_above_bytes.is_some_and(|above| queued > above);
        if marked {
            self.counters.marked.add(bytes);
        }
        (fate, marked)
    }

    /// From now on packets longer than `bytes` are dropped, as when a route changes; `None` for none.
    pub fn set_mtu(&mut self, bytes: Option<usize>) {
        self.mtu_bytes = bytes.unwrap_or(usize::MAX);
    }

    /// Bytes accepted and not yet sent at `now`, the rest of the packet being sent included.
    pub fn queued_bytes(&mut self, now: Duration) -> u64 {
        self.now_ns = self.now_ns.max(nanos(now));
        self.sender.queued_bytes(self.now_ns)
    }

    /// Counts of everything offered so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn is_lost(&mut self, sent: Sent, bytes: usize) -> bool {
        let in_outage = match &mut self.outages {
            Some(outages) => outages.touch(sent.start_ns, sent.finish_ns),
            None => false,
        };
        let taken = self.loss.takes(sent.start_ns);
        let damaged = match &mut self.bit_errors {
            Some((ber, rng)) => {
                rng.random::<f64>() < frame_loss(ber.at(sent.start_ns).get(), bytes)
            }
            None => false,
        };
        in_outage || taken || damaged
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
