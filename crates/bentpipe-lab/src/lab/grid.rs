//! `bentpipe lab run grid`: compares the radio transport with the theoretical limit on many links.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use bentpipe_lab::experiment::grid::emu::{Runs, works};
use bentpipe_lab::experiment::grid::{Choice, Grid, Work};
use bentpipe_units::Ratio;
use clap::Args;

use super::common::{Engines, Kept, Planned};

/// Arguments of `lab run grid`.
#[derive(Args)]
pub struct GridArgs {
    /// Use virtual time, the emulator's real gateways and kernels, or both with a comparison.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// The link: a built-in profile, or a file that ends in .toml; may be repeated [default: those
    /// of the grid; with the emulator, mss and geo-satl].
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Loss in each direction, in per cent; may be repeated [default: 0, 1, 3.3, 6, 10, 20 and 40;
    /// with the emulator, the link's own loss].
    #[arg(long = "loss", value_name = "PERCENT", value_parser = per_cent)]
    losses: Vec<Ratio>,
    /// Mean length of a burst of losses in packet times, 1 for independent losses; may be
    /// repeated [default: 1, 4 and 20; with the emulator, 1].
    #[arg(long = "burst", value_name = "PACKETS")]
    bursts: Vec<f64>,
    /// Workload: bulk, object-SIZE, file-SIZE, or the latter two with -beside-bulk; may be repeated
    /// [default: bulk, object-10k, object-100k and object-1m, and in virtual time all others with a
    /// target].
    #[arg(long = "workload", value_name = "NAME")]
    works: Vec<Work>,
    /// Number of runs of each workload in each configuration [default: 3 of bulk, 20 of long files,
    /// else 100 to 400].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Seed of all losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Time limit for all emulated runs in one testbed, in seconds; runs not finished by then count
    /// as unfinished.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    deadline: u64,
    /// Write the simulated figures to CSV files in this folder, one for each link.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["runs", "seed"])]
    golden: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
}

/// The grid.
pub fn planned(args: &GridArgs) -> Result<Planned, Box<dyn Error>> {
    let choice = Choice {
        profiles: args.profiles.clone(),
        losses: args.losses.clone(),
        bursts: args.bursts.clone(),
        works: args.works.clone(),
    };
    let works = if args.engine == Engines::Sim { choice.all() } else { works(&choice)? };
    let runs = Runs {
        count: args.runs.map(usize::from),
        seed: args.seed,
        deadline: Duration::from_secs(args.deadline),
    };
    let grid = Grid { works, runs, golden: args.golden.clone() };
    Ok(Planned::new(grid, args.engine, &args.kept))
}

/// Parses a percentage as a person writes it: `6`, `3.3 %`.
pub fn per_cent(text: &str) -> Result<Ratio, String> {
    let number = text.trim_end_matches('%').trim();
    let value: f64 = number.parse().map_err(|_| "write per cent, like 6 or 3.3".to_owned())?;
    Ratio::new(value / 100.0).ok_or_else(|| "it is outside 0 to 100 per cent".to_owned())
}
