//! Controlled delay (RFC 8289) on one queue of packets.

use std::collections::VecDeque;
use std::time::Duration;

use crate::series::nanos;

/// Largest packet assumed before a larger one was seen (RFC 8289 section 5.3: `maxpacket_`).
const FIRST_MAX_PACKET_BYTES: usize = 512;
/// A new dropping state within this many intervals of the last one continues its rate (RFC 8289
/// section 5.6).
const RESUME_INTERVALS: u64 = 16;

/// Waiting packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub id: u64,
    pub bytes: usize,
    pub is_ect: bool,
    pub came_ns: u64,
}

/// First-in-first-out queue with its length in bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fifo {
    packets: VecDeque<Item>,
    bytes: u64,
}

impl Fifo {
    pub fn push(&mut self, item: Item) {
        self.bytes += item.bytes as u64;
        self.packets.push_back(item);
    }

    pub fn pop(&mut self) -> Option<Item> {
        let item = self.packets.pop_front()?;
        self.bytes -= item.bytes as u64;
        Some(item)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    pub fn first(&self) -> Option<&Item> {
        self.packets.front()
    }
}

/// Target and interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    target_ns: u64,
    interval_ns: u64,
    /// Packets of ECN-capable flows are marked instead of dropped.
    ecn: bool,
}

impl Control {
    pub fn new(target: Duration, interval: Duration, ecn: bool) -> Self {
        Self { target_ns: nanos(target), interval_ns: nanos(interval), ecn }
    }

    /// RFC 8289 section 5.5: `control_law`.
    fn next(self, from_ns: u64, count: u64) -> u64 {
        from_ns.saturating_add((self.interval_ns as f64 / (count as f64).sqrt()) as u64)
    }
}

/// State of the algorithm.
#[derive(Debug, Clone)]
pub(crate) struct Codel {
    max_packet_bytes: usize,
    first_above_ns: Option<u64>,
    drop_next_ns: u64,
    count: u64,
    last_count: u64,
    dropping: bool,
}

impl Default for Codel {
    fn default() -> Self {
        Self {
            max_packet_bytes: FIRST_MAX_PACKET_BYTES,
            first_above_ns: None,
            drop_next_ns: 0,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }
}

impl Codel {
    /// Removes the next packet to send at `now_ns`, and `true` if it is to be marked. Packets that
    /// are dropped before it go to `dropped` (RFC 8289 section 5.6: `dequeue`).
    pub fn next(
        &mut self,
        queue: &mut Fifo,
        now_ns: u64,
        control: Control,
        dropped: &mut Vec<(u64, usize)>,
    ) -> Option<(Item, bool)> {
        let Some((mut head, may_drop)) = self.pop(queue, now_ns, control) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now_ns >= self.drop_next_ns {
                self.count += 1;
                if control.ecn && head.is_ect {
                    self.drop_next_ns = control.next(self.drop_next_ns, self.count);
                    return Some((head, true));
                }
                dropped.push((head.id, head.bytes));
                let next = self.pop(queue, now_ns, control);
                self.dropping = next.is_some_and(|(_, may_drop)| may_drop);
                (head, _) = next?;
                if self.dropping {
                    self.drop_next_ns = control.next(self.drop_next_ns, self.count);
                }
            }
        } else if may_drop {
            let mark = control.ecn && head.is_ect;
            if !mark {
                dropped.push((head.id, head.bytes));
            }
            self.start_dropping(now_ns, control);
            if mark {
                return Some((head, true));
            }
            (head, _) = self.pop(queue, now_ns, control)?;
        }
        Some((head, false))
    }

    fn start_dropping(&mut self, now_ns: u64, control: Control) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let since_ns = now_ns.saturating_sub(self.drop_next_ns);
        let recent = since_ns < RESUME_INTERVALS * control.interval_ns;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next_ns = control.next(now_ns, self.count);
        self.last_count = self.count;
    }

    /// RFC 8289 section 5.6: `dodequeue`. The second value is `ok_to_drop`.
    fn pop(&mut self, queue: &mut Fifo, now_ns: u64, control: Control) -> Option<(Item, bool)> {
        let Some(item) = queue.pop() else {
            self.first_above_ns = None;
            return None;
        };
        self.max_packet_bytes = self.max_packet_bytes.max(item.bytes);
        let short = now_ns.saturating_sub(item.came_ns) < control.target_ns;
        if short || queue.bytes() <= self.max_packet_bytes as u64 {
            self.first_above_ns = None;
            return Some((item, false));
        }
        let first_above =
            *self.first_above_ns.get_or_insert_with(|| now_ns.saturating_add(control.interval_ns));
        Some((item, now_ns >= first_above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn control(ecn: bool) -> Control {
        Control::new(Duration::from_millis(5), Duration::from_millis(100), ecn)
    }

    /// A queue of a thousand packets that came at zero, of which one is taken every millisecond.
    /// Returns the times in milliseconds at which packets were dropped or marked.
    fn signals(ecn: bool) -> (Vec<u64>, Vec<u64>) {
        let (mut queue, mut codel) = (Fifo::default(), Codel::default());
        (0..1000).for_each(|id| queue.push(Item { id, bytes: 1000, is_ect: true, came_ns: 0 }));
        let (mut dropped_at, mut marked_at) = (Vec::new(), Vec::new());
        for ms in 0..500 {
            let mut dropped = Vec::new();
            let (_, marked) = codel.next(&mut queue, ms * MS, control(ecn), &mut dropped).unwrap();
            dropped_at.extend(dropped.iter().map(|_| ms));
            marked_at.extend(marked.then_some(ms));
        }
        (dropped_at, marked_at)
    }

    #[test]
    fn drops_follow_the_control_law() {
        // The target is exceeded from 5 ms on; an interval later the first drop. Then the gaps
        // are 100 ms ÷ √1, √2, √3, …, each rounded up to the next packet.
        let (dropped, marked) = signals(false);
        assert_eq!(dropped[..5], [105, 205, 276, 334, 384]);
        assert_eq!(marked, [0_u64; 0]);
    }

    #[test]
    fn ecn_capable_packets_are_marked_instead() {
        let (dropped, marked) = signals(true);
        assert_eq!(dropped, [0_u64; 0]);
        assert_eq!(marked[..3], [105, 205, 276]);
    }

    #[test]
    fn a_short_queue_is_never_dropped() {
        let (mut queue, mut codel) = (Fifo::default(), Codel::default());
        let mut dropped = Vec::new();
        for ms in 0..1000u64 {
            queue.push(Item { id: ms, bytes: 1000, is_ect: false, came_ns: ms * MS });
            if ms >= 4 {
                codel.next(&mut queue, ms * MS, control(false), &mut dropped).unwrap();
            }
        }
        assert!(dropped.is_empty());
    }
}
