//! Packets that left, until reports have told what became of them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lane::Lane;
use crate::wire::report::Report;

/// Packets remembered until they are judged: 56 bytes each, 3.5 MiB a path. Of one that was sent
/// longer ago nothing is learned.
const MAX_SENT: usize = 1 << 16;

/// Content of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cargo {
    /// The symbol, new or again.
    pub symbol: Option<(Lane, u64)>,
    /// It asks for a report.
    pub asks: bool,
    /// It finds out whether the path carries its size.
    pub probe: bool,
}

impl Cargo {
    /// A symbol, new or again.
    pub fn of(lane: Lane, number: u64) -> Self {
        Self { symbol: Some((lane, number)), asks: true, probe: false }
    }
}

/// A packet that left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub at: Duration,
    /// With its IP header.
    pub bytes: u32,
    /// Those of all packets up to this one.
    pub total_bytes: u64,
    /// It left right behind the one before.
    pub follows: bool,
    /// A report has named it.
    pub arrived: bool,
    pub cargo: Cargo,
}

impl Sent {
    /// Its bytes where somebody answers it, else 0.
    pub fn answered_bytes(&self) -> u64 {
        if self.cargo.asks { self.bytes.into() } else { 0 }
    }
}

/// A packet whose fate is settled.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    pub packet: u64,
    pub lost: bool,
    pub sent: Sent,
}

/// Number of judged packets, and of those that were lost.
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

/// Fates of packets from a report.
#[derive(Debug, Default)]
pub struct Fates {
    /// Each packet once and in the order of sending, which is what loss and its bursts are measured
    /// by: so one that came waits here for those before it that may only be late.
    pub judged: Vec<Judged>,
    /// Packets that no earlier report named, in the order of sending: their arrival is certain at
    /// once.
    pub arrived: Vec<(u64, Sent)>,
    /// Answered bytes whose fate no report tells, where there are such packets, because reports
    /// in between were lost.
    pub skipped_bytes: Option<u64>,
}

impl Fates {
    /// Those judged to be lost.
    pub fn lost(&self) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(|packet| packet.lost)
    }

    /// All that was judged.
    pub fn all(&self) -> Tally {
        Tally::of(self.judged.iter())
    }

    /// The same but for probes of the MTU, whose loss is no sign of congestion (RFC 8899, section
    /// 3), nor of what the path loses of packets that it carries.
    pub fn data(&self) -> Tally {
        Tally::of(self.judged.iter().filter(|packet| !packet.sent.cargo.probe))
    }
}

/// The newest packets of a path.
#[derive(Debug, Default)]
pub struct SentPackets {
    next: u64,
    /// Packets `next - len ..`.
    packets: VecDeque<Sent>,
    /// The next packet whose fate is to be judged.
    unjudged: u64,
    total_bytes: u64,
}

impl SentPackets {
    /// The number that the next packet will have.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// IP bytes of all packets so far.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Notes the next packet; gives back one that is forgotten before anything was heard of it.
    pub fn push(&mut self, sent: Sent) -> Option<Sent> {
        let first = self.first();
        let full = self.packets.len() == MAX_SENT;
        let forgotten = full.then(|| self.packets.pop_front()).flatten();
        self.total_bytes = sent.total_bytes;
        self.packets.push_back(sent);
        self.next += 1;
        forgotten.filter(|sent| first >= self.unjudged && !sent.arrived)
    }

    /// A packet that is still remembered.
    pub fn get(&self, packet: u64) -> Option<Sent> {
        self.packets.get(usize::try_from(packet.checked_sub(self.first())?).ok()?).copied()
    }

    /// The fates that `report` tells and none before it did. Of the newest `late_by` packets those
    /// that it does not name are still waited for.
    pub fn judge(&mut self, report: &Report, late_by: u64) -> Fates {
        let arrived = self.note_arrived(report);
        let mut end = report.largest.saturating_sub(late_by).min(self.next);
        let told = report.packets.last().map_or(end, |&(start, _)| start);
        let unjudged = self.unjudged.max(self.first());
        let from = unjudged.max(told).min(end.max(unjudged));
        let skips = from > self.unjudged;
        // What came in front of the first that is waited for waits for nothing.
        end = end.max(from);
        while self.get(end).is_some_and(|sent| sent.arrived) {
            end += 1;
        }
        let unknown = |packet| self.get(packet).filter(|sent| !sent.arrived);
        let skipped = (unjudged..from).filter_map(unknown).map(|sent| sent.answered_bytes());
        let skipped_bytes = skips.then(|| skipped.sum());
        let fate =
            |packet| self.get(packet).map(|sent| Judged { packet, lost: !sent.arrived, sent });
        let judged = (from..end).filter_map(fate).collect();
        self.unjudged = self.unjudged.max(end);
        // What is judged needs no memory, but the newest may be named again.
        while self.first() < report.largest.min(self.unjudged) {
            self.packets.pop_front();
        }
        Fates { judged, arrived, skipped_bytes }
    }

    /// Marks what `report` names; returns what was not marked before and is not judged yet.
    fn note_arrived(&mut self, report: &Report) -> Vec<(u64, Sent)> {
        let (first, from) = (self.first(), self.first().max(self.unjudged));
        let mut arrived = Vec::new();
        for &(start, end) in report.packets.iter().rev() {
            for packet in start.max(from)..end.min(self.next) {
                let sent = &mut self.packets[(packet - first) as usize];
                if !std::mem::replace(&mut sent.arrived, true) {
                    arrived.push((packet, *sent));
                }
            }
        }
        arrived
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
            let cargo = Cargo { asks: true, ..Cargo::default() };
            let sent = Sent { at, bytes: 100, follows: true, cargo, ..Sent::default() };
            assert!(all.push(sent).is_none());
        }
        all
    }

    fn report(packets: &[(u64, u64)]) -> Report {
        let (largest, packets) = (packets[0].1 - 1, packets.to_vec());
        let (age, arrived) = (Duration::ZERO, Duration::ZERO);
        Report { path: 0, largest, age, arrived, late_by: 0, marked: 0, packets, lanes: Vec::new() }
    }

    fn judged(fates: &Fates) -> Vec<(u64, bool)> {
        fates.judged.iter().map(|packet| (packet.packet, packet.lost)).collect()
    }

    fn arrived(fates: &Fates) -> Vec<u64> {
        fates.arrived.iter().map(|(packet, _)| *packet).collect()
    }

    #[test]
    fn every_packet_is_judged_once() {
        let mut all = sent(10);
        let fates = all.judge(&report(&[(3, 4), (0, 2)]), 0);
        assert_eq!(judged(&fates), [(0, false), (1, false), (2, true), (3, false)]);
        assert_eq!(arrived(&fates), [0, 1, 3]);
        assert_eq!((fates.all(), fates.skipped_bytes), (Tally { judged: 4, lost: 1 }, None));
        let fates = all.judge(&report(&[(5, 7), (3, 4), (0, 2)]), 0);
        assert_eq!(judged(&fates), [(4, true), (5, false), (6, false)]);
        assert_eq!(arrived(&fates), [5, 6]);
        assert_eq!(fates.skipped_bytes, None);
        assert!(all.get(5).is_none() && all.get(6).is_some());
    }

    #[test]
    fn what_no_report_tells_is_skipped_and_late_ones_are_waited_for() {
        let mut all = sent(10);
        let fates = all.judge(&report(&[(4, 8)]), 3);
        assert_eq!(judged(&fates), [(4, false), (5, false), (6, false), (7, false)]);
        assert_eq!(fates.skipped_bytes, Some(400));
        // A packet that is late by three comes when one three above it is here, and not after that.
        let mut all = sent(10);
        assert_eq!(judged(&all.judge(&report(&[(0, 4)]), 3)).len(), 4);
        assert!(judged(&all.judge(&report(&[(5, 8), (0, 4)]), 3)).is_empty());
        let fates = all.judge(&report(&[(5, 9), (0, 4)]), 3);
        assert_eq!(judged(&fates)[..2], [(4, true), (5, false)]);
        assert_eq!(fates.skipped_bytes, None);
    }

    #[test]
    fn what_came_counts_at_once_and_once_however_long_others_are_waited_for() {
        let mut all = sent(200);
        let fates = all.judge(&report(&[(11, 20), (0, 10)]), 64);
        assert_eq!(judged(&fates).last(), Some(&(9, false)), "10 may only be late");
        assert_eq!(arrived(&fates), (0..10).chain(11..20).collect::<Vec<_>>());
        // It comes, 20 does not, and a report later nobody tells of it any more.
        let fates = all.judge(&report(&[(21, 30), (0, 20)]), 64);
        assert_eq!(arrived(&fates), [10].into_iter().chain(21..30).collect::<Vec<_>>());
        assert_eq!(judged(&fates), (10..20).map(|packet| (packet, false)).collect::<Vec<_>>());
        let fates = all.judge(&report(&[(25, 100)]), 64);
        assert_eq!(arrived(&fates), (30..100).collect::<Vec<_>>());
        assert_eq!(judged(&fates).first(), Some(&(25, false)));
        assert_eq!(fates.skipped_bytes, Some(100), "of 20 to 24 only the first is unknown");
        let fates = all.judge(&report(&[(150, 160), (90, 100)]), 0);
        assert_eq!(fates.data(), Tally { judged: 60, lost: 50 });
        let lost: Vec<u64> = fates.lost().map(|packet| packet.packet).collect();
        assert_eq!(lost, (100..150).collect::<Vec<_>>());
    }

    #[test]
    fn probes_of_the_mtu_count_by_themselves() {
        let mut all = sent(1);
        let cargo = Cargo { probe: true, ..Cargo::default() };
        for _ in 0..2 {
            all.push(Sent { bytes: 100, cargo, ..Sent::default() });
        }
        let fates = all.judge(&report(&[(2, 3), (0, 1)]), 0);
        assert_eq!(fates.all(), Tally { judged: 3, lost: 1 });
        assert_eq!(fates.data(), Tally { judged: 1, lost: 0 });
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut all = sent(MAX_SENT as u64);
        assert_eq!(all.push(Sent::default()).map(|sent| sent.bytes), Some(100));
        assert!(all.get(0).is_none() && all.get(1).is_some());
        // Of the next it is known already that it came.
        assert_eq!(arrived(&all.judge(&report(&[(65, 66), (1, 2)]), 64)), [1, 65]);
        assert!(all.push(Sent::default()).is_none());
    }
}
