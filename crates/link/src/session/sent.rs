//! Packets sent, until reports reveal their outcome.

use std::collections::VecDeque;
use std::time::Duration;

use crate::flow::PacketCharge;
use crate::lane::Lane;
use crate::wire::report::Report;

/// Maximum number of packets recorded until they are judged: 65,536 × 56 bytes = 3.5 MiB for each
/// path. Older packets have no outcome.
const MAX_SENT: usize = 1 << 16;

/// Contents of a packet that matter for its outcome.
#[derive(Debug, Clone, Copy, Default)]
pub struct SentContents {
    /// Symbol in the packet, new or retransmitted.
    pub symbol: Option<(Lane, u64)>,
    /// The packet requests a report.
    pub asks: bool,
    /// The packet is an MTU probe.
    pub probe: bool,
    /// The packet has only padding, to learn the rate, or it is a copy on a path that may be dead.
    pub padding: bool,
}

/// Contents of a packet besides its uncoded part, and their charge.
pub type PacketContents = (SentContents, Option<PacketCharge>);

impl SentContents {
    /// Returns `true` if the outcome says how many repairs data needs. A probe may be too large, and
    /// a few packets of padding before the first data would outweigh the caution about the unknown. A
    /// dead path loses everything.
    pub fn teaches_loss(self) -> bool {
        !self.probe && !self.padding
    }

    /// Returns the contents of a packet with a symbol, new or retransmitted.
    pub fn of(lane: Lane, number: u64) -> Self {
        Self { symbol: Some((lane, number)), asks: true, ..Self::default() }
    }
}

/// A sent packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub at: Duration,
    /// Length with the IP header.
    pub bytes: u32,
    /// Sum of the lengths of all packets up to this one.
    pub total_bytes: u64,
    /// The packet was sent directly after the previous one.
    pub follows: bool,
    /// A report has named the packet.
    pub arrived: bool,
    /// The number was left out: there is no such packet.
    pub skipped: bool,
    pub contents: SentContents,
}

impl Sent {
    /// Length of the packet if it is acknowledged, otherwise 0.
    pub fn answered_bytes(&self) -> u64 {
        if self.contents.asks { self.bytes.into() } else { 0 }
    }
}

/// A packet with a final outcome.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    pub packet: u64,
    pub lost: bool,
    pub sent: Sent,
}

/// Number of judged packets, and of lost ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub judged: u64,
    pub lost: u64,
}

impl Tally {
    fn of<'a>(packets: impl Iterator<Item = &'a Judged>) -> Self {
        packets.fold(Self::default(), |sum, packet| Self {
            judged: sum.judged + 1,
            lost: sum.lost + u64::from(packet.lost),
        })
    }
}

/// Outcomes of packets from a report.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Each packet once, in the order of sending, which the measurement of loss and bursts
    /// requires. A packet that arrived waits here for earlier ones that may only be late.
    pub judged: Vec<Judged>,
    /// Packets that no earlier report named, in the order of sending; their arrival is certain at
    /// once.
    pub arrived: Vec<(u64, Sent)>,
    /// Acknowledged bytes without an outcome, if there are any, because reports in between were
    /// lost.
    pub skipped_bytes: Option<u64>,
}

impl Outcomes {
    /// Packets judged to be lost.
    pub fn lost(&self) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(|packet| packet.lost)
    }

    /// Largest number of consecutive packets that were judged to be lost.
    pub fn longest_loss(&self) -> u64 {
        let runs = self.judged.chunk_by(|a, b| a.lost == b.lost);
        runs.filter(|run| run[0].lost).map(|run| run.len() as u64).max().unwrap_or(0)
    }

    /// Counts of all judged packets.
    pub fn all(&self) -> Tally {
        Tally::of(self.judged.iter())
    }

    /// Counts without MTU probes, whose loss is neither a sign of congestion (RFC 8899, section 3)
    /// nor of the loss of packets that fit.
    pub fn data(&self) -> Tally {
        Tally::of(self.judged.iter().filter(|packet| !packet.sent.contents.probe))
    }
}

/// The newest packets of a path.
#[derive(Debug, Default)]
pub struct SentPackets {
    next: u64,
    /// Packets `next - len ..`.
    packets: VecDeque<Sent>,
    /// The next packet to be judged.
    unjudged: u64,
    total_bytes: u64,
}

impl SentPackets {
    /// Number of the next packet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// IP bytes of all packets so far.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Adds the next packet. Returns a packet that is dropped without an outcome.
    pub fn push(&mut self, sent: Sent) -> Option<Sent> {
        let first = self.first();
        let full = self.packets.len() == MAX_SENT;
        let forgotten = full.then(|| self.packets.pop_front()).flatten();
        self.total_bytes = sent.total_bytes;
        self.packets.push_back(sent);
        self.next += 1;
        forgotten.filter(|sent| first >= self.unjudged && !sent.arrived)
    }

    /// Leaves the next number out. Returns a packet that is dropped without an outcome.
    pub fn skip(&mut self) -> Option<Sent> {
        // Nobody waits for it.
        let (total_bytes, arrived) = (self.total_bytes, true);
        self.push(Sent { total_bytes, arrived, skipped: true, ..Sent::default() })
    }

    /// Returns a packet that is still recorded.
    pub fn get(&self, packet: u64) -> Option<Sent> {
        self.packets.get(usize::try_from(packet.checked_sub(self.first())?).ok()?).copied()
    }

    /// Returns the outcomes that `report` reveals, or `None` if it names a number that was left out.
    /// The newest `late_by` packets have no outcome yet unless the report names them.
    pub fn judge(&mut self, report: &Report, late_by: u64) -> Option<Outcomes> {
        let arrived = self.note_arrived(report)?;
        let mut end = report.largest.saturating_sub(late_by).min(self.next);
        let told = report.packets.last().map_or(end, |&(start, _)| start);
        let unjudged = self.unjudged.max(self.first());
        let from = unjudged.max(told).min(end.max(unjudged));
        let skips = from > self.unjudged;
        // Packets before the first one waited for are judged now.
        end = end.max(from);
        while self.get(end).is_some_and(|sent| sent.arrived) {
            end += 1;
        }
        let unknown = |packet| self.get(packet).filter(|sent| !sent.arrived);
        let skipped = (unjudged..from).filter_map(unknown).map(|sent| sent.answered_bytes());
        let skipped_bytes = skips.then(|| skipped.sum());
        let fate = |packet| {
            let sent = self.get(packet).filter(|sent| !sent.skipped)?;
            Some(Judged { packet, lost: !sent.arrived, sent })
        };
        let judged = (from..end).filter_map(fate).collect();
        self.unjudged = self.unjudged.max(end);
        // Judged packets need no record, except that the newest may be named again.
        while self.first() < report.largest.min(self.unjudged) {
            self.packets.pop_front();
        }
        Some(Outcomes { judged, arrived, skipped_bytes })
    }

    /// Marks the packets in `report`. Returns those that were neither marked nor judged before, or
    /// `None` if one of them was never sent.
    fn note_arrived(&mut self, report: &Report) -> Option<Vec<(u64, Sent)>> {
        let (first, from) = (self.first(), self.first().max(self.unjudged));
        let mut arrived = Vec::new();
        for &(start, end) in report.packets.iter().rev() {
            for packet in start.max(from)..end.min(self.next) {
                let sent = &mut self.packets[(packet - first) as usize];
                if sent.skipped {
                    return None;
                }
                if !std::mem::replace(&mut sent.arrived, true) {
                    arrived.push((packet, *sent));
                }
            }
        }
        Some(arrived)
    }

    fn first(&self) -> u64 {
        self.next - self.packets.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(packets: u64) -> SentPackets {
        let mut all = SentPackets::default();
        for packet in 0..packets {
            let at = Duration::from_millis(packet);
            let contents = SentContents { asks: true, ..SentContents::default() };
            let sent = Sent { at, bytes: 100, follows: true, contents, ..Sent::default() };
            assert!(all.push(sent).is_none());
        }
        all
    }

    fn report(packets: &[(u64, u64)]) -> Report {
        let (largest, packets) = (packets[0].1 - 1, packets.to_vec());
        let (age, arrived) = (Duration::ZERO, Duration::ZERO);
        Report { path: 0, largest, age, arrived, late_by: 0, marked: 0, packets, lanes: Vec::new() }
    }

    fn judge(all: &mut SentPackets, packets: &[(u64, u64)], late_by: u64) -> Outcomes {
        all.judge(&report(packets), late_by).expect("all were sent")
    }

    fn judged(outcomes: &Outcomes) -> Vec<(u64, bool)> {
        outcomes.judged.iter().map(|packet| (packet.packet, packet.lost)).collect()
    }

    fn arrived(outcomes: &Outcomes) -> Vec<u64> {
        outcomes.arrived.iter().map(|(packet, _)| *packet).collect()
    }

    #[test]
    fn every_packet_is_judged_once() {
        let mut all = sent(10);
        let outcomes = judge(&mut all, &[(3, 4), (0, 2)], 0);
        assert_eq!(judged(&outcomes), [(0, false), (1, false), (2, true), (3, false)]);
        assert_eq!(arrived(&outcomes), [0, 1, 3]);
        assert_eq!((outcomes.all(), outcomes.skipped_bytes), (Tally { judged: 4, lost: 1 }, None));
        let outcomes = judge(&mut all, &[(5, 7), (3, 4), (0, 2)], 0);
        assert_eq!(judged(&outcomes), [(4, true), (5, false), (6, false)]);
        assert_eq!(arrived(&outcomes), [5, 6]);
        assert_eq!(outcomes.skipped_bytes, None);
        assert!(all.get(5).is_none() && all.get(6).is_some());
    }

    #[test]
    fn unreported_packets_are_skipped_and_late_ones_are_waited_for() {
        let mut all = sent(10);
        let outcomes = judge(&mut all, &[(4, 8)], 3);
        assert_eq!(judged(&outcomes), [(4, false), (5, false), (6, false), (7, false)]);
        assert_eq!(outcomes.skipped_bytes, Some(400));
        // A packet overtaken by three arrives when one three above it has arrived, and not after
        // that.
        let mut all = sent(10);
        assert_eq!(judged(&judge(&mut all, &[(0, 4)], 3)).len(), 4);
        assert!(judged(&judge(&mut all, &[(5, 8), (0, 4)], 3)).is_empty());
        let outcomes = judge(&mut all, &[(5, 9), (0, 4)], 3);
        assert_eq!(judged(&outcomes)[..2], [(4, true), (5, false)]);
        assert_eq!(outcomes.skipped_bytes, None);
    }

    #[test]
    fn an_arrival_counts_at_once_and_only_once() {
        let mut all = sent(200);
        let outcomes = judge(&mut all, &[(11, 20), (0, 10)], 64);
        assert_eq!(judged(&outcomes).last(), Some(&(9, false)), "10 may only be late");
        assert_eq!(arrived(&outcomes), (0..10).chain(11..20).collect::<Vec<_>>());
        // It arrives, 20 does not, and one report later none can name it any more.
        let outcomes = judge(&mut all, &[(21, 30), (0, 20)], 64);
        assert_eq!(arrived(&outcomes), [10].into_iter().chain(21..30).collect::<Vec<_>>());
        assert_eq!(judged(&outcomes), (10..20).map(|packet| (packet, false)).collect::<Vec<_>>());
        let outcomes = judge(&mut all, &[(25, 100)], 64);
        assert_eq!(arrived(&outcomes), (30..100).collect::<Vec<_>>());
        assert_eq!(judged(&outcomes).first(), Some(&(25, false)));
        assert_eq!(outcomes.skipped_bytes, Some(100), "of 20 to 24 only the first is unknown");
        let outcomes = judge(&mut all, &[(150, 160), (90, 100)], 0);
        assert_eq!(outcomes.data(), Tally { judged: 60, lost: 50 });
        let lost: Vec<u64> = outcomes.lost().map(|packet| packet.packet).collect();
        assert_eq!(lost, (100..150).collect::<Vec<_>>());
    }

    #[test]
    fn mtu_probes_are_counted_separately() {
        let mut all = sent(1);
        let contents = SentContents { probe: true, ..SentContents::default() };
        for _ in 0..2 {
            all.push(Sent { bytes: 100, contents, ..Sent::default() });
        }
        let outcomes = judge(&mut all, &[(2, 3), (0, 1)], 0);
        assert_eq!(outcomes.all(), Tally { judged: 3, lost: 1 });
        assert_eq!(outcomes.data(), Tally { judged: 1, lost: 0 });
    }

    #[test]
    fn the_oldest_packets_are_dropped() {
        let mut all = sent(MAX_SENT as u64);
        assert_eq!(all.push(Sent::default()).map(|sent| sent.bytes), Some(100));
        assert!(all.get(0).is_none() && all.get(1).is_some());
        // The next packet is already known to have arrived.
        assert_eq!(arrived(&judge(&mut all, &[(65, 66), (1, 2)], 64)), [1, 65]);
        assert!(all.push(Sent::default()).is_none());
    }

    #[test]
    fn a_number_that_was_left_out_has_no_outcome_and_must_not_be_reported() {
        let rig = || {
            let mut all = sent(3);
            assert!(all.skip().is_none());
            all.push(Sent { bytes: 100, ..Sent::default() });
            all
        };
        let outcomes = judge(&mut rig(), &[(4, 5), (0, 2)], 0);
        assert_eq!(judged(&outcomes), [(0, false), (1, false), (2, true), (4, false)]);
        assert_eq!(outcomes.all(), Tally { judged: 4, lost: 1 });
        for lie in [vec![(0, 5)], vec![(3, 4), (0, 2)], vec![(4, 5), (3, 4)]] {
            assert!(rig().judge(&report(&lie), 0).is_none(), "{lie:?}");
        }
    }
}
