//! Datagrams that overtook the opening of their flow.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::queues::DATAGRAM_COST_BYTES;

/// Memory of all of them: half a second of 4 Mbit/s.
const MOST_BYTES: usize = 256 << 10;
/// Maximum wait for an opening: a lost one arrives a round trip or two later.
const PATIENCE: Duration = Duration::from_secs(3);

/// Those that wait; the oldest give way. All is found by flow or by age, however many wait.
#[derive(Debug, Default)]
pub struct Early {
    /// By flow, and in the order in which they came.
    waiting: BTreeMap<(u64, u64), (Bytes, Duration)>,
    /// In that order: whose each is.
    order: BTreeMap<u64, u64>,
    next: u64,
    bytes: usize,
    gone: u64,
}

impl Early {
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Number of all so far that gave way, or whose opening never came.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Keeps one.
    pub fn keep(&mut self, flow: u64, payload: Bytes, now: Duration) {
        self.bytes += payload.len() + DATAGRAM_COST_BYTES;
        self.waiting.insert((flow, self.next), (payload, now));
        self.order.insert(self.next, flow);
        self.next += 1;
        self.give_up(now);
    }

    /// Returns `true` if any waits for `flow`.
    pub fn waits_for(&mut self, flow: u64, now: Duration) -> bool {
        self.give_up(now);
        self.waiting.range((flow, 0)..=(flow, u64::MAX)).next().is_some()
    }

    /// Those of `flow`, in the order in which they came.
    pub fn take(&mut self, flow: u64, now: Duration) -> Vec<Bytes> {
        self.give_up(now);
        let keys: Vec<_> =
            self.waiting.range((flow, 0)..=(flow, u64::MAX)).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|(flow, number)| self.remove(flow, number)).collect()
    }

    /// Those of `flow` are of no use any more.
    pub fn forget(&mut self, flow: u64, now: Duration) {
        self.gone += self.take(flow, now).len() as u64;
    }

    fn give_up(&mut self, now: Duration) {
        while let Some((&number, &flow)) = self.order.first_key_value()
            && let Some((_, at)) = self.waiting.get(&(flow, number))
            && (self.bytes > MOST_BYTES || *at + PATIENCE < now)
        {
            self.remove(flow, number);
            self.gone += 1;
        }
    }

    fn remove(&mut self, flow: u64, number: u64) -> Option<Bytes> {
        self.order.remove(&number);
        let (payload, _) = self.waiting.remove(&(flow, number))?;
        self.bytes -= payload.len() + DATAGRAM_COST_BYTES;
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_bytes_and_time() {
        let mut early = Early::default();
        for number in 0..1000u64 {
            early.keep(number % 3, Bytes::from(vec![number as u8; 1000]), Duration::ZERO);
            assert!(early.held_bytes() <= MOST_BYTES);
        }
        let kept = 1000 - early.gone();
        let taken = early.take(1, PATIENCE);
        assert_eq!(taken.len() as u64, kept / 3);
        assert!(taken.windows(2).all(|pair| pair[0][0].wrapping_add(3) == pair[1][0]));
        assert!(early.take(1, PATIENCE).is_empty() && early.waits_for(2, PATIENCE));
        let late = PATIENCE + Duration::from_nanos(1);
        assert!(!early.waits_for(2, late), "they waited for too long");
        assert!(early.take(0, late).is_empty());
        assert_eq!((early.gone(), early.held_bytes()), (1000 - kept / 3, 0));
        early.keep(7, Bytes::new(), late);
        early.forget(7, late);
        assert_eq!((early.gone(), early.held_bytes()), (1001 - kept / 3, 0));
    }
}
