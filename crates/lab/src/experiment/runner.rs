//! The runner of all experiments: one engine after the other, with one report for both.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bentpipe_results::outcome::{APART, Report, engines};

use super::engine::{Emulator, Engine, Kind};
use super::progress::Sessions;
use crate::emu;
use crate::scratch::Scratch;
use crate::sim::parallel;

/// An experiment: a selection of cells, whose figures have bounds.
pub trait Experiment {
    /// Engines in which the selection has runs.
    fn engines(&self) -> Vec<Kind>;

    /// Makes all runs in one engine.
    fn run(&self, engine: &Engine<'_>) -> anyhow::Result<Report>;

    /// Relative difference between the figures of both engines above which a figure is marked.
    fn apart(&self) -> f64 {
        APART
    }
}

/// An experiment that one function runs.
pub struct Function<F> {
    engines: Vec<Kind>,
    run: F,
}

impl<F: Fn(&Engine<'_>) -> anyhow::Result<Report>> Function<F> {
    /// An experiment that `run` runs in these engines.
    pub fn new(engines: impl IntoIterator<Item = Kind>, run: F) -> Self {
        Self { engines: engines.into_iter().collect(), run }
    }
}

impl<F: Fn(&Engine<'_>) -> anyhow::Result<Report>> Experiment for Function<F> {
    fn engines(&self) -> Vec<Kind> {
        self.engines.clone()
    }

    fn run(&self, engine: &Engine<'_>) -> anyhow::Result<Report> {
        (self.run)(engine)
    }
}

/// Runs the part of `experiment` that each of `kinds` has. Calls `tell` with each text as soon as it
/// exists.
pub fn run(
    experiment: &dyn Experiment,
    kinds: &[Kind],
    program: fn() -> anyhow::Result<PathBuf>,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Report> {
    let has = experiment.engines();
    let kinds: Vec<Kind> = kinds.iter().copied().filter(|kind| has.contains(kind)).collect();
    if kinds.is_empty() {
        let names: Vec<_> = has.iter().map(|kind| format!("--engine {}", kind.name())).collect();
        anyhow::bail!("this selection has no run in this engine: use {}", names.join(" or "));
    }
    // A process with several threads cannot enter a user namespace.
    if kinds.contains(&Kind::Emu) {
        emu::enter()?;
    }
    let (mut all, mut first) = (Report::default(), None);
    for kind in kinds {
        let began = Instant::now();
        let report = match kind {
            Kind::Sim => experiment.run(&Engine::Sim)?,
            Kind::Emu => {
                let scratch = Scratch::new()?;
                let emulator = Emulator { folder: scratch.path(), program };
                experiment.run(&Engine::Emu(emulator))?
            }
        };
        let mut text = format!("{}\n{}", report.text, report.goals_text());
        let took = began.elapsed().as_secs_f64();
        let _ = writeln!(text, "The {} engine took {took:.0} s.", kind.name());
        tell(text.trim_start_matches('\n'));
        if let Some(simulated) = first.replace(all.rows.len()..all.rows.len() + report.rows.len()) {
            let text = engines(&all.rows[simulated], &report.rows, experiment.apart());
            tell(&format!("\n{text}"));
        }
        all.append(report);
    }
    Ok(all)
}

/// Results of all sessions, by cell: `counts` has the number of sessions of each cell, and `one` runs
/// a session of the cell at an index. Shows the progress on a terminal.
pub fn sessions<R: Send>(
    threads: usize,
    counts: &[usize],
    one: impl Fn(usize, usize) -> R + Sync,
) -> Vec<Vec<R>> {
    let (live, over, all) = (Sessions::new(), AtomicUsize::new(0), counts.iter().sum());
    by_cell(threads, counts, |cell, session| {
        let one = one(cell, session);
        live.tell(over.fetch_add(1, Ordering::Relaxed) + 1, all);
        one
    })
}

/// Results of `one` by cell, for as many indices in each cell as `counts` says. They begin in this
/// order.
pub fn by_cell<R: Send>(
    threads: usize,
    counts: &[usize],
    one: impl Fn(usize, usize) -> R + Sync,
) -> Vec<Vec<R>> {
    let of_cell = |(cell, count): (usize, &usize)| (0..*count).map(move |index| (cell, index));
    let jobs: Vec<(usize, usize)> = counts.iter().enumerate().flat_map(of_cell).collect();
    let mut found = parallel::map_on(threads, jobs, |(cell, index)| one(cell, index)).into_iter();
    counts.iter().map(|count| found.by_ref().take(*count).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_results::outcome::{Goal, Row};

    fn program() -> anyhow::Result<PathBuf> {
        anyhow::bail!("no program is needed")
    }

    #[test]
    fn an_experiment_runs_only_in_its_engines() {
        let simulated = Function::new([Kind::Sim], |engine: &Engine<'_>| {
            let goals = vec![Goal::ratio_at_most("a share", Some(0.5), 0.4)];
            let report = Report { text: "a text\n".into(), rows: vec![Row::default()], goals };
            Ok(report.found_by(engine.name()))
        });
        let mut said = String::new();
        let kinds = [Kind::Sim, Kind::Emu];
        let report = run(&simulated, &kinds, program, &mut |text| said += text).unwrap();
        assert_eq!((report.missed(), &*report.rows[0].engine), (1, "sim"));
        for part in ["a text\n\n target", "missed", "The sim engine took"] {
            assert!(said.contains(part), "{part} is missing:\n{said}");
        }
        let error = run(&simulated, &[Kind::Emu], program, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("use --engine sim"), "{error}");
    }

    #[test]
    fn results_of_sessions_stay_with_their_cells() {
        let found = sessions(3, &[2, 0, 3], |cell, session| 10 * cell + session);
        assert_eq!(found, [vec![0, 1], vec![], vec![20, 21, 22]]);
    }
}
