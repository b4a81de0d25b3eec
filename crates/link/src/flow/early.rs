//! Datagrams that overtook the opening of their flow.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::queues::DATAGRAM_COST_BYTES;

/// What all of them may take: half a second of 4 Mbit/s.
const MOST_BYTES: usize = 256 << 10;
/// How long an opening is waited for: where it was lost it comes a round trip or two later.
const PATIENCE: Duration = Duration::from_secs(3);

/// Those that wait, oldest first; the oldest give way.
#[derive(Debug, Default)]
pub struct Early {
    waiting: VecDeque<(u64, Bytes, Duration)>,
    bytes: usize,
}

impl Early {
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps one. Returns how many gave way to it, or waited in vain.
    pub fn keep(&mut self, flow: u64, payload: Bytes, now: Duration) -> u64 {
        self.bytes += payload.len() + DATAGRAM_COST_BYTES;
        self.waiting.push_back((flow, payload, now));
        let mut gone = 0;
        while let Some((_, oldest, at)) = self.waiting.front()
            && (self.bytes > MOST_BYTES || *at + PATIENCE < now)
        {
            self.bytes -= oldest.len() + DATAGRAM_COST_BYTES;
            self.waiting.pop_front();
            gone += 1;
        }
        gone
    }

    /// Whether any waits for `flow`.
    pub fn waits_for(&self, flow: u64) -> bool {
        self.waiting.iter().any(|(of, ..)| *of == flow)
    }

    /// Those of `flow` that have not waited for too long, in the order in which they came.
    pub fn take(&mut self, flow: u64, now: Duration) -> Vec<Bytes> {
        let mut taken = Vec::new();
        self.waiting.retain(|(of, payload, at)| {
            if *of == flow {
                self.bytes -= payload.len() + DATAGRAM_COST_BYTES;
                if *at + PATIENCE >= now {
                    taken.push(payload.clone());
                }
            }
            *of != flow
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_bytes_and_time() {
        let mut early = Early::default();
        let mut gone = 0;
        for number in 0..1000u64 {
            gone += early.keep(number % 3, Bytes::from(vec![number as u8; 1000]), Duration::ZERO);
            assert!(early.held_bytes() <= MOST_BYTES);
        }
        let kept = 1000 - gone;
        let taken = early.take(1, PATIENCE);
        assert_eq!(taken.len() as u64, kept / 3);
        assert!(taken.windows(2).all(|pair| pair[0][0].wrapping_add(3) == pair[1][0]));
        assert!(early.take(1, PATIENCE).is_empty() && early.waits_for(2));
        let late = PATIENCE + Duration::from_nanos(1);
        assert!(early.take(2, late).is_empty(), "they waited for too long");
        assert!(early.keep(7, Bytes::new(), late) >= kept / 3);
        assert_eq!(early.held_bytes(), DATAGRAM_COST_BYTES);
    }
}
