//! Received symbols of a lane, and the next report on them.

use bentpipe_coding::{Decoder, Limits, Malformed, PREFIX_BYTES, Span};

use super::{Lane, RangeSet};
use crate::lane::send::repair_key;
use crate::wire::report::{LaneReport, MAX_GROUPS};

/// Distance of a symbol number above the base, at most: four times what a sender with 8 × BDP and
/// 64 MiB of memory retains. A symbol above it is not accepted (and so is sent again).
pub const MAX_AHEAD: u64 = 1 << 18;

/// Most runs kept above the base: 2,048 runs of 48 bytes are about 100 KiB a lane. Where symbols may
/// be given up, the oldest that is missing is; elsewhere no more are taken.
const MAX_KEPT_RUNS: usize = 2048;

/// Runs of the datagram lane that a report names: what is not named is told by the packets.
const DATAGRAM_RUNS: usize = 32;

/// Meaning of an arriving symbol for the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is new; `gap` says that symbols before it are missing that were not known to be.
    New { gap: bool },
    /// It was here before.
    Duplicate,
    /// It is outside what the lane can keep; it was not taken.
    Refused,
}

/// The receiver's half of a lane.
pub struct RecvLane {
    lane: Lane,
    have: RangeSet,
    largest_packet: Option<u64>,
    decoder: Decoder,
    longest_repair: usize,
}

impl RecvLane {
    /// Keeps `kept_symbols` of up to `symbol_bytes` for repairs.
    pub fn new(lane: Lane, kept_symbols: usize, symbol_bytes: usize) -> Self {
        let limits = Limits { kept_symbols, max_symbol_bytes: symbol_bytes, ..Limits::default() };
        let (have, decoder) = (RangeSet::default(), Decoder::new(limits));
        Self {
            lane,
            have,
            largest_packet: None,
            decoder,
            longest_repair: PREFIX_BYTES + symbol_bytes,
        }
    }

    /// Takes symbol `number`, carried by `packet`.
    pub fn arrive(&mut self, number: u64, packet: u64, content: &[u8]) -> Arrival {
        let arrival = self.note(number, packet);
        if let Arrival::New { .. } = arrival {
            self.decoder.source(number, content);
        }
        arrival
    }

    /// Takes a repair, carried by `packet`.
    pub fn repair(&mut self, span: Span, packet: u64, content: &[u8]) -> Result<bool, Malformed> {
        self.largest_packet = self.largest_packet.max(Some(packet));
        let have = &self.have;
        let ahead = span.end().saturating_sub(have.base());
        // A peer may have larger packets than we keep symbols for: its repairs are then of no use.
        if ahead == 0 || ahead > MAX_AHEAD || content.len() > self.longest_repair {
            return Ok(false);
        }
        self.decoder.repair(span, repair_key(packet), content, |number| have.contains(number))
    }

    /// A symbol that repairs have brought back; with `oldest_only`, just the oldest missing one.
    pub fn next_recovered(&mut self, oldest_only: bool) -> Option<(u64, Vec<u8>)> {
        while let Some((number, content)) = self.decoder.next_recovered() {
            let many = self.lane != Lane::Datagram && self.have.run_count() >= MAX_KEPT_RUNS;
            let full = oldest_only || many;
            if (!full || number == self.have.base()) && self.have.insert(number) {
                self.bound_runs();
                return Some((number, content));
            }
        }
        None
    }

    /// Memory that waits for repairs.
    pub fn coded_bytes(&self) -> usize {
        self.decoder.held_bytes()
    }

    /// Returns `true` if the lane cannot store symbol `number`.
    pub fn refuses(&self, number: u64) -> bool {
        let ahead = number.saturating_sub(self.have.base());
        let full = self.lane != Lane::Datagram && self.have.run_count() >= MAX_KEPT_RUNS;
        ahead > MAX_AHEAD || (ahead > 0 && full)
    }

    /// The sender gave up all below `base` that has not come: it is waited for no more. `false` when
    /// that is further than a sender can be.
    pub fn slide(&mut self, base: u64) -> bool {
        if base.saturating_sub(self.have.base()) > MAX_AHEAD {
            return false;
        }
        self.have.advance(base);
        self.decoder.forget_below(base);
        true
    }

    /// Forgets the contents that only a repair of symbols that are here could need. Such a repair then
    /// tells nothing new, which it hardly would have.
    pub fn give_back(&mut self) {
        self.decoder.forget_below(self.have.base());
    }

    fn note(&mut self, number: u64, packet: u64) -> Arrival {
        if self.refuses(number) {
            return Arrival::Refused;
        }
        self.largest_packet = self.largest_packet.max(Some(packet));
        let gap = number > self.have.end();
        let new = self.have.insert(number);
        self.bound_runs();
        if new { Arrival::New { gap } } else { Arrival::Duplicate }
    }

    /// Gives up the oldest symbols that are missing, where too many are and they may be.
    fn bound_runs(&mut self) {
        while self.lane == Lane::Datagram && self.have.run_count() > MAX_KEPT_RUNS {
            self.have.close_first_gap();
        }
    }

    /// The oldest symbol that has not come.
    pub fn base(&self) -> u64 {
        self.have.base()
    }

    /// Report for the sender in at most `most_runs` runs; `None` before the first symbol.
    pub fn report(&self, most_runs: usize) -> Option<LaneReport> {
        let largest = self.largest_packet?;
        let most_runs =
            if self.lane == Lane::Datagram { most_runs.min(DATAGRAM_RUNS) } else { most_runs };
        let truncated = self.have.run_count() > most_runs;
        let runs = self.have.runs().take(most_runs).collect();
        // Equations may outlive what they were for, where it was given up.
        let base = self.have.base();
        let groups = self.decoder.held().filter(|&(first, _)| first >= base).take(MAX_GROUPS);
        let held = groups.map(|(first, equations)| (first, u64::from(equations))).collect();
        Some(LaneReport { lane: self.lane, largest, base, runs, truncated, held })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bentpipe_coding::encode;

    use super::*;
    use crate::wire::codec::Reader;
    use crate::wire::report::{MAX_RUNS, Report};

    #[test]
    fn gaps_are_new_once_and_reports_name_them() {
        let mut lane = RecvLane::new(Lane::Bulk, 1024, 1500);
        assert_eq!(lane.report(MAX_RUNS), None);
        assert_eq!(lane.arrive(0, 10, &[]), Arrival::New { gap: false });
        assert_eq!(lane.arrive(2, 12, &[]), Arrival::New { gap: true });
        assert_eq!(lane.arrive(3, 13, &[]), Arrival::New { gap: false });
        assert_eq!(lane.arrive(2, 14, &[]), Arrival::Duplicate);
        assert_eq!(lane.arrive(MAX_AHEAD + 2, 15, &[]), Arrival::Refused);
        let report = lane.report(MAX_RUNS).unwrap();
        assert_eq!((report.largest, report.base, report.runs), (14, 1, vec![(2, 4)]));
    }

    #[test]
    fn a_report_of_a_shattered_lane_stops_short_and_says_so() {
        let mut lane = RecvLane::new(Lane::Bulk, 1024, 1500);
        for number in 0..1000 {
            lane.arrive(2 * number + 1, number, &[]);
        }
        let report = lane.report(MAX_RUNS).unwrap();
        assert!(report.truncated);
        assert_eq!(report.runs.len(), MAX_RUNS);
        assert_eq!(report.covers_below(), 2 * MAX_RUNS as u64);
    }

    #[test]
    fn datagrams_slide_when_told_and_when_too_many_are_missing() {
        let mut lane = RecvLane::new(Lane::Datagram, 1024, 1500);
        for number in 0..3000 {
            let arrival = lane.arrive(2 * number + 1, number, &[1]);
            assert_eq!(arrival, Arrival::New { gap: true });
        }
        assert_eq!(lane.base(), 2 * (3000 - MAX_KEPT_RUNS as u64));
        let report = lane.report(MAX_RUNS).unwrap();
        assert!(report.truncated && report.runs.len() == DATAGRAM_RUNS);
        assert!(lane.slide(5001));
        assert_eq!((lane.base(), lane.arrive(4998, 9000, &[])), (5002, Arrival::Duplicate));
        assert!(lane.slide(17), "old news");
        assert_eq!(lane.base(), 5002);
        assert!(!lane.slide(5003 + MAX_AHEAD), "nobody is so far ahead");
    }

    /// A repair over `count` symbols of one byte from `first`.
    fn repair(first: u64, count: u16, packet: u64) -> (Span, Vec<u8>) {
        let contents = vec![[1]; usize::from(count)];
        let contents: Vec<&[u8]> = contents.iter().map(|content| &content[..]).collect();
        let mut coded = Vec::new();
        encode(repair_key(packet), &contents, &mut coded);
        (Span::new(first, count).unwrap(), coded)
    }

    #[test]
    fn equations_for_what_was_given_up_are_not_reported() {
        let mut lane = RecvLane::new(Lane::Datagram, 1024, 1500);
        for (first, packet) in [(0, 0), (6, 1)] {
            let (span, coded) = repair(first, 2, packet);
            assert_eq!(lane.repair(span, packet, &coded), Ok(true));
        }
        // All but those in the way of one gap, so that the first gap is given up and no other.
        for index in 0..MAX_KEPT_RUNS as u64 {
            lane.arrive(if index == 0 { 3 } else { 2 * index + 9 }, 2 + index, &[1]);
        }
        assert_eq!(lane.report(MAX_RUNS).unwrap().held, [(0, 1), (6, 1)]);
        lane.arrive(2 * MAX_KEPT_RUNS as u64 + 9, 5000, &[1]);
        let report = lane.report(MAX_RUNS).unwrap();
        assert_eq!((report.base, &report.held[..]), (4, &[(6, 1)][..]));
        let lanes = vec![report];
        let packets = vec![(5000, 5001)];
        let (age, arrived) = (Duration::ZERO, Duration::ZERO);
        let (path, largest, late_by, marked) = (0, 5000, 0, 0);
        let report = Report { path, largest, age, arrived, late_by, packets, marked, lanes };
        let mut body = Vec::new();
        report.put(&mut body);
        assert_eq!(Report::parse(&mut Reader::new(&body)), Ok(report));
    }

    #[test]
    fn datagrams_that_only_repairs_bring_are_bounded_too() {
        let mut lane = RecvLane::new(Lane::Datagram, 1024, 1500);
        for number in 0..3000 {
            let (span, coded) = repair(2 * number + 1, 1, number);
            assert_eq!(lane.repair(span, number, &coded), Ok(true));
            assert_eq!(lane.next_recovered(false), Some((2 * number + 1, vec![1])));
        }
        assert_eq!(lane.base(), 2 * (3000 - MAX_KEPT_RUNS as u64));
    }

    #[test]
    fn runs_are_bounded_and_the_oldest_hole_can_always_be_filled() {
        let mut lane = RecvLane::new(Lane::Bulk, 1024, 1500);
        for number in 0..3000 {
            lane.arrive(2 * number + 1, number, &[]);
        }
        assert_eq!(lane.arrive(9001, 9001, &[]), Arrival::Refused);
        assert_eq!(lane.arrive(0, 9002, &[]), Arrival::New { gap: false });
    }
}
