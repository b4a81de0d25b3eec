//! Index of a lane's unreported symbols: by number, and by the packet that carried each last.
//!
//! A report names long runs of what it named before. Here what is new in it is found without looking
//! at the rest, so that a report costs its own length and what it says that no other did.

use std::collections::BTreeSet;

/// Symbols of one lane.
#[derive(Debug, Default)]
pub struct Flight {
    unreported: BTreeSet<u64>,
    /// (packet, symbol) of those that are under way.
    under_way: BTreeSet<(u64, u64)>,
    /// Reports so far told of packets up to this one.
    told: Option<u64>,
}

impl Flight {
    /// A new symbol, or one again, left in `packet`.
    pub fn sent(&mut self, number: u64, packet: u64) {
        self.unreported.insert(number);
        self.under_way.insert((packet, number));
    }

    /// The symbol that left in `packet` is not waited for any more.
    pub fn landed(&mut self, number: u64, packet: u64) {
        self.under_way.remove(&(packet, number));
    }

    /// Forgets a symbol, which left in `packet` last: its fate is known, or does not matter.
    pub fn forget(&mut self, number: u64, packet: u64) {
        self.unreported.remove(&number);
        self.landed(number, packet);
    }

    /// Those in `start..end` that no report named.
    pub fn unreported(&self, start: u64, end: u64) -> Vec<u64> {
        self.unreported.range(start..end.max(start)).copied().collect()
    }

    /// Those below `end` that left before `packet` and are under way, rising.
    pub fn overtaken(&self, packet: u64, end: u64) -> Vec<u64> {
        let before = self.under_way.range(..(packet, 0));
        let mut numbers: Vec<u64> =
            before.map(|&(_, number)| number).filter(|&number| number < end).collect();
        numbers.sort_unstable();
        numbers
    }

    /// A report tells of packets up to `largest`; whether none before it did.
    pub fn tells_more(&mut self, largest: u64) -> bool {
        let more = self.told.is_none_or(|told| told < largest);
        self.told = self.told.max(Some(largest));
        more
    }

    /// Something was learned elsewhere that the next report has to be thought over for.
    pub fn think_again(&mut self) {
        self.told = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_in_a_report_is_found_once() {
        let mut flight = Flight::default();
        for number in 0..10 {
            flight.sent(number, 100 + number);
        }
        assert_eq!(flight.unreported(3, 6), [3, 4, 5]);
        for number in [3, 4, 5] {
            flight.forget(number, 100 + number);
        }
        assert!(flight.unreported(3, 6).is_empty() && flight.unreported(6, 3).is_empty());
        assert_eq!(flight.overtaken(107, 20), [0, 1, 2, 6]);
        assert_eq!(flight.overtaken(107, 2), [0, 1]);
        // Lost, and again under way.
        flight.landed(0, 100);
        assert_eq!(flight.overtaken(107, 20), [1, 2, 6]);
        flight.sent(0, 120);
        assert_eq!(flight.overtaken(121, 20), [0, 1, 2, 6, 7, 8, 9]);
        assert_eq!(flight.unreported(0, 3), [0, 1, 2]);
        assert_eq!(
            [5, 5, 4, 6].map(|largest| flight.tells_more(largest)),
            [true, false, false, true]
        );
    }
}
