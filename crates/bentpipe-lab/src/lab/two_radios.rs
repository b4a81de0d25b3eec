//! `bentpipe lab run two-radios`: a session over two radios at once.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use bentpipe_cli::out::{say, show};
use bentpipe_lab::contender::{self, SystemUnderTest};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::progress::Sessions;
use bentpipe_lab::experiment::two_radios::{self, Cell, Choice, Engine, Outcome};
use bentpipe_lab::scratch::Scratch;
use bentpipe_lab::traffic::emu::FurtherRates;
use clap::Args;

use super::common::{Outcome as Done, check_writable, missed_words, write};
use super::grid::Engine as Engines;

/// Arguments of `lab run two-radios`.
#[derive(Args)]
pub struct TwoRadiosArgs {
    /// Engine of the runs: exact virtual time, or gateways between real kernels in real time.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// Only the cell of this name, or if there is none, cells with this in their names.
    #[arg(long, value_name = "TEXT")]
    cell: Option<String>,
    /// Number of sessions of each cell [default: 3 to 60; 4 in the emulator].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    sessions: Option<u16>,
    /// Number of objects in each session [default: 30; 10 of 1 MB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Let the ground learn its rates on all radios but the first, as it does by its file. Otherwise
    /// it has the rates of the links.
    #[arg(long)]
    learned: bool,
    /// Baseline that crosses the emulated links instead of the gateways.
    #[arg(long, value_name = "NAME", value_parser = baseline)]
    contender: Option<&'static dyn SystemUnderTest>,
    /// Seed of the first session. The others' follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the simulated figures of all cells to this CSV file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cell", "sessions", "runs", "learned", "seed"])]
    golden: Option<PathBuf>,
    /// Fail if a bound is missed.
    #[arg(long)]
    check: bool,
}

/// Parses the name of a baseline that uses several radios.
fn baseline(name: &str) -> Result<&'static dyn SystemUnderTest, String> {
    let all = contender::bundling();
    let found = all.iter().find(|one| one.name() == name);
    let names = || all.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    found.copied().ok_or_else(|| format!("of baselines over several radios there are {}", names()))
}

/// Runs the cells.
pub fn run(args: &TwoRadiosArgs) -> Done {
    check_writable(args.json.as_deref())?;
    if args.golden.is_some() && args.engine == Engines::Emu {
        return Err("the golden figures are the simulator's: leave --engine emu out".into());
    }
    if args.contender.is_some() && args.engine != Engines::Emu {
        return Err("a baseline needs real kernels: add --engine emu".into());
    }
    let mut cells = two_radios::cells()?;
    if let Some(text) = &args.cell {
        let is_name = cells.iter().any(|cell| cell.name == *text);
        cells.retain(|cell| if is_name { cell.name == *text } else { cell.name.contains(text) });
    }
    if cells.is_empty() {
        return Err("no cell has this in its name".into());
    }
    if args.engine != Engines::Sim {
        emu::enter()?;
    }
    let mut rows = Vec::new();
    let mut outcomes = Vec::new();
    if args.engine != Engines::Emu {
        outcomes = args.play(&cells, &Engine::Sim, &mut rows)?;
        if let Some(file) = &args.golden {
            std::fs::write(file, two_radios::golden::text(&outcomes))
                .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
    }
    if args.engine != Engines::Sim {
        let scratch = Scratch::new()?;
        let engine = Engine::Emu { folder: scratch.path(), baseline: args.contender };
        let emulated = args.play(&cells, &engine, &mut rows)?;
        if args.engine == Engines::Both {
            show!("\n{}", two_radios::comparison(&outcomes, &emulated));
        }
        outcomes.extend(emulated);
    }
    write(args.json.as_deref(), &rows)?;
    let missed = outcomes.iter().filter(|one| !one.holds()).count();
    if args.check && missed > 0 {
        return Err(missed_words(missed).into());
    }
    Ok(())
}

impl TwoRadiosArgs {
    /// Runs `cells` in `engine`, prints the figures and appends their rows.
    fn play(
        &self,
        cells: &[Cell],
        engine: &Engine<'_>,
        rows: &mut Vec<bentpipe_lab::result::Row>,
    ) -> Result<Vec<Outcome>, Box<dyn Error>> {
        let (live, began) = (Sessions::new(), Instant::now());
        let choice = Choice {
            sessions: self.sessions.map(u64::from),
            runs: self.runs.map(usize::from),
            seed: self.seed,
            rates: if self.learned { FurtherRates::Learned } else { FurtherRates::Typed },
        };
        let outcomes = two_radios::run(cells, choice, engine, &|done, of| live.tell(done, of))?;
        drop(live);
        show!("{}", two_radios::text(&outcomes));
        let took = began.elapsed().as_secs_f64();
        say!("{} cells took {took:.0} s in the {} engine.", outcomes.len(), engine.name());
        let contender = self.contender.map(|one| one.name());
        rows.extend(outcomes.iter().map(|one| one.row(engine.name(), contender, self.seed)));
        Ok(outcomes)
    }
}
