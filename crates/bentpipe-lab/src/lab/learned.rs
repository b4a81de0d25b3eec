//! `bentpipe lab run learned`: sessions whose rate nobody typed.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bentpipe_cli::out::{say, show};
use bentpipe_lab::experiment::learned::{Cell, Found, Lease, Outcome, cells, chart, play, table};
use bentpipe_lab::experiment::progress::Sessions;
use clap::Args;

use super::common::{Outcome as Done, check_writable, missed_words, write};

/// Arguments of `lab run learned`.
#[derive(Args)]
pub struct LearnedArgs {
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
    let chosen = |cell: &Cell| {
        let case = args.cases.is_empty() || args.cases.contains(&cell.case);
        case && args.cell.as_ref().is_none_or(|text| cell.name.contains(text))
    };
    let cells: Vec<Cell> = cells::all().into_iter().filter(chosen).collect();
    if cells.is_empty() {
        return Err("no cell has this case and name: leave one of them out".into());
    }
    let (live, began) = (Sessions::new(), Instant::now());
    let runs = args.runs.map(usize::from);
    let choice = play::Choice { cells, lease: args.lease, runs, seed: args.seed };
    let outcomes = play::run(&choice, &|done, of| live.tell(done, of))?;
    drop(live);
    show!("{}", table::outcomes(&outcomes));
    say!("{} cells simulated in {:.0} s.", outcomes.len(), began.elapsed().as_secs_f64());
    if let Some(folder) = &args.trace {
        traces(folder, &outcomes)
            .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
    }
    let rows: Vec<_> =
        outcomes.iter().flat_map(|one| one.rows("sim", args.lease, args.seed)).collect();
    write(args.json.as_deref(), &rows)?;
    let missed =
        outcomes.iter().flat_map(|one| &one.found).filter(|one| !Found::holds(one)).count();
    if args.check && missed > 0 {
        return Err(missed_words(missed).into());
    }
    Ok(())
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
