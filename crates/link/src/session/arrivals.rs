//! Recent arrivals of packets on a path, for the reports.

use std::collections::VecDeque;
use std::time::Duration;

use crate::redundancy::{Estimator, Loss, Outcome};
use crate::wire::report::MAX_PACKET_RUNS;

/// Maximum number of packets by which a late packet may be overtaken and still be waited for.
pub const MAX_LATE_BY: u64 = 64;
/// Minimum time for which a late packet makes us wait for others; at most twice that.
///
/// - Without a limit, every loss would be found later: 64 packets are 0.4 s of a full link of 2
///   Mbit/s, and 6 s of one that carries ten packets a second.
/// - A path that reorders more rarely than this causes one needless retransmission each time. A
///   congestion controller takes the packet for lost, but has recovered by then: 20 round trips of
///   a satellite.
const LATE_LIFETIME: Duration = Duration::from_secs(15);
/// Number of reports that name a packet, because reports are lost too.
const REPORTS_PER_PACKET: usize = 3;

/// Number of bursts after which an observation counts for 1/e.
const MEMORY_BURSTS: f64 = 128.0;
/// Maximum length of a burst of losses; longer gaps are outages.
const MAX_BURST: u64 = 256;

/// Recent arrivals, as runs.
#[derive(Debug)]
pub struct Arrivals {
    /// Half-open runs, newest first, never adjacent.
    runs: VecDeque<(u64, u64)>,
    largest_at: Duration,
    lateness: Lateness,
    /// Number of gaps, and of packets missing in them; both fade.
    bursts: f64,
    missing: f64,
    /// Largest packets of the last reports, newest first.
    reported: VecDeque<u64>,
    /// Loss of the direction towards us.
    estimator: Estimator,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            runs: VecDeque::new(),
            largest_at: Duration::ZERO,
            lateness: Lateness::default(),
            bursts: 0.0,
            missing: 0.0,
            reported: VecDeque::new(),
            estimator: Estimator::new(),
        }
    }
}

impl Arrivals {
    /// Notes a packet. Returns `true` if it is the newest.
    pub fn on_packet(&mut self, packet: u64, now: Duration) -> bool {
        let Some(largest) = self.largest() else {
            self.runs.push_front((packet, packet + 1));
            self.largest_at = now;
            return true;
        };
        if packet < largest {
            self.lateness.note((largest - packet).min(MAX_LATE_BY), now);
            self.fill(packet);
            return false;
        }
        if packet == largest + 1 {
            self.runs[0].1 += 1;
            self.estimator.add(Outcome { lost: false, follows: true });
        } else if packet > largest {
            self.missed(packet - largest - 1);
            self.runs.push_front((packet, packet + 1));
            self.runs.truncate(MAX_PACKET_RUNS);
        }
        self.largest_at = now;
        true
    }

    fn missed(&mut self, packets: u64) {
        if packets <= MAX_BURST {
            let fade = 1.0 - 1.0 / MEMORY_BURSTS;
            self.bursts = self.bursts * fade + 1.0;
            self.missing = self.missing * fade + packets as f64;
            (0..packets).for_each(|_| self.estimator.add(Outcome { lost: true, follows: true }));
            self.estimator.add(Outcome { lost: false, follows: true });
        }
    }

    /// Mean length of the bursts of losses towards us, in packets; 1 without losses.
    pub fn burst_packets(&self) -> f64 {
        (self.missing + MEMORY_BURSTS / 16.0) / (self.bursts + MEMORY_BURSTS / 16.0)
    }

    /// Loss of the direction towards us, from its gaps.
    pub fn loss(&self) -> Loss {
        self.estimator.loss()
    }

    /// Fills a gap, or part of it, with a late packet.
    fn fill(&mut self, packet: u64) {
        let at = self.runs.iter().position(|&(start, _)| start <= packet + 1);
        let Some(at) = at else { return }; // older than the runs
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

    /// The newest packet, and its time of arrival.
    pub fn newest(&self) -> Option<(u64, Duration)> {
        self.largest().map(|largest| (largest, self.largest_at))
    }

    /// Number of packets by which the latest of the recent late packets was overtaken.
    pub fn late_by(&self, now: Duration) -> u64 {
        self.lateness.max(now)
    }

    /// Runs that the next report should name.
    pub fn to_report(&self) -> Vec<(u64, u64)> {
        let told = self.reported.get(REPORTS_PER_PACKET - 1).copied();
        let new = |run: &&(u64, u64)| told.is_none_or(|told| run.1 + MAX_LATE_BY > told);
        self.runs.iter().take_while(new).copied().collect()
    }

    /// Notes that a report was sent.
    pub fn reported(&mut self) {
        if let Some(largest) = self.largest().filter(|it| self.reported.front() != Some(it)) {
            self.reported.push_front(largest);
            self.reported.truncate(REPORTS_PER_PACKET);
        }
    }
}

/// Maximum of what was noted in two periods of [`LATE_LIFETIME`], of which the second is the
/// present one.
#[derive(Debug, Default)]
struct Lateness {
    before: u64,
    lately: u64,
    /// Beginning of the second period.
    since: Duration,
}

impl Lateness {
    fn note(&mut self, late_by: u64, now: Duration) {
        match self.periods(now) {
            0 => {}
            1 => {
                self.before = std::mem::take(&mut self.lately);
                self.since += LATE_LIFETIME;
            }
            _ => *self = Self { since: now, ..Self::default() },
        }
        self.lately = self.lately.max(late_by);
    }

    fn max(&self, now: Duration) -> u64 {
        match self.periods(now) {
            0 => self.before.max(self.lately),
            1 => self.lately,
            _ => 0,
        }
    }

    /// Number of periods that have ended since the second began.
    fn periods(&self, now: Duration) -> u128 {
        now.saturating_sub(self.since).as_nanos() / LATE_LIFETIME.as_nanos()
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
                // Packets older than all runs are not recorded.
                let oldest = set.first().copied().unwrap_or(packet);
                if packet + 1 < oldest {
                    continue;
                }
                let newest = set.last().is_none_or(|last| packet >= *last);
                prop_assert_eq!(arrivals.on_packet(packet, Duration::ZERO), newest);
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
        arrivals.on_packet(0, Duration::ZERO);
        for report in 1..8u64 {
            let packet = 1000 * report;
            arrivals.on_packet(packet, Duration::ZERO);
            let named = arrivals.to_report();
            assert!(named.iter().any(|run| run.0 == packet));
            assert!(named.len() <= REPORTS_PER_PACKET + 1, "{named:?}");
            arrivals.reported();
        }
    }

    #[test]
    fn a_very_late_packet_is_a_reason_to_wait_for_a_while_only() {
        let (mut arrivals, s) = (Arrivals::default(), Duration::from_secs);
        assert_eq!(arrivals.late_by(s(0)), 0);
        arrivals.on_packet(100, s(100));
        arrivals.on_packet(36, s(101));
        assert_eq!(arrivals.late_by(s(101)), 64);
        // Others are late by less, again and again.
        let mut seen = Vec::new();
        for at in 102..200 {
            arrivals.on_packet(2 * at, s(at));
            arrivals.on_packet(2 * at - 3, s(at));
            seen.push(arrivals.late_by(s(at)));
        }
        let first_of = |late_by: u64| seen.iter().position(|it| *it == late_by).map(|at| 102 + at);
        let forgotten = first_of(3).expect("it is forgotten");
        assert!((101 + 15..=101 + 30).contains(&forgotten), "{forgotten}");
        assert!(seen[forgotten - 102..].iter().all(|it| *it == 3), "{seen:?}");
        assert_eq!(arrivals.late_by(s(199 + 15 - 1)), 3);
        assert_eq!(arrivals.late_by(s(199 + 30)), 0, "and they too, once they have ended");
    }
}
