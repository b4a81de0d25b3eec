//! `bentpipe lab run aerotcp`: the sweep of AeroTCP's paper.

use std::path::PathBuf;
use std::time::Instant;

use bentpipe_lab::contender::{self, Contender};
use bentpipe_lab::experiment::table;
use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::Row;
use bentpipe_lab::sim::aerotcp as sweep;
use clap::{Args, ValueEnum};

use super::{Outcome, check_writable, write};
use crate::out::{say, show};

/// Arguments of `lab run aerotcp`.
#[derive(Args)]
pub struct AeroTcpArgs {
    /// Engine that runs it.
    #[arg(long, default_value = "sim")]
    engine: Engine,
    /// System under test, bentpipe or bentpipe-aerotcp; may be repeated [default: both].
    #[arg(long = "contender", value_name = "NAME", value_parser = contender::named)]
    contenders: Vec<&'static dyn Contender>,
    /// A bit-error rate; may be repeated [default: half decades from 1e-8 to 1e-5].
    #[arg(long = "ber", value_name = "SHARE", value_parser = ber)]
    bers: Vec<f64>,
    /// Runs of each cell.
    #[arg(long, value_name = "N", default_value_t = sweep::DEFAULT_RUNS as u16, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seed of the link's losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures there, as an array of rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    /// Virtual time.
    Sim,
}

fn ber(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "is no share of all bits: write one from 0 to 1, as 1e-7".into())
}

/// Runs the sweep and prints its table.
pub fn run(args: &AeroTcpArgs) -> Outcome {
    let Engine::Sim = args.engine;
    let runs = usize::from(args.runs);
    let wanted = |cell: &sweep::Cell| {
        args.contenders.is_empty() || args.contenders.contains(&cell.contender)
    };
    let bers = match &args.bers[..] {
        [] => sweep::bers(),
        some => some.to_vec(),
    };
    let cells: Vec<_> = sweep::cells(&bers).into_iter().filter(wanted).collect();
    if cells.is_empty() {
        return Err("the aerotcp experiment compares bentpipe and bentpipe-aerotcp".into());
    }
    check_writable(args.json.as_deref())?;
    let began = Instant::now();
    let found = sweep::run(&cells, runs, args.seed)?;
    say!(
        "{} files of {} kB at once over {}; payload ÷ rate from the first byte to the last, \
         median of {runs}",
        sweep::FILES,
        sweep::FILE_BYTES / 1000,
        Profile::named(sweep::PROFILE)?.about
    );
    show!("{}", table::sweep(&found));
    say!("limit is 1−p. The sweep took {} s.", began.elapsed().as_secs());
    let rows: Vec<Row> = found.iter().flat_map(|found| found.rows(args.seed)).collect();
    write(args.json.as_deref(), &rows)
}
