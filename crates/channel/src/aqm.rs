//! Queues with active queue management: CoDel (RFC 8289) and FQ-CoDel (RFC 8290).
//!
//! A packet's fate depends on packets that come after it, so it is known only when the packet is
//! taken from the queue.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::Span;

use crate::codel::{Codel, Control, Fifo, Item};
use crate::error::SpecError;

/// Default target delay (RFC 8289 section 4.4).
const TARGET: Duration = Duration::from_millis(5);
/// Default interval (RFC 8289 section 4.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// Default number of FQ-CoDel's queues (RFC 8290 section 5.2.3).
const FLOWS: u32 = 1024;
/// Maximum number of FQ-CoDel's queues: 65,536 × 120 bytes = 8 MB.
const MAX_FLOWS: u32 = 65_536;
/// Bytes that a flow of FQ-CoDel may send in its turn (RFC 8290 section 5.2.4).
const QUANTUM_BYTES: i64 = 1514;
/// Maximum number of packets that FQ-CoDel drops at once if its queue is full (RFC 8290 section
/// 4.1.3).
const DROP_BATCH: usize = 64;
/// Maximum number of waiting packets, whatever their size: 65,536 × 32 bytes = 2 MB.
const MAX_WAITING: usize = 65_536;

/// Active queue management of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "RawAqm")]
pub(crate) struct AqmSpec {
    kind: Kind,
    target: Duration,
    interval: Duration,
    ecn: bool,
    /// One for CoDel.
    flows: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Codel,
    FqCodel,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawAqm {
    kind: Kind,
    target: Option<Span>,
    interval: Option<Span>,
    #[serde(default)]
    ecn: bool,
    flows: Option<u32>,
}

impl TryFrom<RawAqm> for AqmSpec {
    type Error = SpecError;

    fn try_from(raw: RawAqm) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("aqm", why));
        let target = raw.target.map_or(TARGET, Span::duration);
        let interval = raw.interval.map_or(INTERVAL, Span::duration);
        if target.is_zero() || target >= interval {
            let (target, interval) = (Span::new(target), Span::new(interval));
            return error(format!(
                "has a target of {target} and an interval of {interval}: the target must be more \
                 than nothing and shorter than the interval"
            ));
        }
        let flows = match (raw.kind, raw.flows) {
            (Kind::Codel, Some(_)) => {
                return error("has `flows`, but codel has one queue: remove them".into());
            }
            (Kind::Codel, None) => 1,
            (Kind::FqCodel, flows) => flows.unwrap_or(FLOWS),
        };
        if !(1..=MAX_FLOWS).contains(&flows) {
            return error(format!("has {flows} flows: 1 to {MAX_FLOWS}"));
        }
        Ok(Self { kind: raw.kind, target, interval, ecn: raw.ecn, flows })
    }
}

/// Queue that chooses the next packet when the link is free.
#[derive(Debug, Clone)]
pub(crate) struct Aqm {
    kind: Kind,
    control: Control,
    limit_bytes: u64,
    flows: Vec<Flow>,
    /// Queues with packets: those that just became active, and the others (RFC 8290 section 4.2).
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    bytes: u64,
    packets: usize,
}

#[derive(Debug, Clone, Default)]
struct Flow {
    fifo: Fifo,
    codel: Codel,
    deficit: i64,
    is_listed: bool,
}

impl Aqm {
    pub fn new(spec: &AqmSpec, limit_bytes: u64) -> Self {
        Self {
            kind: spec.kind,
            control: Control::new(spec.target, spec.interval, spec.ecn),
            limit_bytes,
            flows: vec![Flow::default(); spec.flows as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            bytes: 0,
            packets: 0,
        }
    }

    /// Bytes that wait.
    pub fn queued_bytes(&self) -> u64 {
        self.bytes
    }

    /// Arrival time of a packet that waits, the oldest of its flow.
    pub fn waits_since(&self) -> Option<u64> {
        let flows = self.new.iter().chain(&self.old);
        let mut first = flows.filter_map(|flow| self.flows[*flow].fifo.first());
        first.next().map(|item| item.came_ns)
    }

    /// Queues a packet of the flow with this key. Packets dropped for room go to `dropped`.
    pub fn push(&mut self, item: Item, key: u64, dropped: &mut Vec<(u64, usize)>) {
        if self.kind == Kind::Codel && self.is_over(item.bytes as u64) && self.packets > 0 {
            dropped.push((item.id, item.bytes));
            return;
        }
        let index = bucket(key, self.flows.len());
        self.bytes += item.bytes as u64;
        self.packets += 1;
        let flow = &mut self.flows[index];
        flow.fifo.push(item);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = QUANTUM_BYTES;
            self.new.push_back(index);
        }
        // An idle link accepts any packet.
        while self.is_over(0) && self.packets > 1 {
            self.drop_from_longest(dropped);
        }
    }

    /// Removes the packet to send at `now_ns`, and `true` if it is to be marked.
    pub fn next(&mut self, now_ns: u64, dropped: &mut Vec<(u64, usize)>) -> Option<(Item, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let index = *(if is_new { &self.new } else { &self.old }).front()?;
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM_BYTES;
                self.rotate(is_new);
                continue;
            }
            let before = (flow.fifo.bytes(), flow.fifo.packets());
            let next = flow.codel.next(&mut flow.fifo, now_ns, self.control, dropped);
            self.bytes -= before.0 - flow.fifo.bytes();
            self.packets -= before.1 - flow.fifo.packets();
            match next {
                Some((item, marked)) => {
                    flow.deficit -= item.bytes as i64;
                    return Some((item, marked));
                }
                // An empty new queue first goes through all old ones (RFC 8290 section 4.2).
                None if is_new && !self.old.is_empty() => self.rotate(true),
                None => {
                    flow.is_listed = false;
                    (if is_new { &mut self.new } else { &mut self.old }).pop_front();
                }
            }
        }
    }

    fn is_over(&self, more_bytes: u64) -> bool {
        self.bytes.saturating_add(more_bytes) > self.limit_bytes || self.packets > MAX_WAITING
    }

    /// Moves the first queue of a list to the end of the old ones.
    fn rotate(&mut self, is_new: bool) {
        let first = (if is_new { &mut self.new } else { &mut self.old }).pop_front();
        self.old.extend(first);
    }

    /// Drops half of the packets of the longest queue from its head (RFC 8290 section 4.1.3).
    fn drop_from_longest(&mut self, dropped: &mut Vec<(u64, usize)>) {
        let Some(flow) = self.flows.iter_mut().max_by_key(|flow| flow.fifo.bytes()) else { return };
        for _ in 0..(flow.fifo.packets() / 2).clamp(1, DROP_BATCH) {
            let Some(item) = flow.fifo.pop() else { return };
            self.bytes -= item.bytes as u64;
            self.packets -= 1;
            dropped.push((item.id, item.bytes));
        }
    }
}

/// Queue of a flow: its key, mixed so that neighbouring keys are spread (the finalizer of
/// SplitMix64).
fn bucket(key: u64, flows: usize) -> usize {
    let mut mixed = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % flows as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aqm(text: &str, limit_bytes: u64) -> Aqm {
        Aqm::new(&toml::from_str(text).unwrap_or_else(|error| panic!("{error}")), limit_bytes)
    }

    fn item(id: u64, bytes: usize) -> Item {
        Item { id, bytes, is_ect: false, came_ns: 0 }
    }

    /// Packets that the queue sends if it is emptied at once.
    fn order(aqm: &mut Aqm) -> Vec<u64> {
        let mut none = Vec::new();
        let order =
            std::iter::from_fn(|| aqm.next(0, &mut none)).map(|(item, _)| item.id).collect();
        assert_eq!((none.len(), aqm.queued_bytes()), (0, 0));
        order
    }

    #[test]
    fn flows_take_turns_and_a_new_flow_goes_first() {
        let mut aqm = aqm("kind = 'fq-codel'", 100_000);
        let mut dropped = Vec::new();
        (0..4).for_each(|id| aqm.push(item(id, 1500), 1, &mut dropped));
        (10..12).for_each(|id| aqm.push(item(id, 1500), 2, &mut dropped));
        assert_eq!(aqm.next(0, &mut dropped).unwrap().0.id, 0);
        aqm.push(item(20, 100), 3, &mut dropped);
        // Flow 1 has 14 bytes left in its turn, so it sends one more packet.
        assert_eq!(order(&mut aqm), [1, 10, 11, 20, 2, 3]);
        assert!(dropped.is_empty());
    }

    #[test]
    fn codel_has_one_queue_and_drops_at_its_tail() {
        let mut aqm = aqm("kind = 'codel'", 3000);
        let mut dropped = Vec::new();
        (0..4).for_each(|id| aqm.push(item(id, 1000), id, &mut dropped));
        assert_eq!((&dropped[..], aqm.queued_bytes()), (&[(3, 1000)][..], 3000));
        assert_eq!(order(&mut aqm), [0, 1, 2]);
    }

    #[test]
    fn a_full_fair_queue_drops_the_longest_flow_from_its_head() {
        let mut aqm = aqm("kind = 'fq-codel'", 8000);
        let mut dropped = Vec::new();
        (0..8).for_each(|id| aqm.push(item(id, 1000), 1, &mut dropped));
        aqm.push(item(9, 1000), 2, &mut dropped);
        assert_eq!(dropped, [0, 1, 2, 3].map(|id| (id, 1000)));
        assert_eq!(aqm.queued_bytes(), 5000);
    }

    #[test]
    fn invalid_queue_management_is_refused() {
        let why = |text: &str| toml::from_str::<AqmSpec>(text).unwrap_err().to_string();
        assert!(why("kind = 'red'").contains("`codel` or `fq-codel`"));
        assert!(why("kind = 'codel'\nflows = 8").contains("one queue"));
        assert!(why("kind = 'fq-codel'\nflows = 0").contains("1 to 65536"));
        assert!(why("kind = 'codel'\ntarget = '100 ms'").contains("shorter than the interval"));
        assert!(why("target = '1 ms'").contains("kind"));
    }
}
