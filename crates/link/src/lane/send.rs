//! The scoreboard: symbols that were sent and not yet reported, and which of them to send again.
//!
//! A symbol is *lost* once a report names a later packet of its lane and not the symbol. That is
//! judged by packet, so a retransmission that is lost again is found the same way, one round trip
//! after it was sent. What nobody reports on (the tail of a burst) is sent once more
//! [`DUPLICATE_DELAY`] after the lane's queue emptied, since losses come in bursts of time; and a
//! probe follows when even that stays unanswered.

use std::collections::VecDeque;
use std::time::Duration;

use super::recv::MAX_AHEAD;
use crate::wire::report::LaneReport;

/// How long after a lane's queue emptied its unreported symbols are sent once more.
pub const DUPLICATE_DELAY: Duration = Duration::from_millis(25);

/// How many of the oldest symbols are sent again when no report came for a probe timeout.
const PROBE_SYMBOLS: usize = 2;

/// Bookkeeping charged for each retained symbol beside its content.
pub const SLOT_BYTES: usize = 64;

#[derive(Debug)]
struct Slot {
    content: Vec<u8>,
    first_packet: u64,
    last_packet: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    /// Waiting in `lost` or `duplicates` to be sent again.
    Queued(Transmission),
    Reported,
}

/// Why a retained symbol is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transmission {
    /// It was reported missing, or a probe.
    Repair,
    /// The one duplicate of a tail.
    Duplicate,
}

/// The sender's half of a lane.
#[derive(Debug)]
pub struct SendLane {
    base: u64,
    slots: VecDeque<Slot>,
    lost: VecDeque<u64>,
    duplicates: VecDeque<u64>,
    retained_bytes: usize,
    /// When the lane had nothing more to send; reset by new symbols.
    drained_at: Option<Duration>,
    /// Symbols below have had their duplicate or do not need one.
    duplicated_below: u64,
    last_sent: Duration,
}

impl SendLane {
    pub fn new() -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            lost: VecDeque::new(),
            duplicates: VecDeque::new(),
            retained_bytes: 0,
            drained_at: None,
            duplicated_below: 0,
            last_sent: Duration::ZERO,
        }
    }

    /// The number that the next new symbol will have.
    pub fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// How many bytes wait to be reported, bookkeeping included.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    pub fn is_clear(&self) -> bool {
        self.slots.is_empty()
    }

    /// When a packet of the lane last left.
    pub fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// Retains a new symbol that leaves in `packet`; returns its number.
    pub fn push(&mut self, content: Vec<u8>, packet: u64, now: Duration) -> u64 {
        let number = self.next_number();
        self.retained_bytes += content.len() + SLOT_BYTES;
        let state = State::InFlight;
        self.slots.push_back(Slot { content, first_packet: packet, last_packet: packet, state });
        self.last_sent = now;
        self.drained_at = None;
        number
    }

    /// The lane's flows have nothing more to send: its duplicates become due.
    pub fn drained(&mut self, now: Duration) {
        if self.drained_at.is_none() && self.duplicated_below < self.next_number() {
            self.drained_at = Some(now);
        }
    }

    /// When [`Self::queue_duplicates`] should be called.
    pub fn duplicates_due(&self) -> Option<Duration> {
        self.drained_at.map(|at| at + DUPLICATE_DELAY)
    }

    /// Queues one duplicate of every unreported symbol that has had none.
    pub fn queue_duplicates(&mut self) {
        self.drained_at = None;
        let from = self.duplicated_below.max(self.base);
        for number in from..self.next_number() {
            let slot = &mut self.slots[(number - self.base) as usize];
            if slot.state == State::InFlight {
                slot.state = State::Queued(Transmission::Duplicate);
                self.duplicates.push_back(number);
            }
        }
        self.duplicated_below = self.next_number();
    }

    /// Whether a symbol waits to be sent again for that reason.
    pub fn has(&mut self, kind: Transmission) -> bool {
        self.settle(kind).is_some()
    }

    /// Whether any symbol waits to be sent again.
    pub fn has_queued(&mut self) -> bool {
        self.has(Transmission::Repair) || self.has(Transmission::Duplicate)
    }

    /// Whether the next new symbol is one that the peer would take.
    pub fn has_room(&self) -> bool {
        (self.slots.len() as u64) < MAX_AHEAD / 2
    }

    /// Number and content length of what [`Self::take`] would give.
    pub fn peek_len(&mut self, kind: Transmission) -> Option<(u64, usize)> {
        let number = self.settle(kind)?;
        Some((number, self.slots[(number - self.base) as usize].content.len()))
    }

    /// The first in the queue that still has to be sent.
    fn settle(&mut self, kind: Transmission) -> Option<u64> {
        let queue = match kind {
            Transmission::Repair => &mut self.lost,
            Transmission::Duplicate => &mut self.duplicates,
        };
        while let Some(&number) = queue.front() {
            let index = number.checked_sub(self.base);
            if index.is_some_and(|index| self.slots[index as usize].state == State::Queued(kind)) {
                return Some(number);
            }
            queue.pop_front();
        }
        None
    }

    /// Takes the next queued symbol of that kind, as leaving in `packet`.
    pub fn take(&mut self, kind: Transmission, packet: u64, now: Duration) -> Option<(u64, &[u8])> {
        let number = self.settle(kind)?;
        match kind {
            Transmission::Repair => self.lost.pop_front(),
            Transmission::Duplicate => self.duplicates.pop_front(),
        };
        let slot = &mut self.slots[(number - self.base) as usize];
        slot.state = State::InFlight;
        slot.last_packet = packet;
        self.last_sent = now;
        Some((number, &slot.content))
    }

    /// Believes a report: forgets what has come, queues what is missing. `late_by` packets of
    /// reordering are waited for. Returns how many symbols were newly found lost, or `None` when
    /// the report names symbols that were never sent.
    pub fn report(&mut self, report: &LaneReport, late_by: u64) -> Option<usize> {
        let end = report.runs.last().map_or(report.base, |&(_, end)| end);
        if end > self.next_number() {
            return None;
        }
        for number in self.base..report.base {
            self.forget(number);
        }
        for &(start, end) in &report.runs {
            for number in start.max(self.base)..end {
                self.forget(number);
            }
        }
        while self.slots.front().is_some_and(|slot| slot.state == State::Reported) {
            self.slots.pop_front();
            self.base += 1;
        }
        Some(self.find_lost(report, late_by))
    }

    fn forget(&mut self, number: u64) {
        let slot = &mut self.slots[(number - self.base) as usize];
        if slot.state != State::Reported {
            slot.state = State::Reported;
            self.retained_bytes -= slot.content.len() + SLOT_BYTES;
            slot.content = Vec::new();
        }
    }

    fn find_lost(&mut self, report: &LaneReport, late_by: u64) -> usize {
        let judged = report.covers_below().min(self.next_number());
        let mut found = 0;
        for number in self.base..judged {
            let slot = &mut self.slots[(number - self.base) as usize];
            if slot.first_packet >= report.largest {
                break; // and so did all that follow
            }
            // A duplicate that still waits is needed now, and duplicates go last.
            let unsure = [State::InFlight, State::Queued(Transmission::Duplicate)];
            if unsure.contains(&slot.state) && slot.last_packet + late_by < report.largest {
                slot.state = State::Queued(Transmission::Repair);
                let at = self.lost.partition_point(|&queued| queued < number);
                self.lost.insert(at, number);
                found += 1;
            }
        }
        found
    }

    /// Nobody has answered for a probe timeout: sends the oldest symbols again, since whatever
    /// report they cause tells the fate of all that left before them.
    pub fn probe(&mut self) {
        let mut queued = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if queued == PROBE_SYMBOLS {
                break;
            }
            match slot.state {
                State::InFlight | State::Queued(Transmission::Duplicate) => {
                    slot.state = State::Queued(Transmission::Repair);
                    self.lost.push_front(self.base + index as u64);
                    queued += 1;
                }
                State::Queued(Transmission::Repair) => queued += 1,
                State::Reported => {}
            }
        }
        self.lost.make_contiguous().sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Lane;

    const NOW: Duration = Duration::ZERO;

    fn report(largest: u64, base: u64, runs: &[(u64, u64)]) -> LaneReport {
        LaneReport { lane: Lane::Bulk, largest, base, runs: runs.to_vec(), truncated: false }
    }

    fn lane_of(symbols: u64) -> SendLane {
        let mut lane = SendLane::new();
        for packet in 0..symbols {
            lane.push(vec![packet as u8; 10], 100 + packet, NOW);
        }
        lane
    }

    #[test]
    fn a_gap_is_sent_again_and_a_lost_repair_is_found_again() {
        let mut lane = lane_of(4);
        assert_eq!(lane.report(&report(102, 1, &[(2, 3)]), 0), Some(1));
        assert_eq!(lane.take(Transmission::Repair, 104, NOW), Some((1, &[1; 10][..])));
        assert_eq!(lane.report(&report(103, 1, &[(2, 4)]), 0), Some(0), "the repair is on its way");
        lane.push(vec![9], 105, NOW);
        assert_eq!(lane.report(&report(105, 1, &[(2, 5)]), 0), Some(1), "the repair was lost");
        assert_eq!(lane.take(Transmission::Repair, 106, NOW).unwrap().0, 1);
        assert_eq!(lane.report(&report(106, 5, &[]), 0), Some(0));
        assert!(lane.is_clear());
        assert_eq!(lane.retained_bytes(), 0);
    }

    #[test]
    fn reordering_is_waited_for() {
        let mut lane = lane_of(6);
        assert_eq!(lane.report(&report(103, 1, &[(2, 4)]), 2), Some(0));
        assert_eq!(lane.report(&report(104, 1, &[(2, 5)]), 2), Some(1));
    }

    #[test]
    fn a_tail_is_duplicated_once_and_only_what_is_unreported() {
        let mut lane = lane_of(3);
        lane.drained(Duration::from_millis(5));
        assert_eq!(lane.duplicates_due(), Some(Duration::from_millis(30)));
        lane.report(&report(100, 1, &[]), 0);
        lane.queue_duplicates();
        assert_eq!(lane.take(Transmission::Duplicate, 110, NOW).unwrap().0, 1);
        lane.report(&report(110, 3, &[]), 0);
        assert_eq!(lane.take(Transmission::Duplicate, 111, NOW), None, "2 was reported meanwhile");
        lane.drained(Duration::from_millis(50));
        assert_eq!(lane.duplicates_due(), None, "nothing is left that had no duplicate");
    }

    #[test]
    fn a_waiting_duplicate_that_is_reported_missing_becomes_a_repair() {
        let mut lane = lane_of(3);
        lane.queue_duplicates();
        lane.push(vec![9], 103, NOW);
        assert_eq!(lane.report(&report(103, 0, &[(1, 4)]), 0), Some(1));
        assert!(!lane.has(Transmission::Duplicate));
        assert_eq!(lane.take(Transmission::Repair, 104, NOW).unwrap().0, 0);
        assert!(!lane.has_queued());
    }

    #[test]
    fn a_probe_sends_the_oldest_again() {
        let mut lane = lane_of(5);
        lane.report(&report(100, 1, &[]), 0);
        lane.probe();
        assert_eq!(lane.take(Transmission::Repair, 120, NOW).unwrap().0, 1);
        assert_eq!(lane.take(Transmission::Repair, 121, NOW).unwrap().0, 2);
        assert_eq!(lane.take(Transmission::Repair, 122, NOW), None);
    }

    #[test]
    fn a_report_of_the_unsent_is_refused() {
        assert_eq!(lane_of(3).report(&report(102, 4, &[]), 0), None);
        assert_eq!(lane_of(3).report(&report(102, 1, &[(2, 9)]), 0), None);
    }
}
