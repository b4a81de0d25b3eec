//! Packets in flight and their SACK state.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::segment::Block;

/// The scoreboard of section V.D, "which remembers acknowledgements from previous SACK options".
///
/// Packets are in the order of their numbers and keep their boundaries: a retransmission is the
/// same packet.
#[derive(Debug, Default)]
pub struct Scoreboard {
    packets: VecDeque<Packet>,
    /// Index of the first possible hole. All packets before it were reported in a SACK block or
    /// retransmitted. It never moves back: neither state is ever undone.
    first_hole: usize,
    /// Number after the highest packet that a SACK block reported or that was given up. Every
    /// unreported packet below it is missing.
    judged: u64,
    bytes: usize,
}

/// A packet that was sent.
#[derive(Debug, Clone)]
pub struct Packet {
    /// First sequence number.
    pub start: u64,
    /// Number after the last one.
    pub end: u64,
    /// `true` if it carries the SYN.
    pub syn: bool,
    /// `true` if it carries the FIN.
    pub fin: bool,
    /// Its bytes.
    pub payload: Bytes,
    /// Time of the last transmission.
    pub sent_at: Duration,
    /// `true` if it was sent more than once.
    pub again: bool,
    sacked: bool,
}

/// Result of an acknowledgement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AckResult {
    /// Number of packets newly known to have arrived.
    pub arrived: usize,
    /// Time at which the newest of them was sent, if it was sent only once (Karn's rule).
    pub sent_at: Option<Duration>,
}

impl Scoreboard {
    /// Adds a packet that is sent for the first time. Its numbers are after all others.
    pub fn push(&mut self, packet: Packet) {
        debug_assert!(self.packets.back().is_none_or(|last| last.end == packet.start));
        self.bytes += packet.payload.len();
        self.packets.push_back(packet);
    }

    /// Number of packets in flight.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Number of bytes in flight.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Oldest packet in flight.
    pub fn oldest(&self) -> Option<&Packet> {
        self.packets.front()
    }

    /// Removes packets that end at or before `number`.
    pub fn acknowledge(&mut self, number: u64) -> AckResult {
        let mut news = AckResult::default();
        while let Some(first) = self.packets.front().filter(|first| first.end <= number) {
            if !first.sacked {
                news.arrived += 1;
                news.sent_at = (!first.again).then_some(first.sent_at);
            }
            self.bytes -= first.payload.len();
            self.first_hole = self.first_hole.saturating_sub(1);
            self.packets.pop_front();
        }
        news
    }

    /// Marks the packets that `block` covers.
    pub fn sack(&mut self, block: Block) -> AckResult {
        let mut news = AckResult::default();
        let from = self.packets.partition_point(|packet| packet.start < block.start);
        for packet in self.packets.range_mut(from..) {
            if packet.end > block.end {
                break;
            }
            self.judged = self.judged.max(packet.end);
            if !packet.sacked {
                packet.sacked = true;
                news.arrived += 1;
                news.sent_at = (!packet.again).then_some(packet.sent_at);
            }
        }
        news
    }

    /// Takes the next packet "inferred to be missing at the receiver" that was not retransmitted:
    /// one below a packet that has arrived, because a satellite channel keeps the order, or one
    /// given up. The packet counts as retransmitted from now on.
    pub fn take_hole(&mut self, now: Duration) -> Option<Packet> {
        while let Some(packet) = self.packets.get_mut(self.first_hole) {
            if packet.end > self.judged {
                return None;
            }
            self.first_hole += 1;
            if !packet.sacked && !packet.again {
                return Some(packet.send_again(now));
            }
        }
        None
    }

    /// Marks all packets sent up to `before`, and neither reported nor retransmitted, as missing.
    pub fn give_up(&mut self, before: Duration) {
        let overdue = self.packets.iter().rev().find(|p| !p.again && p.sent_at <= before);
        self.judged = overdue.map_or(self.judged, |packet| self.judged.max(packet.end));
    }

    /// Number of packets sent since `since` and not known to have arrived.
    pub fn sent_since(&self, since: Duration) -> usize {
        self.packets.iter().filter(|packet| !packet.sacked && packet.sent_at > since).count()
    }

    /// Takes the oldest packet for a retransmission.
    pub fn send_oldest_again(&mut self, now: Duration) -> Option<Packet> {
        self.packets.front_mut().map(|packet| packet.send_again(now))
    }
}

impl Packet {
    /// Creates a packet that is sent for the first time.
    pub fn new(start: u64, syn: bool, fin: bool, payload: Bytes, now: Duration) -> Self {
        let end = start + payload.len() as u64 + u64::from(syn) + u64::from(fin);
        Self { start, end, syn, fin, payload, sent_at: now, again: false, sacked: false }
    }

    fn send_again(&mut self, now: Duration) -> Self {
        self.again = true;
        self.sent_at = now;
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets 1 to `last`, one number each.
    fn sent(last: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for number in 1..=last {
            let at = Duration::from_millis(number);
            board.push(Packet::new(number, false, false, Bytes::from_static(b"x"), at));
        }
        board
    }

    fn block(start: u64, end: u64) -> Block {
        Block { start, end }
    }

    #[test]
    fn holes_are_below_an_arrival_and_reported_once() {
        let mut board = sent(8);
        let now = Duration::from_secs(1);
        assert!(board.take_hole(now).is_none(), "nothing has been reported");
        assert_eq!(board.sack(block(3, 4)).arrived, 1);
        assert_eq!(board.sack(block(3, 6)).arrived, 2, "a block that has grown");
        let holes: Vec<u64> =
            std::iter::from_fn(|| board.take_hole(now)).map(|p| p.start).collect();
        assert_eq!(holes, [1, 2]);
        assert!(board.take_hole(now).is_none(), "6 to 8 may still be under way");
        let news = board.sack(block(8, 9));
        assert_eq!(news, AckResult { arrived: 1, sent_at: Some(Duration::from_millis(8)) });
        let holes: Vec<u64> =
            std::iter::from_fn(|| board.take_hole(now)).map(|p| p.start).collect();
        assert_eq!(holes, [6, 7]);
    }

    #[test]
    fn an_acknowledgement_reports_new_arrivals() {
        let mut board = sent(4);
        board.sack(block(2, 4));
        board.take_hole(Duration::from_secs(1)).unwrap();
        let news = board.acknowledge(4);
        assert_eq!(
            news,
            AckResult { arrived: 1, sent_at: None },
            "1 was sent twice, 2 and 3 known"
        );
        assert_eq!((board.len(), board.bytes()), (1, 1));
        let news = board.acknowledge(5);
        assert_eq!(news, AckResult { arrived: 1, sent_at: Some(Duration::from_millis(4)) });
        assert!(board.oldest().is_none() && board.take_hole(Duration::MAX).is_none());
    }

    #[test]
    fn half_a_packet_is_not_reported() {
        let mut board = Scoreboard::default();
        for start in [1, 11] {
            let bytes = Bytes::from(vec![0; 10]);
            board.push(Packet::new(start, false, false, bytes, Duration::ZERO));
        }
        assert_eq!(board.sack(block(12, 21)).arrived, 0);
        assert_eq!(board.acknowledge(10).arrived, 0);
        assert_eq!(board.sack(block(11, 21)).arrived, 1);
    }
}
