//! The grid for display: a table for each link, a line for each loss and burst.

use std::fmt::Write as _;

use super::outcome::Outcome;
use super::targets::{self, Figure, Target};
use super::{Cell, Work};
use crate::experiment::report::Goal;
use crate::experiment::table::{align, table};
use crate::result::Percentile;

/// Mark after a figure that misses its target.
const MISS: char = '!';

/// Two tables for each link, one of completion times and one of overhead. Missed targets have a mark.
pub fn grid(outcomes: &[Outcome]) -> String {
    let verdicts = targets::judge(outcomes);
    let mut text = String::new();
    let mut links: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !links.contains(&&*outcome.cell.profile) {
            links.push(&outcome.cell.profile);
        }
    }
    for link in links {
        let of: Vec<_> = outcomes.iter().filter(|one| one.cell.profile == link).collect();
        let grid = Grid::new(&of, &verdicts);
        let _ = writeln!(text, "{link}: goodput ÷ (1−p)·rate; completion ÷ limit (median, p95)\n");
        text.push_str(&grid.times());
        if of.iter().any(|one| one.traffic.is_some()) {
            let _ = writeln!(
                text,
                "\n{link}: bulk's bytes in % of those sent (ack: sent back); repairs in % of sources\n"
            );
            text.push_str(&grid.costs());
        }
        text.push('\n');
    }
    for broken in outcomes.iter().flat_map(|outcome| &outcome.broken) {
        let _ = writeln!(text, "broken: {broken}");
    }
    text
}

struct Grid<'a> {
    of: &'a [&'a Outcome],
    verdicts: &'a [(Target, Goal)],
    cells: Vec<&'a Cell>,
    works: Vec<&'a Work>,
}

impl<'a> Grid<'a> {
    fn new(of: &'a [&'a Outcome], verdicts: &'a [(Target, Goal)]) -> Self {
        let (mut cells, mut works): (Vec<&Cell>, Vec<&Work>) = (Vec::new(), Vec::new());
        for one in of {
            if !cells.contains(&&one.cell) {
                cells.push(&one.cell);
            }
            if !works.contains(&&one.work) {
                works.push(&one.work);
            }
        }
        cells.sort_by(|a, b| {
            let at = |cell: &Cell| (cell.loss.get(), cell.burst);
            at(a).partial_cmp(&at(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        works.sort_by_key(|work| (work.beside_bulk, work.workload.bytes()));
        Self { of, verdicts, cells, works }
    }

    fn times(&self) -> String {
        let mut header = vec!["loss".to_owned(), "burst".to_owned()];
        for work in &self.works {
            let name = name(work);
            match work.workload.bytes() {
                None => header.push(name),
                Some(_) => header.extend([name, "p95".to_owned()]),
            }
        }
        self.table(&header, |cell| {
            let mut fields = Vec::new();
            for work in &self.works {
                let outcome = self.outcome(cell, work);
                fields.extend(match work.workload.bytes() {
                    None => vec![self.utilization(outcome)],
                    Some(_) => self.completion(outcome).to_vec(),
                });
            }
            fields
        })
    }

    fn costs(&self) -> String {
        let mut header: Vec<_> = ["loss", "burst"].map(str::to_owned).into();
        let bulk = self.works.iter().find(|work| work.workload.bytes().is_none());
        if bulk.is_some() {
            header.extend(["header", "repair", "again", "ack"].map(str::to_owned));
        }
        let objects = self.works.iter().filter(|work| work.workload.bytes().is_some());
        let objects: Vec<_> = objects.filter(|work| !work.beside_bulk).collect();
        header.extend(objects.iter().map(|work| name(work)));
        self.table(&header, |cell| {
            let mut fields = Vec::new();
            if let Some(bulk) = bulk {
                fields.extend(self.shares(self.outcome(cell, bulk)));
            }
            for work in &objects {
                let outcome = self.outcome(cell, work);
                let redundancy = outcome.and_then(|one| Some(one.traffic?.forward.redundancy()));
                let text = redundancy.map_or(String::new(), percent);
                fields.push(self.marked(text, outcome, &[Figure::RepairsPerSource]));
            }
            fields
        })
    }

    fn table(&self, header: &[String], fields: impl Fn(&Cell) -> Vec<String>) -> String {
        let header: Vec<&str> = header.iter().map(|name| &**name).collect();
        let mut table = table(&header);
        for cell in &self.cells {
            let burst = if cell.burst == 1.0 { "–".to_owned() } else { cell.burst.to_string() };
            let mut row = vec![cell.loss.to_string(), burst];
            row.extend(fields(cell));
            table.add_row(row);
        }
        align(&mut table, &(0..header.len()).collect::<Vec<_>>());
        format!("{}\n", table.trim_fmt())
    }

    fn outcome(&self, cell: &Cell, work: &Work) -> Option<&'a Outcome> {
        self.of.iter().find(|one| one.cell == *cell && one.work == *work).copied()
    }

    fn utilization(&self, outcome: Option<&Outcome>) -> String {
        let text = outcome.and_then(Outcome::utilization).map(|value| format!("{value:.3}"));
        self.marked(text.unwrap_or_default(), outcome, &[Figure::Utilization])
    }

    fn completion(&self, outcome: Option<&Outcome>) -> [String; 2] {
        let text = |q| match outcome.and_then(|one| one.completion(q)) {
            Some(Percentile::Known(ratio)) => format!("{ratio:.2}"),
            Some(Percentile::Above(ratio)) => format!(">{ratio:.0}"),
            None => String::new(),
        };
        [
            self.marked(text(0.5), outcome, &[Figure::MedianSeconds]),
            self.marked(text(0.95), outcome, &[Figure::P95, Figure::Failures]),
        ]
    }

    fn shares(&self, outcome: Option<&Outcome>) -> [String; 4] {
        let Some(both) = outcome.and_then(|one| one.traffic) else { return Default::default() };
        let forward = &both.forward;
        let ack = both.acks_per_forward();
        let mark = |value, figures: &[Figure]| self.marked(percent(value), outcome, figures);
        [
            mark(forward.header(), &[Figure::Overhead]),
            mark(forward.repair(), &[]),
            mark(forward.retransmission(), &[Figure::RepairBytes]),
            mark(ack, &[Figure::ReportsOfDownlink, Figure::ReportsOfUplink]),
        ]
    }

    /// `text`, with a mark if one of `figures` misses its target.
    fn marked(&self, text: String, outcome: Option<&Outcome>, figures: &[Figure]) -> String {
        let missed = outcome.is_some_and(|one| {
            self.verdicts.iter().any(|(target, goal)| {
                let here = target.cell == one.cell && target.work == one.work;
                here && !goal.holds() && figures.contains(&target.figure)
            })
        });
        // A space keeps the digits of a column aligned.
        if text.is_empty() { text } else { format!("{text}{}", if missed { MISS } else { ' ' }) }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn name(work: &Work) -> String {
    let name = work.workload.to_string();
    let size = name.split_once('-').map_or(&*name, |(_, size)| size);
    if work.beside_bulk { format!("+{size}") } else { size.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Sample, Samples};
    use bentpipe_units::Ratio;

    fn outcome(loss: f64, work: &str, sample: Sample) -> Outcome {
        let cell = Cell { profile: "mss".into(), loss: Ratio::new(loss).unwrap(), burst: 1.0 };
        let samples = Samples(vec![sample; 20]);
        Outcome::of_samples(cell, work.parse().unwrap(), 2.0, samples, None)
    }

    #[test]
    fn a_missed_target_has_a_mark_and_a_goal() {
        let outcomes = [
            outcome(0.2, "object-10k", Sample::Finished(2.1)),
            outcome(0.06, "object-10k", Sample::Finished(3.0)),
            outcome(0.06, "bulk", Sample::Finished(1.9)),
            outcome(0.2, "object-100k", Sample::Cut(90.0)),
        ];
        let text = grid(&outcomes);
        for part in [" 6 %      –  0.950   1.50   1.50!", "1.05   1.05", ">45!"] {
            assert!(text.contains(part), "{part:?} is missing:\n{text}");
        }
        let goals = targets::judge(&outcomes).into_iter().map(|(_, goal)| goal);
        let missed: Vec<_> = goals.filter(|goal| !goal.holds()).map(|goal| goal.name).collect();
        let expected = ["mss, 6 %: object-10k, p95 ÷ limit", "mss, 20 %: object-100k, p95 ÷ limit"];
        assert_eq!(missed, expected);
        assert!(!text.contains("header"), "traffic that nobody counted has no table:\n{text}");
    }
}
