//! Reordering: datagrams of some flows are delivered in the order in which they were sent.
//!
//! Symbols of the datagram lane are numbered as they are made. A symbol that is retransmitted or
//! recovered from repairs keeps its number. So the numbers order the datagrams of every flow of the
//! lane, and a missing number shows a gap, though not in which flow. A receiver that takes late
//! packets for lost, as QUIC does (RFC 9002, section 6.1), gains if datagrams after a gap wait for a
//! while: then it sees no loss that the link repairs.
//!
//! A gap is waited for until one of these happens:
//!
//! - the missing symbols arrive;
//! - the sender gives them up;
//! - the patience ends that was set when the gap was found. A flow stalls no longer than this for a
//!   datagram that never arrives, and datagrams that arrive later are delivered at once.
//!
//! A datagram costs a few tree look-ups, whatever the number of waiting datagrams and flows. So the
//! time that one aircraft's datagrams take at the hub depends on their number alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::recv_queue::RecvQueue;

/// Maximum waiting bytes of one flow: one second at 8 Mbit/s. Beyond it, the flow's datagrams are
/// delivered in spite of the gap.
pub const MAX_FLOW_BYTES: usize = 1 << 20;

/// Maximum waiting bytes of all flows. Beyond it, the datagrams of the flow with the most are
/// delivered in spite of the gap.
pub const MAX_BYTES: usize = 8 << 20;

/// Maximum number of gaps; beyond it, the oldest is no longer waited for. 256 × 32 bytes = 8 KiB.
const MAX_GAPS: usize = 256;

/// A datagram's position: its symbol's number, and the order of arrival within the symbol.
type Position = (u64, u64);

/// Waiting datagrams, and the gaps that they wait for.
#[derive(Debug, Default)]
pub struct ReorderBuffer {
    /// Flows with waiting datagrams.
    flows: BTreeMap<u64, FlowQueue>,
    /// Position of the first waiting datagram of each flow.
    firsts: BTreeSet<(Position, u64)>,
    /// Waiting bytes of each flow.
    sizes: BTreeSet<(usize, u64)>,
    held_bytes: usize,
    /// Numbers below `end` that are missing and waited for, ascending.
    gaps: VecDeque<Gap>,
    end: u64,
    arrivals: u64,
    /// Datagrams that left the buffer for lack of room, to be delivered next.
    spilled: Vec<(u64, Bytes)>,
    /// Number of steps taken so far.
    #[cfg(test)]
    steps: usize,
}

/// Waiting datagrams of one flow.
#[derive(Debug, Default)]
struct FlowQueue {
    payloads: BTreeMap<Position, Bytes>,
    bytes: usize,
}

impl FlowQueue {
    fn first(&self) -> Option<Position> {
        self.payloads.first_key_value().map(|(position, _)| *position)
    }
}

#[derive(Debug)]
struct Gap {
    start: u64,
    end: u64,
    until: Duration,
}

impl ReorderBuffer {
    /// Notes the first arrival of `symbol`. The symbols that it shows to be missing are waited for
    /// until `patience` from now. Its datagrams have to be [offered](Self::offer) next.
    pub fn on_symbol(&mut self, symbol: u64, patience: Duration, now: Duration) {
        if symbol >= self.end {
            if symbol > self.end {
                self.gaps.push_back(Gap { start: self.end, end: symbol, until: now + patience });
            }
            self.end = symbol + 1;
            self.bound_gaps();
            return;
        }
        let at = self.gaps.partition_point(|gap| gap.end <= symbol);
        let Some(gap) = self.gaps.get_mut(at).filter(|gap| gap.start <= symbol) else { return };
        let (start, end, until) = (gap.start, gap.end, gap.until);
        match (start == symbol, end == symbol + 1) {
            (true, true) => drop(self.gaps.remove(at)),
            (true, false) => gap.start = symbol + 1,
            (false, true) => gap.end = symbol,
            (false, false) => {
                gap.end = symbol;
                self.gaps.insert(at + 1, Gap { start: symbol + 1, end, until });
                self.bound_gaps();
            }
        }
    }

    fn bound_gaps(&mut self) {
        while self.gaps.len() > MAX_GAPS {
            self.gaps.pop_front();
        }
    }

    /// Offers a datagram of `flow` from the newest [symbol](Self::on_symbol). Returns it if no
    /// earlier symbol is waited for, and stores it otherwise.
    pub fn offer(&mut self, symbol: u64, flow: u64, payload: Bytes) -> Option<Bytes> {
        if symbol < self.floor() {
            return Some(payload);
        }
        let bytes = RecvQueue::cost(&payload);
        if self.flows.get(&flow).map_or(0, |held| held.bytes) + bytes > MAX_FLOW_BYTES {
            self.spill(flow);
        }
        while self.held_bytes + bytes > MAX_BYTES
            && let Some(&(_, largest)) = self.sizes.last()
        {
            self.spill(largest);
        }
        self.arrivals += 1;
        let mut held = self.take(flow);
        held.payloads.insert((symbol, self.arrivals), payload);
        held.bytes += bytes;
        self.put(flow, held);
        None
    }

    /// Notes that the sender gave up all missing symbols below `base`.
    pub fn abandon_below(&mut self, base: u64) {
        while let Some(gap) = self.gaps.front_mut() {
            gap.start = gap.start.max(base);
            if gap.start < gap.end {
                break;
            }
            self.gaps.pop_front();
        }
        self.end = self.end.max(base);
    }

    /// Takes the datagrams that no longer wait, each with its flow, in order.
    pub fn release(&mut self, now: Duration) -> Vec<(u64, Bytes)> {
        while self.gaps.front().is_some_and(|gap| gap.until <= now) {
            self.gaps.pop_front();
        }
        let floor = self.floor();
        let mut released = std::mem::take(&mut self.spilled);
        while let Some(&((symbol, _), flow)) = self.firsts.first()
            && symbol < floor
        {
            let mut held = self.take(flow);
            if let Some((_, payload)) = held.payloads.pop_first() {
                held.bytes -= RecvQueue::cost(&payload);
                released.push((flow, payload));
            }
            self.put(flow, held);
        }
        released
    }

    /// Time at which [`Self::release`] should be called.
    pub fn due(&self) -> Option<Duration> {
        if self.flows.is_empty() {
            return None;
        }
        self.gaps.front().map(|gap| gap.until)
    }

    /// Memory of all waiting datagrams.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The lowest number that is waited for.
    fn floor(&self) -> u64 {
        self.gaps.front().map_or(u64::MAX, |gap| gap.start)
    }

    /// Moves all datagrams of a flow out of the buffer, in order, in spite of the gap.
    fn spill(&mut self, flow: u64) {
        let FlowQueue { payloads, .. } = self.take(flow);
        #[cfg(test)]
        {
            self.steps += payloads.len();
        }
        self.spilled.extend(payloads.into_values().map(|payload| (flow, payload)));
    }

    /// Takes out the queue of a flow, to be changed and [put](Self::put) back.
    fn take(&mut self, flow: u64) -> FlowQueue {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let held = self.flows.remove(&flow).unwrap_or_default();
        if let Some(first) = held.first() {
            self.firsts.remove(&(first, flow));
            self.sizes.remove(&(held.bytes, flow));
        }
        self.held_bytes -= held.bytes;
        held
    }

    fn put(&mut self, flow: u64, held: FlowQueue) {
        let Some(first) = held.first() else { return };
        self.firsts.insert((first, flow));
        self.sizes.insert((held.bytes, flow));
        self.held_bytes += held.bytes;
        self.flows.insert(flow, held);
    }
}

#[cfg(test)]
mod tests;
