//! Index of a lane's unreported symbols: by number, and by the packet that carried each last.
//!
//! Each report repeats long runs of the previous ones. The index finds what is new in a report
//! without visiting the rest, so that a report costs its own length plus its news.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::header::PacketId;

/// Unreported symbols of one lane.
#[derive(Debug, Default)]
pub struct InFlight {
    unreported: BTreeSet<u64>,
    /// (packet, symbol) of the symbols in flight.
    under_way: BTreeSet<(PacketId, u64)>,
    /// The largest packet of each path that reports have covered so far.
    covered: BTreeMap<u8, u64>,
}

impl InFlight {
    /// Notes that a new symbol, or a retransmission, was sent in `packet`.
    pub fn sent(&mut self, number: u64, packet: PacketId) {
        self.unreported.insert(number);
        self.under_way.insert((packet, number));
    }

    /// Notes that the symbol sent in `packet` is no longer waited for.
    pub fn landed(&mut self, number: u64, packet: PacketId) {
        self.under_way.remove(&(packet, number));
    }

    /// Forgets a symbol, last sent in `packet`, whose outcome is known or does not matter.
    pub fn forget(&mut self, number: u64, packet: PacketId) {
        self.unreported.remove(&number);
        self.landed(number, packet);
    }

    /// Symbols in `start..end` that no report has named.
    pub fn unreported(&self, start: u64, end: u64) -> Vec<u64> {
        self.unreported.range(start..end.max(start)).copied().collect()
    }

    /// Symbols in flight below `end` that were sent on the same path before `packet`, ascending.
    pub fn overtaken(&self, packet: PacketId, end: u64) -> Vec<u64> {
        let first = PacketId { number: 0, ..packet };
        let before = self.under_way.range((first, 0)..(packet, 0));
        let mut numbers: Vec<u64> =
            before.map(|&(_, number)| number).filter(|&number| number < end).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns `true` if a symbol's last packet went on `path` and has no outcome.
    pub fn is_on_path(&self, path: u8) -> bool {
        let (first, last) = (PacketId { path, number: 0 }, PacketId { path, number: u64::MAX });
        self.under_way.range((first, 0)..=(last, u64::MAX)).next().is_some()
    }

    /// Symbols whose last packet went on `path` and has no outcome, ascending.
    pub fn on_path(&self, path: u8) -> Vec<u64> {
        let (first, last) = (PacketId { path, number: 0 }, PacketId { path, number: u64::MAX });
        let on_path = self.under_way.range((first, 0)..=(last, u64::MAX));
        let mut numbers: Vec<u64> = on_path.map(|&(_, number)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Notes a report that covers the packets of a path up to `largest`. Returns `true` if no earlier
    /// report covered as many.
    pub fn covers_more(&mut self, largest: PacketId) -> bool {
        let covered = self.covered.get(&largest.path).copied();
        let more = covered.is_none_or(|covered| covered < largest.number);
        if more {
            self.covered.insert(largest.path, largest.number);
        }
        more
    }

    /// Makes the next report count as new, because something was learned elsewhere.
    pub fn mark_stale(&mut self) {
        self.covered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(path: u8, number: u64) -> PacketId {
        PacketId { path, number }
    }

    #[test]
    fn news_in_a_report_is_found_once() {
        let mut in_flight = InFlight::default();
        for number in 0..10 {
            in_flight.sent(number, on(0, 100 + number));
        }
        assert_eq!(in_flight.unreported(3, 6), [3, 4, 5]);
        for number in [3, 4, 5] {
            in_flight.forget(number, on(0, 100 + number));
        }
        assert!(in_flight.unreported(3, 6).is_empty() && in_flight.unreported(6, 3).is_empty());
        assert_eq!(in_flight.overtaken(on(0, 107), 20), [0, 1, 2, 6]);
        assert_eq!(in_flight.overtaken(on(0, 107), 2), [0, 1]);
        // Lost, and retransmitted.
        in_flight.landed(0, on(0, 100));
        assert_eq!(in_flight.overtaken(on(0, 107), 20), [1, 2, 6]);
        in_flight.sent(0, on(0, 120));
        assert_eq!(in_flight.overtaken(on(0, 121), 20), [0, 1, 2, 6, 7, 8, 9]);
        assert_eq!(in_flight.unreported(0, 3), [0, 1, 2]);
        assert_eq!(
            [5, 5, 4, 6].map(|largest| in_flight.covers_more(on(0, largest))),
            [true, false, false, true]
        );
    }

    #[test]
    fn paths_are_judged_separately() {
        let mut in_flight = InFlight::default();
        for number in 0..6 {
            in_flight.sent(number, on((number % 2) as u8, number));
        }
        assert_eq!(in_flight.overtaken(on(0, 4), 20), [0, 2], "path 1 says nothing of them");
        assert_eq!(in_flight.overtaken(on(1, 4), 20), [1, 3]);
        assert!(in_flight.covers_more(on(1, 9)) && in_flight.covers_more(on(0, 4)));
        assert!(!in_flight.covers_more(on(1, 9)));
        assert_eq!((in_flight.on_path(1), in_flight.on_path(2)), (vec![1, 3, 5], vec![]));
    }
}
