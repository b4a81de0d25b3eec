//! Datagrams of some flows in the order in which they left.
//!
//! Symbols of the datagram lane are numbered as they are made, and one that is sent again or brought
//! back by repairs keeps its number. So the numbers order the datagrams of every flow of the lane, and
//! a missing number says that something is missing, though not of which flow. Whoever takes what comes
//! late for lost, as QUIC does (RFC 9002 section 6.1), is better off when what comes after a gap waits
//! for it a while: then nothing seems to be lost that the link brings back.
//!
//! A gap is waited for until it is filled, given up by the sender, or older than the patience that it
//! was found with; so long at most a flow stands still for a datagram that never comes. What comes
//! later than that is passed on at once.
//!
//! A datagram costs a few look-ups in trees, however much waits and of however many flows: one
//! aircraft's datagrams take no more of the hub's time than their number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::unread::Unread;

/// Maximum waiting bytes of one flow: one second at 8 Mbit/s. Beyond it, datagrams are passed on as
/// they arrived.
pub const MOST_HELD_OF_A_FLOW: usize = 1 << 20;

/// Maximum waiting bytes of all flows: beyond it, those of the flow with most are passed on as they
/// arrived.
pub const MOST_HELD_BYTES: usize = 8 << 20;

/// Gaps that are known at once; beyond, the oldest is waited for no more. 256 of 32 bytes are 8 KiB.
const MOST_GAPS: usize = 256;

/// A datagram's place: the symbol that it came in, and its turn in there.
type Place = (u64, u64);

/// Waiting datagrams, and the gaps for which they wait.
#[derive(Debug, Default)]
pub struct Order {
    /// Datagrams that wait, by flow; only flows of which one waits.
    flows: BTreeMap<u64, Held>,
    /// The first of each of these flows.
    firsts: BTreeSet<(Place, u64)>,
    /// The bytes that wait of each.
    sizes: BTreeSet<(usize, u64)>,
    held_bytes: usize,
    /// Numbers below `end` that have not come and are waited for, rising.
    gaps: VecDeque<Gap>,
    end: u64,
    turn: u64,
    /// Datagrams passed on for lack of room, to be taken next.
    spilled: Vec<(u64, Bytes)>,
    /// Datagrams that were looked at, in all.
    #[cfg(test)]
    steps: usize,
}

/// Datagrams of one flow that wait.
#[derive(Debug, Default)]
struct Held {
    payloads: BTreeMap<Place, Bytes>,
    bytes: usize,
}

impl Held {
    fn first(&self) -> Option<Place> {
        self.payloads.first_key_value().map(|(place, _)| *place)
    }
}

#[derive(Debug)]
struct Gap {
    start: u64,
    end: u64,
    until: Duration,
}

impl Order {
    /// `symbol` has come for the first time; what it shows to be missing is waited for until
    /// `patience` from now. Its datagrams are to be [offered](Self::offer) next.
    pub fn came(&mut self, symbol: u64, patience: Duration, now: Duration) {
        if symbol >= self.end {
            if symbol > self.end {
                self.gaps.push_back(Gap { start: self.end, end: symbol, until: now + patience });
            }
            self.end = symbol + 1;
            self.forget_gaps();
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
                self.forget_gaps();
            }
        }
    }

    fn forget_gaps(&mut self) {
        while self.gaps.len() > MOST_GAPS {
            self.gaps.pop_front();
        }
    }

    /// A datagram of `flow` from `symbol`, the newest that [came](Self::came): given back where nothing
    /// before it is waited for, and kept otherwise.
    pub fn offer(&mut self, symbol: u64, flow: u64, payload: Bytes) -> Option<Bytes> {
        if symbol < self.floor() {
            return Some(payload);
        }
        let bytes = Unread::cost(&payload);
        if self.flows.get(&flow).map_or(0, |held| held.bytes) + bytes > MOST_HELD_OF_A_FLOW {
            self.spill(flow);
        }
        while self.held_bytes + bytes > MOST_HELD_BYTES
            && let Some(&(_, fattest)) = self.sizes.last()
        {
            self.spill(fattest);
        }
        self.turn += 1;
        let mut held = self.take(flow);
        held.payloads.insert((symbol, self.turn), payload);
        held.bytes += bytes;
        self.put(flow, held);
        None
    }

    /// The sender gave up all below `base` that has not come.
    pub fn gave_up_below(&mut self, base: u64) {
        while let Some(gap) = self.gaps.front_mut() {
            gap.start = gap.start.max(base);
            if gap.start < gap.end {
                break;
            }
            self.gaps.pop_front();
        }
        self.end = self.end.max(base);
    }

    /// Datagrams that no longer wait, each with its flow, in order.
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
                held.bytes -= Unread::cost(&payload);
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

    /// The first number that is waited for.
    fn floor(&self) -> u64 {
        self.gaps.front().map_or(u64::MAX, |gap| gap.start)
    }

    /// All of a flow goes on, in order, though something before it is missing.
    fn spill(&mut self, flow: u64) {
        let Held { payloads, .. } = self.take(flow);
        #[cfg(test)]
        {
            self.steps += payloads.len();
        }
        self.spilled.extend(payloads.into_values().map(|payload| (flow, payload)));
    }

    /// Takes out the datagrams of a flow, to be changed and [put](Self::put) back.
    fn take(&mut self, flow: u64) -> Held {
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

    fn put(&mut self, flow: u64, held: Held) {
        let Some(first) = held.first() else { return };
        self.firsts.insert((first, flow));
        self.sizes.insert((held.bytes, flow));
        self.held_bytes += held.bytes;
        self.flows.insert(flow, held);
    }
}

#[cfg(test)]
mod tests;
