//! The receiving half of a lane: symbols received, and the next report on them.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::{Decoder, Limits, Malformed, PREFIX_BYTES, Span};

use super::limits::{MAX_AHEAD, repair_key};
use super::{Lane, RangeSet};
use crate::wire::header::{MAX_PATHS, PacketId};
use crate::wire::report::{LaneReport, MAX_GROUPS};

/// Maximum number of runs above the base: 2,048 runs × 48 bytes ≈ 100 KiB for each lane. Beyond it,
/// the datagram lane gives up its oldest gap, and a reliable lane accepts no more symbols.
const MAX_KEPT_RUNS: usize = 2048;

/// Maximum number of runs of the datagram lane in a report; packet outcomes cover the rest.
const DATAGRAM_RUNS: usize = 32;

/// Number of parts in which contents age.
const BASES: u32 = 4;

/// Effect of an arriving symbol on the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The symbol is new. `gap` says that it shows symbols before it to be missing.
    New { gap: bool },
    /// The symbol had arrived before.
    Duplicate,
    /// The symbol is outside what the lane can store, and was not accepted.
    Refused,
}

/// The receiving half of a lane.
pub struct RecvLane {
    lane: Lane,
    have: RangeSet,
    /// The largest packet of each path that carried something of this lane.
    largest_packet: [Option<u64>; MAX_PATHS as usize],
    decoder: Decoder,
    longest_repair: usize,
    /// Earlier bases with their times, oldest first: at most [`BASES`] and one.
    bases: VecDeque<(Duration, u64)>,
}

impl RecvLane {
    /// Creates a lane that keeps `cached_symbols` symbols of up to `symbol_bytes` for repairs.
    pub fn new(lane: Lane, cached_symbols: usize, symbol_bytes: usize) -> Self {
        let limits = Limits { cached_symbols, max_symbol_bytes: symbol_bytes, ..Limits::default() };
        let (have, decoder) = (RangeSet::default(), Decoder::new(limits));
        Self {
            lane,
            have,
            largest_packet: [None; MAX_PATHS as usize],
            decoder,
            longest_repair: PREFIX_BYTES + symbol_bytes,
            bases: VecDeque::new(),
        }
    }

    /// Handles symbol `number`, received in `packet`.
    pub fn arrive(&mut self, number: u64, packet: PacketId, content: &[u8]) -> Arrival {
        let arrival = self.note(number, packet);
        if let Arrival::New { .. } = arrival {
            self.decoder.source(number, content);
        }
        arrival
    }

    /// Handles a repair, received in `packet`. Returns `false` if it was of no use.
    pub fn repair(
        &mut self,
        span: Span,
        packet: PacketId,
        content: &[u8],
    ) -> Result<bool, Malformed> {
        self.note_packet(packet);
        let have = &self.have;
        let ahead = span.end().saturating_sub(have.base());
        // The repairs of a peer with larger packets than we keep symbols for are of no use.
        if ahead == 0 || ahead > MAX_AHEAD || content.len() > self.longest_repair {
            return Ok(false);
        }
        self.decoder.repair(span, repair_key(packet), content, |number| have.contains(number))
    }

    /// Takes a symbol that repairs recovered; with `oldest_only`, only the oldest missing symbol.
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

    /// Memory kept for repairs.
    pub fn coded_bytes(&self) -> usize {
        self.decoder.memory_bytes()
    }

    /// Returns `true` if the lane cannot store symbol `number`.
    pub fn refuses(&self, number: u64) -> bool {
        let ahead = number.saturating_sub(self.have.base());
        let full = self.lane != Lane::Datagram && self.have.run_count() >= MAX_KEPT_RUNS;
        ahead > MAX_AHEAD || (ahead > 0 && full)
    }

    /// Stops waiting for symbols below `base`, which the sender gave up. Returns `false` if no
    /// correct sender can have advanced so far.
    pub fn slide(&mut self, base: u64) -> bool {
        if base.saturating_sub(self.have.base()) > MAX_AHEAD {
            return false;
        }
        self.have.advance(base);
        self.decoder.forget_below(base);
        true
    }

    /// Frees contents that only a repair over symbols that have arrived could need. Such a repair
    /// would hardly have been of use.
    pub fn free_decoded(&mut self) {
        self.decoder.forget_below(self.have.base());
    }

    /// Frees contents that only a repair over symbols that had arrived `age` ago could need: by then
    /// the sender knows from reports that it need not repair them.
    pub fn free_older(&mut self, age: Duration, now: Duration) {
        let since = |at: Duration| now.saturating_sub(at);
        if self.bases.back().is_none_or(|(at, _)| since(*at) >= age / BASES) {
            self.bases.push_back((now, self.have.base()));
        }
        while let Some((_, base)) = self.bases.front().filter(|(at, _)| since(*at) >= age) {
            self.decoder.forget_below(*base);
            self.bases.pop_front();
        }
    }

    fn note(&mut self, number: u64, packet: PacketId) -> Arrival {
        if self.refuses(number) {
            return Arrival::Refused;
        }
        self.note_packet(packet);
        let gap = number > self.have.end();
        let new = self.have.insert(number);
        self.bound_runs();
        if new { Arrival::New { gap } } else { Arrival::Duplicate }
    }

    /// Gives up the oldest gaps of the datagram lane if there are too many.
    fn bound_runs(&mut self) {
        while self.lane == Lane::Datagram && self.have.run_count() > MAX_KEPT_RUNS {
            self.have.close_first_gap();
        }
    }

    /// The oldest missing symbol.
    pub fn base(&self) -> u64 {
        self.have.base()
    }

    fn note_packet(&mut self, packet: PacketId) {
        if let Some(largest) = self.largest_packet.get_mut(usize::from(packet.path)) {
            *largest = (*largest).max(Some(packet.number));
        }
    }

    /// Report of `path` for the sender with at most `max_runs` runs; `None` before the first symbol
    /// on this path.
    pub fn report(&self, path: u8, max_runs: usize) -> Option<LaneReport> {
        let largest = self.largest_packet.get(usize::from(path)).copied().flatten()?;
        let max_runs =
            if self.lane == Lane::Datagram { max_runs.min(DATAGRAM_RUNS) } else { max_runs };
        let truncated = self.have.run_count() > max_runs;
        let runs = self.have.runs().take(max_runs).collect();
        // The equations of given-up symbols may still be here.
        let base = self.have.base();
        let groups = self.decoder.equations().filter(|&(first, _)| first >= base).take(MAX_GROUPS);
        let held = groups.map(|(first, equations)| (first, u64::from(equations))).collect();
        Some(LaneReport { lane: self.lane, largest, base, runs, truncated, held })
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_coding::encode;

    use super::*;
    use crate::wire::codec::Reader;
    use crate::wire::report::{MAX_RUNS, Report};

    #[test]
    fn a_gap_is_new_once_and_named_in_reports() {
        let mut lane = RecvLane::new(Lane::Bulk, 1024, 1500);
        assert_eq!(lane.report(0, MAX_RUNS), None);
        assert_eq!(lane.arrive(0, 10.into(), &[]), Arrival::New { gap: false });
        assert_eq!(lane.arrive(2, 12.into(), &[]), Arrival::New { gap: true });
        assert_eq!(lane.arrive(3, 13.into(), &[]), Arrival::New { gap: false });
        assert_eq!(lane.arrive(2, 14.into(), &[]), Arrival::Duplicate);
        assert_eq!(lane.arrive(MAX_AHEAD + 2, 15.into(), &[]), Arrival::Refused);
        let report = lane.report(0, MAX_RUNS).unwrap();
        assert_eq!((report.largest, report.base, report.runs), (14, 1, vec![(2, 4)]));
    }

    #[test]
    fn a_report_with_too_many_runs_is_marked_as_truncated() {
        let mut lane = RecvLane::new(Lane::Bulk, 1024, 1500);
        for number in 0..1000 {
            lane.arrive(2 * number + 1, number.into(), &[]);
        }
        let report = lane.report(0, MAX_RUNS).unwrap();
        assert!(report.truncated);
        assert_eq!(report.runs.len(), MAX_RUNS);
        assert_eq!(report.covers_below(), 2 * MAX_RUNS as u64);
    }

    #[test]
    fn the_datagram_lane_slides_on_a_slide_and_when_too_many_are_missing() {
        let mut lane = RecvLane::new(Lane::Datagram, 1024, 1500);
        for number in 0..3000 {
            let arrival = lane.arrive(2 * number + 1, number.into(), &[1]);
            assert_eq!(arrival, Arrival::New { gap: true });
        }
        assert_eq!(lane.base(), 2 * (3000 - MAX_KEPT_RUNS as u64));
        let report = lane.report(0, MAX_RUNS).unwrap();
        assert!(report.truncated && report.runs.len() == DATAGRAM_RUNS);
        assert!(lane.slide(5001));
        assert_eq!((lane.base(), lane.arrive(4998, 9000.into(), &[])), (5002, Arrival::Duplicate));
        assert!(lane.slide(17), "old news");
        assert_eq!(lane.base(), 5002);
        assert!(!lane.slide(5003 + MAX_AHEAD), "no sender is so far ahead");
    }

    /// Returns a repair over `count` symbols of one byte from `first`.
    fn repair(first: u64, count: u16, packet: u64) -> (Span, Vec<u8>) {
        let contents = vec![[1]; usize::from(count)];
        let contents: Vec<&[u8]> = contents.iter().map(|content| &content[..]).collect();
        let mut coded = Vec::new();
        encode(repair_key(packet.into()), &contents, &mut coded);
        (Span::new(first, count).unwrap(), coded)
    }

    #[test]
    fn contents_are_kept_as_long_as_a_repair_may_need_them() {
        let mut lane = RecvLane::new(Lane::Bulk, 4096, 1500);
        let (age, mut most) = (Duration::from_secs(2), 0);
        for number in 0..4000 {
            lane.arrive(number, number.into(), &[1; 1000]);
            // 100 symbols a second.
            lane.free_older(age, Duration::from_millis(10 * number));
            most = most.max(lane.coded_bytes());
        }
        assert!((200_000..300_000).contains(&most), "{most} bytes");
        let (span, mut coded) = (Span::new(3850, 151).unwrap(), Vec::new());
        encode(repair_key(9000.into()), &[&[1; 1000][..]; 151], &mut coded);
        let useful = lane.repair(span, 9000.into(), &coded);
        assert_eq!(useful, Ok(true), "the contents of the last 1.5 s are there");
        assert_eq!(lane.next_recovered(false), Some((4000, vec![1; 1000])));
    }

    #[test]
    fn equations_of_given_up_symbols_are_not_reported() {
        let mut lane = RecvLane::new(Lane::Datagram, 1024, 1500);
        for (first, packet) in [(0, 0), (6, 1)] {
            let (span, coded) = repair(first, 2, packet);
            assert_eq!(lane.repair(span, packet.into(), &coded), Ok(true));
        }
        // All except those of one gap, so that the first gap is given up and no other.
        for index in 0..MAX_KEPT_RUNS as u64 {
            lane.arrive(if index == 0 { 3 } else { 2 * index + 9 }, (2 + index).into(), &[1]);
        }
        assert_eq!(lane.report(0, MAX_RUNS).unwrap().held, [(0, 1), (6, 1)]);
        lane.arrive(2 * MAX_KEPT_RUNS as u64 + 9, 5000.into(), &[1]);
        let report = lane.report(0, MAX_RUNS).unwrap();
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
    fn recovered_datagrams_are_bounded_too() {
        let mut lane = RecvLane::new(Lane::Datagram, 1024, 1500);
        for number in 0..3000 {
            let (span, coded) = repair(2 * number + 1, 1, number);
            assert_eq!(lane.repair(span, number.into(), &coded), Ok(true));
            assert_eq!(lane.next_recovered(false), Some((2 * number + 1, vec![1])));
        }
        assert_eq!(lane.base(), 2 * (3000 - MAX_KEPT_RUNS as u64));
    }

    #[test]
    fn runs_are_bounded_and_the_oldest_gap_can_always_be_filled() {
        let mut lane = RecvLane::new(Lane::Bulk, 1024, 1500);
        for number in 0..3000 {
            lane.arrive(2 * number + 1, number.into(), &[]);
        }
        assert_eq!(lane.arrive(9001, 9001.into(), &[]), Arrival::Refused);
        assert_eq!(lane.arrive(0, 9002.into(), &[]), Arrival::New { gap: false });
    }
}
