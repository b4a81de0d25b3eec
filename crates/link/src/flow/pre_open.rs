//! Datagrams that arrived before the opening of their flow.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::limits::DATAGRAM_COST_BYTES;

/// Memory of all flows: half a second of 4 Mbit/s.
const MAX_BYTES: usize = 256 << 10;
/// Maximum wait for an opening. A lost opening arrives one or two round trips later.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Datagrams that wait for the opening of their flow. The oldest are dropped first. Every operation
/// finds its datagrams by flow or by age, however many wait.
#[derive(Debug, Default)]
pub struct PreOpenBuffer {
    /// Payload and time of arrival, by flow and then by order of arrival.
    waiting: BTreeMap<(u64, u64), (Bytes, Duration)>,
    /// Flow of each datagram, by order of arrival.
    arrivals: BTreeMap<u64, u64>,
    next: u64,
    bytes: usize,
    dropped: u64,
}

impl PreOpenBuffer {
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Number of datagrams dropped so far, for lack of memory or because their opening never came.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn push(&mut self, flow: u64, payload: Bytes, now: Duration) {
        self.bytes += payload.len() + DATAGRAM_COST_BYTES;
        self.waiting.insert((flow, self.next), (payload, now));
        self.arrivals.insert(self.next, flow);
        self.next += 1;
        self.expire(now);
    }

    /// Returns `true` if a datagram waits for `flow`.
    pub fn waits_for(&mut self, flow: u64, now: Duration) -> bool {
        self.expire(now);
        self.waiting.range((flow, 0)..=(flow, u64::MAX)).next().is_some()
    }

    /// Takes the datagrams of `flow` in their order of arrival.
    pub fn take(&mut self, flow: u64, now: Duration) -> Vec<Bytes> {
        self.expire(now);
        let keys: Vec<_> =
            self.waiting.range((flow, 0)..=(flow, u64::MAX)).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|(flow, number)| self.remove(flow, number)).collect()
    }

    /// Drops the datagrams of `flow`.
    pub fn forget(&mut self, flow: u64, now: Duration) {
        self.dropped += self.take(flow, now).len() as u64;
    }

    fn expire(&mut self, now: Duration) {
        while let Some((&number, &flow)) = self.arrivals.first_key_value()
            && let Some((_, at)) = self.waiting.get(&(flow, number))
            && (self.bytes > MAX_BYTES || *at + MAX_WAIT < now)
        {
            self.remove(flow, number);
            self.dropped += 1;
        }
    }

    fn remove(&mut self, flow: u64, number: u64) -> Option<Bytes> {
        self.arrivals.remove(&number);
        let (payload, _) = self.waiting.remove(&(flow, number))?;
        self.bytes -= payload.len() + DATAGRAM_COST_BYTES;
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_datagrams_are_bounded_in_bytes_and_time() {
        let mut buffer = PreOpenBuffer::default();
        for number in 0..1000u64 {
            buffer.push(number % 3, Bytes::from(vec![number as u8; 1000]), Duration::ZERO);
            assert!(buffer.held_bytes() <= MAX_BYTES);
        }
        let kept = 1000 - buffer.dropped();
        let taken = buffer.take(1, MAX_WAIT);
        assert_eq!(taken.len() as u64, kept / 3);
        assert!(taken.windows(2).all(|pair| pair[0][0].wrapping_add(3) == pair[1][0]));
        assert!(buffer.take(1, MAX_WAIT).is_empty() && buffer.waits_for(2, MAX_WAIT));
        let late = MAX_WAIT + Duration::from_nanos(1);
        assert!(!buffer.waits_for(2, late), "they waited for too long");
        assert!(buffer.take(0, late).is_empty());
        assert_eq!((buffer.dropped(), buffer.held_bytes()), (1000 - kept / 3, 0));
        buffer.push(7, Bytes::new(), late);
        buffer.forget(7, late);
        assert_eq!((buffer.dropped(), buffer.held_bytes()), (1001 - kept / 3, 0));
    }
}
