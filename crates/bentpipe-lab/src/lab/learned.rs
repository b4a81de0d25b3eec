//! `bentpipe lab run learned`: sessions whose rate nobody typed.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bentpipe_cli::out::{say, show};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::compare;
use bentpipe_lab::experiment::engine::{Emulator, Engine};
use bentpipe_lab::experiment::learned::{Cell, Found, Lease, Outcome, cells, chart, play, table};
use bentpipe_lab::experiment::progress::Sessions;
use bentpipe_lab::result::Row;
use bentpipe_lab::scratch::Scratch;
use clap::Args;

use super::common::{Outcome as Done, check_writable, missed_words, write};
use super::grid::Engine as Engines;

/// Arguments of `lab run learned`.
#[derive(Args)]
pub struct LearnedArgs {
    /// Engine of the runs. The emulator plays those cells whose links do not change, in real time.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// Origin of the rate: none (CUBIC), static (typed at both ends) or learned.
    #[arg(long, value_name = "LEASE", default_value_t = Lease::Learned)]
    lease: Lease,
    /// Case, by its number; may be repeated or separated by commas [default: all].
    #[arg(long = "cases", value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(1..=20))]
    cases: Vec<u8>,
    /// Only cells with this in their names.
    #[arg(long, value_name = "TEXT")]
    cell: Option<String>,
    /// Number of runs of each download, and of objects of each size [default: 3 to 10, and 20 to
    /// 200].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Seed of the first run. The others' follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a trace of the first run of each cell to this folder, as CSV and as SVG.
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
    /// Fail if a bound is missed.
    #[arg(long)]
    check: bool,
}

/// Runs the cells.
pub fn run(args: &LearnedArgs) -> Done {
    check_writable(args.json.as_deref())?;
    let (is_simulated, is_emulated) = (args.engine != Engines::Emu, args.engine != Engines::Sim);
    let cells = args.cells()?;
    if is_emulated {
        emu::enter()?;
    }
    let mut rows = Vec::new();
    let mut missed = 0;
    if is_simulated {
        let found = args.play(cells.clone(), &Engine::Sim, &mut rows)?;
        if let Some(folder) = &args.trace {
            traces(folder, &found)
                .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
        }
        missed += count_missed(&found);
    }
    let simulated = rows.len();
    if is_emulated {
        let scratch = Scratch::new()?;
        let cells = cells.into_iter().filter(Cell::is_emulated).collect();
        let engine = Engine::Emu(Emulator { folder: scratch.path() });
        missed += count_missed(&args.play(cells, &engine, &mut rows)?);
    }
    if is_simulated && is_emulated {
        show!("\n{}", compare::engines(&rows[..simulated], &rows[simulated..]));
    }
    write(args.json.as_deref(), &rows)?;
    if args.check && missed > 0 {
        return Err(missed_words(missed).into());
    }
    Ok(())
}

impl LearnedArgs {
    /// The chosen cells.
    fn cells(&self) -> Result<Vec<Cell>, Box<dyn Error>> {
        let is_chosen = |cell: &Cell| {
            let case = self.cases.is_empty() || self.cases.contains(&cell.case);
            case && self.cell.as_ref().is_none_or(|text| cell.name.contains(text))
        };
        let cells: Vec<Cell> = cells::all().into_iter().filter(is_chosen).collect();
        if cells.is_empty() {
            return Err("no cell has this case and name: leave one of them out".into());
        }
        if self.engine != Engines::Sim && !cells.iter().any(Cell::is_emulated) {
            return Err("none of these cells has an emulated engine: use --engine sim".into());
        }
        Ok(cells)
    }

    /// Runs `cells` in `engine`, prints the figures and appends their rows.
    fn play(
        &self,
        cells: Vec<Cell>,
        engine: &Engine<'_>,
        rows: &mut Vec<Row>,
    ) -> Result<Vec<Outcome>, Box<dyn Error>> {
        let (live, began) = (Sessions::new(), Instant::now());
        let runs = self.runs.map(usize::from);
        let choice = play::Choice { cells, lease: self.lease, runs, seed: self.seed };
        let outcomes = play::run(&choice, engine, &|done, of| live.tell(done, of))?;
        drop(live);
        show!("{}", table::outcomes(&outcomes));
        let took = began.elapsed().as_secs_f64();
        say!("{} cells took {took:.0} s in the {} engine.", outcomes.len(), engine.name());
        rows.extend(outcomes.iter().flat_map(|one| one.rows(engine.name(), self.lease, self.seed)));
        Ok(outcomes)
    }
}

fn count_missed(outcomes: &[Outcome]) -> usize {
    outcomes.iter().flat_map(|one| &one.found).filter(|one| !Found::holds(one)).count()
}

fn traces(folder: &Path, outcomes: &[Outcome]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for outcome in outcomes {
        let name: String = (outcome.name.chars())
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        let path = folder.join(format!("{:02}-{name}", outcome.case));
        std::fs::write(path.with_extension("csv"), table::csv(&outcome.trace))?;
        std::fs::write(path.with_extension("svg"), chart::svg(&outcome.name, &outcome.trace))?;
    }
    Ok(())
}
