//! The last day of a gateway in memory, for the operator's page.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::document::{Document, LinkEntry, Session};

/// Length of a cell of the history.
pub const CELL_MS: u64 = 5 * 60 * 1000;

/// Maximum number of cells: 24 hours in 288 × 88 bytes = 25 kB.
pub const MAX_CELLS: usize = 288;

/// Time after which a limit that refused somebody is forgotten.
const REFUSAL_MS: u64 = 10 * 60 * 1000;

/// Gateway in one cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Beginning, since 1970-01-01 00:00 UTC.
    pub begin_unix_ms: u64,
    /// Time in the cell of which there is something here.
    pub measured_us: u64,
    /// Payload sent by all sessions.
    pub sent_bytes: u64,
    /// Payload received by all sessions.
    pub received_bytes: u64,
    /// Maximum of the sessions' mean round trip.
    pub round_trip_us: u64,
    /// Maximum queueing delay on a path.
    pub queue_us: u64,
    /// Packets that reports are about, in all sessions.
    pub judged_packets: u64,
    /// The lost ones among them.
    pub lost_packets: u64,
    /// Time without any session that heard its peer.
    pub out_us: u64,
    /// Maximum number of sessions.
    pub sessions: usize,
    /// Maximum number of sessions in an outage.
    pub silent: usize,
}

/// Costs of a session's link since the previous document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Bytes of repair packets.
    pub repair_bytes: u64,
    /// Bytes sent again.
    pub retransmission_bytes: u64,
    /// Packets that reports are about.
    pub judged_packets: u64,
    /// The lost ones among them.
    pub lost_packets: u64,
}

/// Cells of the last day, and what the newest document says that is new.
#[derive(Debug, Default)]
pub struct History {
    cells: VecDeque<Cell>,
    /// Counters of each session's link in the newest document, by aircraft, and what they rose by.
    links: BTreeMap<String, (LinkEntry, Costs)>,
    /// Counters of refusals, and the time of their last rise: as many as there are limits.
    refusals: BTreeMap<String, (u64, Option<u64>)>,
}

impl History {
    /// Notes the next document.
    pub fn note(&mut self, document: &Document) {
        let now = document.written_unix_ms;
        let links = document.sessions.iter().filter_map(|session| {
            let (name, link) = (key(session), session.link?);
            let costs = costs(self.links.get(&name).map(|(link, _)| link), &link);
            Some((name, (link, costs)))
        });
        self.links = links.collect();
        let cell = self.cell(now, document.interval_ms);
        let before = *cell;
        *cell = before.with(document);
        let lost: (u64, u64) = self.links.values().fold((0, 0), |sum, (_, costs)| {
            (sum.0 + costs.judged_packets, sum.1 + costs.lost_packets)
        });
        if let Some(cell) = self.cells.back_mut() {
            cell.judged_packets += lost.0;
            cell.lost_packets += lost.1;
        }
        for (name, count) in &document.counters {
            let Some(limit) = name.strip_prefix("refused_") else { continue };
            let (known, rose) = self.refusals.entry(limit.to_owned()).or_default();
            if *count > *known {
                (*known, *rose) = (*count, Some(now));
            }
        }
    }

    /// The cells, oldest first.
    pub fn cells(&self) -> Vec<Cell> {
        self.cells.iter().copied().collect()
    }

    /// Costs of a session's link since the previous document.
    pub fn costs(&self, session: &Session) -> Costs {
        self.links.get(&key(session)).map(|(_, costs)| *costs).unwrap_or_default()
    }

    /// Limits that refused somebody lately, with their counts.
    pub fn refusing(&self, now: u64) -> impl Iterator<Item = (&str, u64)> {
        let is_recent = move |rose: &Option<u64>| rose.is_some_and(|at| now < at + REFUSAL_MS);
        let recent = self.refusals.iter().filter(move |(_, (_, rose))| is_recent(rose));
        recent.map(|(limit, (count, _))| (limit.as_str(), *count))
    }

    /// The cell of `now`, which is the last.
    fn cell(&mut self, now: u64, interval_ms: u64) -> &mut Cell {
        let begin_unix_ms = now - now % CELL_MS.max(interval_ms.max(1));
        // A clock that was set back continues the last cell.
        if self.cells.back().is_none_or(|last| last.begin_unix_ms < begin_unix_ms) {
            if self.cells.len() == MAX_CELLS {
                self.cells.pop_front();
            }
            self.cells.push_back(Cell { begin_unix_ms, ..Cell::default() });
        }
        let last = self.cells.len() - 1;
        &mut self.cells[last]
    }
}

impl Cell {
    /// The cell with the rates and states of `document`.
    fn with(self, document: &Document) -> Self {
        let interval_us = document.interval_ms.saturating_mul(1000);
        let links = || document.sessions.iter().filter_map(|session| session.link);
        let classes = || document.sessions.iter().flat_map(|session| &session.classes);
        let is_silent = |link: &LinkEntry| link.outage_us > 0;
        let is_out = links().all(|link| is_silent(&link));
        let max = |of: fn(LinkEntry) -> u64| links().map(of).max().unwrap_or(0);
        Self {
            measured_us: self.measured_us + interval_us,
            sent_bytes: self.sent_bytes + classes().map(|it| it.recent.sent_bytes).sum::<u64>(),
            received_bytes: self.received_bytes
                + classes().map(|it| it.recent.received_bytes).sum::<u64>(),
            round_trip_us: self.round_trip_us.max(max(|link| link.round_trip_us)),
            queue_us: self.queue_us.max(max(|link| link.queue_us)),
            out_us: self.out_us + if is_out { interval_us } else { 0 },
            sessions: self.sessions.max(document.sessions.len()),
            silent: self.silent.max(links().filter(is_silent).count()),
            ..self
        }
    }
}

/// Name of a session among those of a document.
fn key(session: &Session) -> String {
    session.aircraft.clone().unwrap_or_default()
}

/// Rise of the counters since `before`. Those of a new session count from zero.
fn costs(before: Option<&LinkEntry>, now: &LinkEntry) -> Costs {
    let before = before.filter(|before| before.sent_bytes <= now.sent_bytes).copied();
    let before = before.unwrap_or_default();
    Costs {
        sent_bytes: now.sent_bytes.saturating_sub(before.sent_bytes),
        repair_bytes: now.repair_bytes.saturating_sub(before.repair_bytes),
        retransmission_bytes: now.retransmission_bytes.saturating_sub(before.retransmission_bytes),
        judged_packets: now.judged_packets.saturating_sub(before.judged_packets),
        lost_packets: now.lost_packets.saturating_sub(before.lost_packets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gateway, nameless};
    use bentpipe_flow::Traffic;

    fn document(at_ms: u64, judged: u64, lost: u64) -> Document {
        let mut session = Session::of(Traffic::default(), Some("boat-1"), &nameless());
        session.link = Some(LinkEntry {
            round_trip_us: 600_000,
            sent_bytes: judged * 1_000,
            judged_packets: judged,
            lost_packets: lost,
            ..LinkEntry::default()
        });
        Document {
            written_unix_ms: at_ms,
            interval_ms: 5_000,
            sessions: vec![session],
            ..Document::empty(Gateway::Ground)
        }
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let mut history = History::default();
        let begin = 1_000 * CELL_MS;
        for step in 0..3 * MAX_CELLS as u64 {
            history.note(&document(begin + step * CELL_MS / 2, step, 0));
        }
        let cells = history.cells();
        assert_eq!(cells.len(), MAX_CELLS);
        assert!(cells.windows(2).all(|two| two[0].begin_unix_ms + CELL_MS == two[1].begin_unix_ms));
        assert!(cells.iter().all(|cell| cell.measured_us == 10_000_000 && cell.sessions == 1));
        // A clock that is set back makes no cell.
        history.note(&document(begin, 1, 0));
        assert_eq!(history.cells().len(), MAX_CELLS);
    }

    #[test]
    fn costs_are_those_since_the_last_document_and_a_new_session_begins_at_zero() {
        let mut history = History::default();
        let of = |history: &History, document: &Document| {
            let costs = history.costs(&document.sessions[0]);
            (costs.judged_packets, costs.lost_packets)
        };
        for (judged, lost, expected) in [(100, 5, (100, 5)), (150, 6, (50, 1)), (20, 2, (20, 2))] {
            let document = document(CELL_MS, judged, lost);
            history.note(&document);
            assert_eq!(of(&history, &document), expected);
        }
        assert_eq!(history.cells()[0].judged_packets, 170);
        assert_eq!(history.cells()[0].lost_packets, 8);
    }

    #[test]
    fn a_limit_is_named_while_it_refuses() {
        let mut history = History::default();
        let with = |at: u64, count: u64| {
            let counters = BTreeMap::from([("refused_pages".to_owned(), count)]);
            Document { counters, ..document(at, 1, 0) }
        };
        history.note(&with(0, 0));
        assert_eq!(history.refusing(0).count(), 0);
        history.note(&with(5_000, 3));
        assert_eq!(history.refusing(6_000).collect::<Vec<_>>(), [("pages", 3)]);
        assert_eq!(history.refusing(5_000 + REFUSAL_MS).count(), 0);
    }
}
