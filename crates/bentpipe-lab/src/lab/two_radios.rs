//! `bentpipe lab run two-radios`: a session over two radios at once.

use std::path::PathBuf;
use std::time::Instant;

use bentpipe_cli::out::{say, show};
use bentpipe_lab::experiment::two_radios;
use clap::Args;

use super::common::{Outcome as Done, check_writable, missed_words, write};

/// Engine of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// Exact virtual time.
    Sim,
}

/// Arguments of `lab run two-radios`.
#[derive(Args)]
pub struct TwoRadiosArgs {
    /// Engine of the runs.
    #[arg(long, value_enum, default_value_t = Engine::Sim)]
    engine: Engine,
    /// Only cells with this in their names.
    #[arg(long, value_name = "TEXT")]
    cell: Option<String>,
    /// Number of objects in each session [default: 30; 10 of 1 MB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Seed of the first session. The others' follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail if a bound is missed.
    #[arg(long)]
    check: bool,
}

/// Runs the cells.
pub fn run(args: &TwoRadiosArgs) -> Done {
    check_writable(args.json.as_deref())?;
    let Engine::Sim = args.engine;
    let began = Instant::now();
    let mut cells = two_radios::cells()?;
    cells.retain(|cell| args.cell.as_ref().is_none_or(|text| cell.name.contains(text)));
    if cells.is_empty() {
        return Err("no cell has this in its name".into());
    }
    let outcomes = two_radios::run(&cells, args.runs.map(usize::from), args.seed);
    show!("{}", two_radios::text(&outcomes));
    say!("{} cells took {:.0} s.", outcomes.len(), began.elapsed().as_secs_f64());
    let rows: Vec<_> = outcomes.iter().map(|one| one.row(args.seed)).collect();
    write(args.json.as_deref(), &rows)?;
    let missed = outcomes.iter().filter(|one| !one.holds()).count();
    if args.check && missed > 0 {
        return Err(missed_words(missed).into());
    }
    Ok(())
}
