//! Which packets of a path came of late, for the reports.

use std::collections::VecDeque;
use std::time::Duration;

use crate::redundancy::{Estimator, Fate, Loss};
use crate::wire::report::MAX_PACKET_RUNS;

/// By how many packets a late one may come and still be waited for.
pub const MAX_LATE_BY: u64 = 64;
/// A packet is named in so many reports, since reports are lost too.
const REPORTS_PER_PACKET: usize = 3;

/// Bursts after which what was seen counts for 1/e.
const REMEMBERED_BURSTS: f64 = 128.0;
/// Longer gaps are outages.
const LONGEST_BURST: u64 = 256;

/// The newest packets, as runs.
#[derive(Debug)]
pub struct Arrivals {
    /// Half-open, newest first, never touching.
    runs: VecDeque<(u64, u64)>,
    largest_at: Duration,
    late_by: u64,
    /// Gaps seen and packets missing in them; both fade.
    bursts: f64,
    missing: f64,
    /// The largest packets of the last reports, newest first.
    reported: VecDeque<u64>,
    /// What the direction towards us loses.
    estimator: Estimator,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            runs: VecDeque::new(),
            largest_at: Duration::ZERO,
            late_by: 0,
            bursts: 0.0,
            missing: 0.0,
            reported: VecDeque::new(),
            estimator: Estimator::new(),
        }
    }
}

impl Arrivals {
    /// A packet came; `true` when it is the newest.
    pub fn came(&mut self, packet: u64, now: Duration) -> bool {
        let Some(largest) = self.largest() else {
            self.runs.push_front((packet, packet + 1));
            self.largest_at = now;
            return true;
        };
        if packet < largest {
            self.late_by = self.late_by.max((largest - packet).min(MAX_LATE_BY));
            self.fill(packet);
            return false;
        }
        if packet == largest + 1 {
            self.runs[0].1 += 1;
            self.estimator.saw(Fate { lost: false, follows: true });
        } else if packet > largest {
            self.missed(packet - largest - 1);
            self.runs.push_front((packet, packet + 1));
            self.runs.truncate(MAX_PACKET_RUNS);
        }
        self.largest_at = now;
        true
    }

    fn missed(&mut self, packets: u64) {
        if packets <= LONGEST_BURST {
            let fade = 1.0 - 1.0 / REMEMBERED_BURSTS;
            self.bursts = self.bursts * fade + 1.0;
            self.missing = self.missing * fade + packets as f64;
            (0..packets).for_each(|_| self.estimator.saw(Fate { lost: true, follows: true }));
            self.estimator.saw(Fate { lost: false, follows: true });
        }
    }

    /// Mean length of the bursts that the direction towards us loses, in packets; 1 of none.
    pub fn burst_packets(&self) -> f64 {
        (self.missing + REMEMBERED_BURSTS / 16.0) / (self.bursts + REMEMBERED_BURSTS / 16.0)
    }

    /// What the direction towards us loses, as its gaps show.
    pub fn loss(&self) -> Loss {
        self.estimator.loss()
    }

    /// A late packet fills a gap, or part of it.
    fn fill(&mut self, packet: u64) {
        let at = self.runs.iter().position(|&(start, _)| start <= packet + 1);
        let Some(at) = at else { return }; // of before what is remembered
        let (start, end) = self.runs[at];
        if packet + 1 == start {
            self.runs[at].0 = packet;
            if self.runs.get(at + 1).is_some_and(|older| older.1 == packet) {
                self.runs[at].0 = self.runs[at + 1].0;
                self.runs.remove(at + 1);
            }
        } else if packet == end {
            self.runs[at].1 = packet + 1;
        } else if packet > end && self.runs.len() < MAX_PACKET_RUNS {
            self.runs.insert(at, (packet, packet + 1));
        }
    }

    fn largest(&self) -> Option<u64> {
        self.runs.front().map(|&(_, end)| end - 1)
    }

    /// The newest packet, and when it came.
    pub fn newest(&self) -> Option<(u64, Duration)> {
        self.largest().map(|largest| (largest, self.largest_at))
    }

    /// By how many packets the latest of the late ones came behind a later one.
    pub fn late_by(&self) -> u64 {
        self.late_by
    }

    /// The runs that a report should name.
    pub fn to_report(&self) -> Vec<(u64, u64)> {
        let told = self.reported.get(REPORTS_PER_PACKET - 1).copied();
        let new = |run: &&(u64, u64)| told.is_none_or(|told| run.1 + MAX_LATE_BY > told);
        self.runs.iter().take_while(new).copied().collect()
    }

    /// A report left.
    pub fn reported(&mut self) {
        if let Some(largest) = self.largest().filter(|it| self.reported.front() != Some(it)) {
            self.reported.push_front(largest);
            self.reported.truncate(REPORTS_PER_PACKET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_agree_with_a_set(packets in proptest::collection::vec(0u64..60, 1..80)) {
            let (mut arrivals, mut set) = (Arrivals::default(), BTreeSet::new());
            for packet in packets {
                // What is older than all that is remembered is forgotten.
                let oldest = set.first().copied().unwrap_or(packet);
                if packet + 1 < oldest {
                    continue;
                }
                let newest = set.last().is_none_or(|last| packet >= *last);
                prop_assert_eq!(arrivals.came(packet, Duration::ZERO), newest);
                set.insert(packet);
            }
            let named: BTreeSet<u64> =
                arrivals.to_report().into_iter().flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(&named, &set);
            let runs = arrivals.to_report();
            prop_assert!(runs.windows(2).all(|pair| pair[1].1 < pair[0].0));
        }
    }

    #[test]
    fn a_packet_is_named_in_three_reports() {
        let mut arrivals = Arrivals::default();
        arrivals.came(0, Duration::ZERO);
        for report in 1..8u64 {
            let packet = 1000 * report;
            arrivals.came(packet, Duration::ZERO);
            let named = arrivals.to_report();
            assert!(named.iter().any(|run| run.0 == packet));
            assert!(named.len() <= REPORTS_PER_PACKET + 1, "{named:?}");
            arrivals.reported();
        }
    }
}
