//! Sender with a fixed window, which retransmits lost packets until they arrive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::packet::Piece;

/// A packet counts as lost once a packet sent this many later has arrived.
const LATE_BY: u64 = 3;
/// Round trip assumed before one is measured.
const FIRST_RTT: Duration = Duration::from_secs(1);
/// After two round trips and this time without a report, everything in flight counts as lost.
const GRACE: Duration = Duration::from_millis(200);

/// The sending side.
#[derive(Debug)]
pub struct Sending {
    window_bytes: usize,
    next: u64,
    under_way: BTreeMap<u64, (Duration, Piece)>,
    under_way_bytes: usize,
    lost: VecDeque<Piece>,
    rtt: Duration,
    /// Time of the last report, or of the first packet sent while nothing was in flight.
    heard: Duration,
}

impl Sending {
    pub fn new(window_bytes: usize) -> Self {
        Self {
            window_bytes,
            next: 0,
            under_way: BTreeMap::new(),
            under_way_bytes: 0,
            lost: VecDeque::new(),
            rtt: FIRST_RTT,
            heard: Duration::ZERO,
        }
    }

    /// Returns `true` if the window has room for another packet.
    pub fn has_room(&self) -> bool {
        self.under_way_bytes < self.window_bytes
    }

    /// Records that `piece` is sent now. Returns its packet number.
    pub fn sent(&mut self, piece: Piece, now: Duration) -> u64 {
        if self.under_way.is_empty() {
            self.heard = now;
        }
        let number = self.next;
        self.next += 1;
        self.under_way_bytes += cost(&piece);
        self.under_way.insert(number, (now, piece));
        number
    }

    /// Next lost piece to retransmit.
    pub fn take_lost(&mut self) -> Option<Piece> {
        self.lost.pop_front()
    }

    /// Handles the ranges of a report. Returns the pieces that arrived.
    pub fn reported(&mut self, ranges: &[(u64, u64)], now: Duration) -> Vec<Piece> {
        let mut came = Vec::new();
        for &(first, last) in ranges {
            if first > last {
                continue;
            }
            let numbers: Vec<u64> = self.under_way.range(first..=last).map(|it| *it.0).collect();
            for number in numbers {
                came.extend(self.landed(number).map(|(sent, piece)| {
                    // A delayed report makes the measured round trip longer, never shorter.
                    self.rtt = (self.rtt * 7 + now.saturating_sub(sent)) / 8;
                    piece
                }));
            }
        }
        if !came.is_empty() {
            self.heard = now;
        }
        let newest = ranges.iter().map(|(_, last)| *last).max().unwrap_or(0);
        let late = self.under_way.range(..newest.saturating_sub(LATE_BY - 1));
        let late: Vec<u64> = late.map(|it| *it.0).collect();
        self.lose(late);
        came
    }

    /// Time at which [`Self::timeout`] should be called.
    pub fn timeout_at(&self) -> Option<Duration> {
        (!self.under_way.is_empty()).then(|| self.heard + self.rtt * 2 + GRACE)
    }

    /// Marks everything in flight as lost if no report has arrived for too long.
    pub fn timeout(&mut self, now: Duration) {
        if self.timeout_at().is_some_and(|at| at <= now) {
            self.heard = now;
            self.lose(self.under_way.keys().copied().collect());
        }
    }

    fn lose(&mut self, numbers: Vec<u64>) {
        for number in numbers {
            if let Some((_, piece)) = self.landed(number) {
                self.lost.push_back(piece);
            }
        }
    }

    fn landed(&mut self, number: u64) -> Option<(Duration, Piece)> {
        let landed = self.under_way.remove(&number)?;
        self.under_way_bytes -= cost(&landed.1);
        Some(landed)
    }
}

/// A packet without bytes still takes a place in the window.
fn cost(piece: &Piece) -> usize {
    piece.bytes.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn piece(offset: u64) -> Piece {
        let bytes = Bytes::from_static(&[1; 100]);
        Piece { flow: 1, offset, open: None, end: false, reset: false, bytes }
    }

    #[test]
    fn the_window_is_fixed_whatever_is_lost() {
        let mut sending = Sending::new(1000);
        let at = Duration::from_millis;
        for number in 0..10 {
            assert!(sending.has_room());
            assert_eq!(sending.sent(piece(number * 100), at(0)), number);
        }
        assert!(!sending.has_room());
        // 0 to 2 are overtaken; 8 and 9 are not overtaken by enough.
        let came = sending.reported(&[(7, 7), (3, 5)], at(500));
        assert_eq!(came.iter().map(|piece| piece.offset).collect::<Vec<_>>(), [700, 300, 400, 500]);
        let lost: Vec<_> = std::iter::from_fn(|| sending.take_lost()).map(|it| it.offset).collect();
        assert_eq!(lost, [0, 100, 200]);
        // 6, 8 and 9 are in flight: seven more packets of a hundred bytes fit.
        for number in 0..7 {
            assert!(sending.has_room(), "{number}");
            sending.sent(piece(0), at(500));
        }
        assert!(!sending.has_room());
        let due = sending.timeout_at().unwrap();
        sending.timeout(due - at(1));
        assert!(sending.take_lost().is_none());
        sending.timeout(due);
        assert_eq!(std::iter::from_fn(|| sending.take_lost()).count(), 10);
        assert!(sending.has_room() && sending.timeout_at().is_none());
    }
}
