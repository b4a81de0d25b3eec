//! A call over UDP: the remaining loss, the overhead, and the delay.

pub mod speech;

use std::time::Duration;

use bentpipe_link::Class;
use bentpipe_units::Ratio;

use super::report::{Goal, Report, delay, percent, row};
use super::table::{align, table};
use crate::experiment::engine::Engine;
use crate::profile::Profile;
use crate::result::{Row, Sample, Samples};
use crate::traffic::{DOWN, UP};
use speech::{GAP, Heard, LATEST, call};

/// Default number of runs.
pub const DEFAULT_RUNS: u16 = 8;
/// Default length of a call: 6,000 packets in each direction.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(120);
/// Default mean burst lengths.
pub const DEFAULT_BURSTS: [f64; 2] = [1.0, 4.0];

/// Targets of a call if the profile [`TARGET_PROFILE`] has the loss [`TARGET_LOSS`]: mean burst
/// length, and maximum remaining loss.
const TARGETS: [(f64, f64); 2] = [(1.0, 0.004), (4.0, 0.03)];
const TARGET_PROFILE: &str = "mss";
const TARGET_LOSS: f64 = 0.06;
/// Maximum of repair packets and retransmissions, as a fraction of the data sent first.
const MAX_REPAIRS: f64 = 0.30;
/// Maximum p95 of the delay beyond that of a packet without loss.
const MAX_ADDED: Duration = Duration::from_millis(60);

/// Selection of calls.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Profile of the link.
    pub profile: Profile,
    /// Losses in each direction. Empty for the profile's own loss.
    pub losses: Vec<Ratio>,
    /// Mean burst lengths in packet times; 1 is independent loss.
    pub bursts: Vec<f64>,
    /// Calls of each combination.
    pub runs: u16,
    /// Length of each call.
    pub length: Duration,
    /// Seed of the first call. The others' follow.
    pub seed: u64,
}

/// Calls over one link.
struct Cell {
    profile: Profile,
    loss: f64,
    burst: f64,
    /// Results of every run.
    heard: Vec<[Heard; 2]>,
}

/// Makes the calls and reports their results.
pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let own = Ratio::new(choice.profile.forward_loss()).unwrap_or(Ratio::ZERO);
    let losses = if choice.losses.is_empty() { vec![own] } else { choice.losses.clone() };
    let mut cells = Vec::new();
    for &loss in &losses {
        for &burst in &choice.bursts {
            let profile = choice.profile.clone().with_loss(loss, burst)?;
            cells.push(Cell { profile, loss: loss.get(), burst, heard: Vec::new() });
        }
    }
    let runs = u64::from(choice.runs);
    let jobs: Vec<_> =
        (0..cells.len()).flat_map(|cell| (0..runs).map(move |run| (cell, run))).collect();
    let found = engine.map(&choice.profile, &jobs, |(cell, run)| {
        call(engine, &cells[*cell].profile, Class::Network, choice.length, choice.seed + run)
    });
    for ((cell, _), heard) in jobs.iter().zip(found) {
        cells[*cell].heard.push(heard?);
    }
    let report = Report {
        text: text(choice, &cells),
        rows: cells.iter().flat_map(|cell| cell.rows(choice.seed)).collect(),
        goals: cells.iter().flat_map(Cell::goals).collect(),
    };
    Ok(report.found_by(engine.name()))
}

impl Cell {
    fn ways(&self) -> [(&'static str, usize); 2] {
        [("down", DOWN), ("up", UP)]
    }

    /// One figure of every run.
    fn of(&self, way: usize, figure: impl Fn(&Heard) -> f64) -> Samples {
        self.heard.iter().map(|heard| figure(&heard[way])).collect()
    }

    /// Delay beyond that of a packet without loss, for all packets that arrived in time.
    fn added(&self, way: usize) -> Samples {
        let late = self.heard.iter().flat_map(|heard| heard[way].late.iter().flatten());
        Samples(
            late.filter(|late| **late <= LATEST)
                .map(|late| Sample::Finished(late.as_secs_f64()))
                .collect(),
        )
    }

    fn rows(&self, seed: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        for (name, way) in self.ways() {
            let figures = [
                ("residual-loss", self.of(way, Heard::residual)),
                ("repairs", self.of(way, Heard::redundancy)),
                ("delay", self.added(way)),
            ];
            for (metric, samples) in figures {
                let workload = format!("call, {name}");
                let row = row("call", &self.profile, workload, metric, seed);
                rows.push(Row { burst: Some(self.burst), ..samples.fill(row) });
            }
        }
        rows
    }

    fn goals(&self) -> Vec<Goal> {
        let is_it = |(burst, _): &&(f64, f64)| {
            self.profile.name == TARGET_PROFILE
                && (self.loss - TARGET_LOSS).abs() < 1e-9
                && *burst == self.burst
        };
        let Some((burst, may_stay)) = TARGETS.iter().find(is_it) else { return Vec::new() };
        let both = |figure: &dyn Fn(usize) -> Option<f64>| Some(figure(DOWN)?.max(figure(UP)?));
        let name = |what: &str| format!("call, bursts of {burst}: {what}");
        let mean = |figure: fn(&Heard) -> f64| both(&|way| self.of(way, figure).mean());
        let most = |samples: Samples| samples.known(1.0);
        let worst = both(&|way| most(self.of(way, Heard::redundancy)));
        let p95 = both(&|way| self.added(way).known(0.95));
        vec![
            Goal::ratio_at_most(name("residual loss"), mean(Heard::residual), *may_stay),
            Goal::ratio_at_most(name("repairs per byte, worst call"), worst, MAX_REPAIRS),
            Goal::time_at_most(name("added delay, p95"), p95, MAX_ADDED.as_secs_f64()),
        ]
    }
}

fn text(choice: &Choice, cells: &[Cell]) -> String {
    let mut table =
        table(&["lost", "burst", "", "left", "least", "most", "repairs", "most", "+p95", "+p99"]);
    for cell in cells {
        for (name, way) in cell.ways() {
            let left = cell.of(way, Heard::residual);
            let repairs = cell.of(way, Heard::redundancy);
            let of_runs = |samples: &Samples, q| samples.known(q).unwrap_or(f64::NAN);
            let fine = |share: f64| format!("{:.2} %", 100.0 * share);
            let added = cell.added(way);
            table.add_row([
                if way == DOWN { percent(cell.loss) } else { String::new() },
                if way == DOWN { cell.burst.to_string() } else { String::new() },
                name.into(),
                left.mean().map_or("–".into(), fine),
                fine(of_runs(&left, 0.0)),
                fine(of_runs(&left, 1.0)),
                repairs.mean().map_or("–".into(), percent),
                percent(of_runs(&repairs, 1.0)),
                delay(&added, 0.95),
                delay(&added, 0.99),
            ]);
        }
    }
    align(&mut table, &[0, 1, 3, 4, 5, 6, 7, 8, 9]);
    format!(
        "{}\n{} calls of {} s each, {:.0} packets/s both ways. Left: what came over\n\
         {} ms later than without loss, or never. Repairs: per byte sent first.\n\
         Least and most: of one call. +: beyond the time without loss.\n\n{}\n",
        choice.profile.about,
        choice.runs,
        choice.length.as_secs(),
        1.0 / GAP.as_secs_f64(),
        LATEST.as_millis(),
        table.trim_fmt()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(losses: &[f64], seed: u64) -> Choice {
        Choice {
            profile: Profile::named("mss").unwrap(),
            losses: losses.iter().map(|loss| Ratio::new(*loss).unwrap()).collect(),
            bursts: vec![1.0],
            runs: 2,
            length: Duration::from_secs(4),
            seed,
        }
    }

    #[test]
    fn without_loss_nothing_is_left_or_late_whatever_the_seed() {
        for seed in [1, 99] {
            let report = run(&Engine::Sim, &choice(&[0.0], seed)).unwrap();
            let of = |metric: &str| report.rows.iter().filter(|row| row.metric == metric).count();
            assert_eq!([of("residual-loss"), of("repairs"), of("delay")], [2, 2, 2]);
            for row in &report.rows {
                match row.metric.as_str() {
                    "delay" => assert_eq!((row.p95, row.n), (Some(0.0), 400)),
                    "residual-loss" => assert_eq!(row.mean, Some(0.0)),
                    // A call's first packets are protected before it is known that the link loses
                    // nothing.
                    _ => assert!(row.mean.unwrap() < 0.1, "{row:?}"),
                }
            }
            assert!(report.goals.is_empty(), "nothing is asked of a link without loss");
        }
    }

    #[test]
    fn the_profiles_own_loss_has_targets_and_a_table_for_a_terminal() {
        let report = run(&Engine::Sim, &choice(&[], 1)).unwrap();
        assert_eq!(report.goals.len(), 3);
        let text = format!("{}{}", report.text, report.goals_text());
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}\n{text}");
        let left = report.rows.iter().find(|row| row.metric == "residual-loss").unwrap();
        assert!(left.mean.unwrap() < 0.06, "less is left than was lost: {left:?}");
        assert!((left.loss.unwrap() - 0.06).abs() < 1e-9 && left.burst == Some(1.0), "{left:?}");
    }
}
