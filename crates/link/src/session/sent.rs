//! Packets that left, until reports have told what became of them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lane::Lane;
use crate::wire::report::Report;

/// Packets remembered until they are judged: 48 bytes each, 3 MiB a path. Of one that was sent
/// longer ago nothing is learned.
const MAX_SENT: usize = 1 << 16;

/// What a packet carries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cargo {
    /// The symbol, new or again.
    pub symbol: Option<(Lane, u64)>,
    /// It asks for a report.
    pub asks: bool,
    /// It finds out whether the path carries its size.
    pub probe: bool,
}

/// A packet that left.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Duration,
    /// With its IP header.
    pub bytes: u32,
    /// Those of all packets up to this one.
    pub total_bytes: u64,
    /// It left right behind the one before.
    pub follows: bool,
    pub cargo: Cargo,
}

impl Sent {
    /// Its bytes where somebody answers it, else 0.
    pub fn answered_bytes(&self) -> u64 {
        if self.cargo.asks { self.bytes.into() } else { 0 }
    }
}

/// A packet whose fate a report tells.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    pub packet: u64,
    pub lost: bool,
    pub sent: Sent,
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

    /// Notes the next packet; gives back one that is forgotten without having been judged.
    pub fn push(&mut self, sent: Sent) -> Option<Sent> {
        let first = self.first();
        let full = self.packets.len() == MAX_SENT;
        let forgotten = full.then(|| self.packets.pop_front()).flatten();
        self.total_bytes = sent.total_bytes;
        self.packets.push_back(sent);
        self.next += 1;
        forgotten.filter(|_| first >= self.unjudged)
    }

    /// A packet that is still remembered.
    pub fn get(&self, packet: u64) -> Option<Sent> {
        self.packets.get(usize::try_from(packet.checked_sub(self.first())?).ok()?).copied()
    }

    /// The fates that `report` tells and none before it did, in the order of sending; and how many
    /// answered bytes it skips, where it does, because reports in between were lost. The newest
    /// `late_by` packets are still waited for.
    pub fn judge(&mut self, report: &Report, late_by: u64) -> (Vec<Judged>, Option<u64>) {
        let end = (report.largest + 1).saturating_sub(late_by).min(self.next);
        let told = report.packets.last().map_or(end, |&(start, _)| start);
        let unjudged = self.unjudged.max(self.first());
        let from = unjudged.max(told).min(end.max(unjudged));
        let skips = from > self.unjudged;
        let bytes = |packet| self.get(packet).map_or(0, |sent: Sent| sent.answered_bytes());
        let skipped = skips.then(|| (unjudged..from).map(bytes).sum());
        let mut judged = Vec::new();
        let mut runs = report.packets.iter().rev().peekable();
        for packet in from..end {
            while runs.next_if(|(_, end)| *end <= packet).is_some() {}
            let lost = runs.peek().is_none_or(|(start, _)| *start > packet);
            if let Some(sent) = self.get(packet) {
                judged.push(Judged { packet, lost, sent });
            }
        }
        self.unjudged = self.unjudged.max(from).max(end);
        // What is judged needs no memory, but the newest may be named again.
        while self.first() < report.largest.min(self.unjudged) {
            self.packets.pop_front();
        }
        (judged, skipped)
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
            let forgotten = all.push(Sent { at, bytes: 100, total_bytes: 0, follows: true, cargo });
            assert!(forgotten.is_none());
        }
        all
    }

    fn report(packets: &[(u64, u64)]) -> Report {
        let (largest, packets) = (packets[0].1 - 1, packets.to_vec());
        let (age, arrived) = (Duration::ZERO, Duration::ZERO);
        Report { path: 0, largest, age, arrived, late_by: 0, marked: 0, packets, lanes: Vec::new() }
    }

    fn fates(judged: &[Judged]) -> Vec<(u64, bool)> {
        judged.iter().map(|packet| (packet.packet, packet.lost)).collect()
    }

    #[test]
    fn every_packet_is_judged_once() {
        let mut all = sent(10);
        let (judged, skipped) = all.judge(&report(&[(3, 4), (0, 2)]), 0);
        assert_eq!(fates(&judged), [(0, false), (1, false), (2, true), (3, false)]);
        assert_eq!(skipped, None);
        let (judged, skipped) = all.judge(&report(&[(5, 7), (3, 4), (0, 2)]), 0);
        assert_eq!(fates(&judged), [(4, true), (5, false), (6, false)]);
        assert_eq!((skipped, all.get(5).is_none(), all.get(6).is_some()), (None, true, true));
    }

    #[test]
    fn what_no_report_tells_is_skipped_and_late_ones_are_waited_for() {
        let mut all = sent(10);
        let (judged, skipped) = all.judge(&report(&[(4, 8)]), 3);
        assert_eq!(fates(&judged), [(4, false)]);
        assert_eq!(skipped, Some(400));
        let (judged, _) = all.judge(&report(&[(8, 9), (4, 7)]), 0);
        assert_eq!(fates(&judged), [(5, false), (6, false), (7, true), (8, false)]);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut all = sent(MAX_SENT as u64);
        let cargo = Cargo::default();
        let newest = Sent { at: Duration::ZERO, bytes: 7, total_bytes: 0, follows: false, cargo };
        assert_eq!(all.push(newest).map(|sent| sent.bytes), Some(100));
        assert!(all.get(0).is_none() && all.get(1).is_some());
    }
}
