//! One direction of a link in exact virtual time, with the datagrams on it.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use bentpipe_channel::{Counters, Direction, DirectionSpec, Fate, Packet};

use crate::record::Passage;

/// Receives every passage, as soon as its fate is known.
pub type Tap = Box<dyn FnMut(Passage) + Send>;

/// A direction and its datagrams: those in the queue under an AQM, and those in flight.
pub(crate) struct Way<T> {
    pub direction: Direction,
    waiting: BTreeMap<u64, (Packet, Duration, T)>,
    in_flight: BinaryHeap<Reverse<Arrival<T>>>,
    accepted: u64,
    tap: Option<Tap>,
}

struct Arrival<T> {
    at: Duration,
    order: u64,
    datagram: T,
    ce: bool,
}

impl<T> Way<T> {
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        Self {
            direction: Direction::new(spec, seed),
            waiting: BTreeMap::new(),
            in_flight: BinaryHeap::new(),
            accepted: 0,
            tap: None,
        }
    }

    /// Calls `tap` for every passage from now on.
    pub fn set_tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    pub fn counters(&self) -> Counters {
        self.direction.counters()
    }

    /// Offers a packet. `datagram` receives what is known of its fate, and returns the datagram.
    pub fn offer(&mut self, packet: Packet, now: Duration, datagram: impl FnOnce(Fate) -> T) {
        let waited = match &self.tap {
            Some(_) => self.direction.backlog(now),
            None => Duration::ZERO,
        };
        let (fate, ce) = self.direction.offer_packet(now, packet);
        let datagram = datagram(fate);
        match fate {
            Fate::Waiting(number) => {
                self.waiting.insert(number, (packet, now, datagram));
                self.settle(now);
            }
            fate => self.decided(packet, now, waited, (fate, ce), datagram),
        }
    }

    /// Next time at which something happens.
    pub fn next(&self) -> Option<Duration> {
        let arrival = self.in_flight.peek().map(|Reverse(arrival)| arrival.at);
        [arrival, self.direction.next_decision()].into_iter().flatten().min()
    }

    /// Next datagram that has arrived by `now`, and `true` if it carries a CE mark.
    pub fn arrive(&mut self, now: Duration) -> Option<(T, bool)> {
        self.settle(now);
        self.in_flight.peek().filter(|Reverse(arrival)| arrival.at <= now)?;
        self.in_flight.pop().map(|Reverse(Arrival { datagram, ce, .. })| (datagram, ce))
    }

    fn settle(&mut self, now: Duration) {
        while let Some(decision) = self.direction.decide(now) {
            if let Some((packet, came, datagram)) = self.waiting.remove(&decision.number) {
                let fate = (decision.fate, decision.marked);
                self.decided(packet, came, now.saturating_sub(came), fate, datagram);
            }
        }
    }

    fn decided(
        &mut self,
        packet: Packet,
        at: Duration,
        waited: Duration,
        (fate, ce): (Fate, bool),
        datagram: T,
    ) {
        if let Some(tap) = &mut self.tap {
            tap(Passage { flow: packet.flow, at, bytes: packet.bytes, waited, fate });
        }
        if let Fate::Delivered { at } = fate {
            self.accepted += 1;
            self.in_flight.push(Reverse(Arrival { at, order: self.accepted, datagram, ce }));
        }
    }
}

impl<T> PartialEq for Arrival<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Arrival<T> {}

impl<T> PartialOrd for Arrival<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Arrival<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Three packets at once over a link that sends one in a millisecond.
    fn run(queue: &str) -> (Vec<(Duration, u32)>, Vec<Passage>) {
        let spec = toml::from_str(&format!("rate = '8 Mbit/s'\ndelay = '10 ms'\n{queue}")).unwrap();
        let mut way = Way::new(&spec, 1);
        let seen: Arc<Mutex<Vec<Passage>>> = Arc::default();
        let tap = seen.clone();
        way.set_tap(Box::new(move |passage| tap.lock().push(passage)));
        for number in 0..3 {
            let packet = Packet { bytes: 1000, flow: 7, is_ect: false };
            way.offer(packet, ms(0), |_| number);
        }
        let mut arrived = Vec::new();
        while let Some(now) = way.next() {
            while let Some((number, ce)) = way.arrive(now) {
                assert!(!ce);
                arrived.push((now, number));
            }
        }
        let passages = seen.lock().clone();
        (arrived, passages)
    }

    #[test]
    fn both_kinds_of_queues_deliver_and_report_the_same() {
        let expected = [(ms(11), 0), (ms(12), 1), (ms(13), 2)];
        for queue in ["queue = '1 MB'", "queue = '1 MB'\naqm = { kind = 'codel' }"] {
            let (arrived, passages) = run(queue);
            assert_eq!(arrived, expected, "{queue}");
            assert_eq!(
                passages.iter().map(|one| one.waited).collect::<Vec<_>>(),
                [0, 1, 2].map(ms)
            );
            assert!(passages.iter().all(|one| one.flow == 7 && one.at == ms(0)));
        }
    }
}
