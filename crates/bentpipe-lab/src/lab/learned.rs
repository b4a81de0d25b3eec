//! `bentpipe lab run learned`: sessions whose rate nobody typed.

use std::error::Error;
use std::path::PathBuf;

use bentpipe_lab::experiment::learned::play::Choice;
use bentpipe_lab::experiment::learned::{Cell, LearnedRate, Lease, cells};
use clap::Args;

use super::common::{Engines, Kept, Planned};

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
    /// Write a trace of the first run of each cell to this folder, as CSV and as SVG.
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
}

/// The chosen cells.
pub fn planned(args: &LearnedArgs) -> Result<Planned, Box<dyn Error>> {
    let is_chosen = |cell: &Cell| {
        let case = args.cases.is_empty() || args.cases.contains(&cell.case);
        case && args.cell.as_ref().is_none_or(|text| cell.name.contains(text))
    };
    let cells: Vec<Cell> = cells::all().into_iter().filter(is_chosen).collect();
    if cells.is_empty() {
        return Err("no cell has this case and name: leave one of them out".into());
    }
    let (lease, runs, seed) = (args.lease, args.runs.map(usize::from), args.seed);
    let choice = Choice { cells, lease, runs, seed };
    let learned = LearnedRate { choice, trace: args.trace.clone() };
    Ok(Planned::new(learned, args.engine, &args.kept))
}
