//! Datagram queue of one flow, in order, with CoDel and a lifetime.

use std::collections::VecDeque;
use std::time::Duration;

use crate::codel::{Codel, Params};

/// Reason for dropping a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Older than the lifetime of its class.
    Expired,
    /// The queue exceeded its target for too long (RFC 8289).
    Standing,
    /// The class exceeded its memory limit, and this was the largest flow of the passenger with the
    /// most queued bytes.
    Overflow,
}

/// Datagram that was dropped from a queue.
#[derive(Debug, PartialEq, Eq)]
pub struct Dropped<T> {
    /// The queued item.
    pub item: T,
    /// Size it was queued with.
    pub bytes: usize,
    /// Reason for the drop.
    pub reason: DropReason,
}

/// Datagram whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Popped<T> {
    /// The queued item.
    pub item: T,
    /// Size it was queued with.
    pub bytes: usize,
    /// Time in the queue.
    pub waited: Duration,
}

/// Items for which an empty queue keeps room: some 2 KiB.
const RETAINED_CAPACITY: usize = 32;

/// Datagrams of one flow, first in, first out. Drops are passed to the caller's `dropped`, one at a
/// time.
///
/// The caller bounds its size: see [`Scheduler::drop_victim`](crate::Scheduler::drop_victim). An
/// empty queue keeps room for 32 items. A steady flow therefore allocates nothing, and one flood
/// does not hold memory for ever.
#[derive(Debug)]
pub struct DatagramQueue<T> {
    items: VecDeque<Queued<T>>,
    bytes: u64,
    codel: Codel,
    /// `true` if CoDel let the head pass. It judges each datagram once.
    head_passed: bool,
}

#[derive(Debug)]
struct Queued<T> {
    item: T,
    bytes: usize,
    at: Duration,
}

impl<T> Default for DatagramQueue<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0, codel: Codel::default(), head_passed: false }
    }
}

impl<T> DatagramQueue<T> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues an `item` of size `bytes`.
    pub fn push(&mut self, item: T, bytes: usize, now: Duration) {
        self.items.push_back(Queued { item, bytes, at: now });
        self.bytes += bytes as u64;
    }

    /// Drops datagrams that are not worth sending and returns the size of the next one.
    /// [`pop`](Self::pop) with the same time and parameters returns that datagram.
    pub fn ready(
        &mut self,
        now: Duration,
        params: &Params,
        mut dropped: impl FnMut(Dropped<T>),
    ) -> Option<usize> {
        loop {
            let Some(head) = self.items.front() else {
                self.codel.emptied();
                return None;
            };
            let (bytes, waited) = (head.bytes, now.saturating_sub(head.at));
            let reason = if waited > params.lifetime() {
                DropReason::Expired
            } else if self.head_passed {
                return Some(bytes);
            } else if self.codel.drops(waited, self.bytes - bytes as u64, now, params) {
                DropReason::Standing
            } else {
                self.head_passed = true;
                return Some(bytes);
            };
            if let Some(Queued { item, bytes, .. }) = self.take_head() {
                dropped(Dropped { item, bytes, reason });
            }
        }
    }

    /// Takes the next datagram worth sending.
    pub fn pop(
        &mut self,
        now: Duration,
        params: &Params,
        dropped: impl FnMut(Dropped<T>),
    ) -> Option<Popped<T>> {
        self.ready(now, params, dropped)?;
        let Queued { item, bytes, at } = self.take_head()?;
        Some(Popped { item, bytes, waited: now.saturating_sub(at) })
    }

    /// Drops the oldest datagram to free memory.
    pub fn drop_head(&mut self) -> Option<Dropped<T>> {
        let Queued { item, bytes, .. } = self.take_head()?;
        Some(Dropped { item, bytes, reason: DropReason::Overflow })
    }

    /// Time at which the oldest datagram, if any, exceeds `lifetime`.
    pub fn expires_at(&self, lifetime: Duration) -> Option<Duration> {
        self.items.front().map(|head| head.at.saturating_add(lifetime))
    }

    /// Number of queued datagrams.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns `true` if no datagram is queued.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Total size of the queued datagrams.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn take_head(&mut self) -> Option<Queued<T>> {
        let head = self.items.pop_front()?;
        self.bytes -= head.bytes as u64;
        self.head_passed = false;
        if self.items.is_empty() {
            self.items.shrink_to(RETAINED_CAPACITY);
        }
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: Duration = Duration::from_millis(600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn params(lifetime: Duration) -> Params {
        Params::new(RTT, None, 1500, lifetime)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn items_leave_in_order_and_every_drop_is_reported(
            steps in proptest::collection::vec((0u64..200, 1usize..1500, 0u8..4), 1..200),
            lifetime_ms in 50u64..5000,
        ) {
            let (mut queue, params) = (DatagramQueue::new(), params(ms(lifetime_ms)));
            let (mut now, mut pushed, mut removed, mut bytes) = (0, 0, Vec::new(), 0);
            for (pause_ms, size, what) in steps {
                now += pause_ms;
                if what > 0 {
                    queue.push(pushed, size, ms(now));
                    pushed += 1;
                    bytes += size as u64;
                    continue;
                }
                let mut removed_bytes = 0;
                let popped = queue.pop(ms(now), &params, |dropped| {
                    removed.push(dropped.item);
                    removed_bytes += dropped.bytes as u64;
                });
                if let Some(popped) = popped {
                    prop_assert!(popped.waited <= ms(lifetime_ms));
                    removed.push(popped.item);
                    removed_bytes += popped.bytes as u64;
                }
                bytes -= removed_bytes;
                prop_assert_eq!(queue.bytes(), bytes);
                prop_assert_eq!(queue.len(), pushed - removed.len());
            }
            prop_assert!(removed.iter().copied().eq(0..removed.len()));
        }
    }

    #[test]
    fn ready_announces_what_pop_returns() {
        let (mut queue, params) = (DatagramQueue::new(), params(ms(5000)));
        let (mut dropped, mut announced) = (0, 0);
        for at in 0..4000 {
            queue.push(at, 1200, ms(at));
            if at % 2 == 0 {
                continue;
            }
            for _ in 0..3 {
                announced = queue.ready(ms(at), &params, |_| dropped += 1).unwrap();
            }
            let before = dropped;
            assert_eq!(queue.pop(ms(at), &params, |_| dropped += 1).unwrap().bytes, announced);
            assert_eq!(dropped, before, "judged twice");
        }
        assert!(dropped > 0);
    }

    #[test]
    fn an_empty_queue_releases_the_memory_of_a_flood() {
        let (mut queue, params) = (DatagramQueue::new(), params(ms(5000)));
        for _ in 0..100_000 {
            queue.push((), 64, ms(0));
        }
        while queue.drop_head().is_some() {}
        assert!(queue.items.capacity() <= 2 * RETAINED_CAPACITY, "{}", queue.items.capacity());
        let retained = queue.items.capacity();
        for at in 0..1000 {
            queue.push((), 64, ms(at));
            queue.pop(ms(at), &params, |_| ()).unwrap();
        }
        assert_eq!(queue.items.capacity(), retained, "a steady flow allocates nothing");
    }

    #[test]
    fn a_responsive_sender_at_twice_the_rate_settles_near_the_target() {
        // The sender learns of a drop one round trip later. It cuts its rate by 30 % once per round
        // trip (as CUBIC does) and raises it over time. One datagram leaves per tick.
        let (mut queue, params) = (DatagramQueue::new(), params(ms(5000)));
        let (mut per_tick, mut credit, mut waits) = (2.0f64, 0.0, Vec::new());
        let (mut reacts_at, mut ignores_until) = (None, 0);
        for at in 0..60_000 {
            credit += per_tick;
            while credit >= 1.0 {
                queue.push((), 1250, ms(at));
                credit -= 1.0;
            }
            let mut drops = 0;
            let popped = queue.pop(ms(at), &params, |_| drops += 1);
            if drops > 0 && at >= ignores_until {
                (reacts_at, ignores_until) = (Some(at + 600), at + 1200);
            }
            per_tick += 0.02 / 600.0;
            if reacts_at == Some(at) {
                per_tick *= 0.7;
            }
            if at > 20_000 {
                waits.extend(popped.map(|popped| popped.waited));
            }
        }
        waits.sort();
        let median = waits[waits.len() / 2];
        assert!(median <= 2 * params.target(), "{median:?}");
        assert!(waits.len() > 34_000, "{} of 40,000 turns were used", waits.len());
    }

    #[test]
    fn expired_datagrams_are_dropped_and_overflow_drops_the_head() {
        let (mut queue, params) = (DatagramQueue::new(), params(ms(200)));
        for (item, at) in [('a', 0), ('b', 100), ('c', 300), ('d', 310)] {
            queue.push(item, 100, ms(at));
        }
        assert_eq!(queue.expires_at(ms(200)), Some(ms(200)));
        let mut reasons = Vec::new();
        let popped =
            queue.pop(ms(301), &params, |dropped| reasons.push((dropped.item, dropped.reason)));
        assert_eq!(reasons, [('a', DropReason::Expired), ('b', DropReason::Expired)]);
        assert_eq!(popped, Some(Popped { item: 'c', bytes: 100, waited: ms(1) }));
        let dropped = Dropped { item: 'd', bytes: 100, reason: DropReason::Overflow };
        assert_eq!(queue.drop_head(), Some(dropped));
        assert_eq!(queue.pop(ms(400), &params, |_| ()), None);
        assert_eq!((queue.len(), queue.bytes(), queue.is_empty()), (0, 0, true));
    }
}
