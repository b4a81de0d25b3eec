//! `bentpipe lab run grid`: compares the radio transport with the theoretical limit on many links.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bentpipe_cli::out::{say, show};
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::grid::emu::{Emulator, works};
use bentpipe_lab::experiment::grid::{Cell, Choice, Outcome, Work, golden, sim, table, targets};
use bentpipe_lab::experiment::progress::Sessions;
use bentpipe_lab::scratch::Scratch;
use bentpipe_units::Ratio;
use clap::{Args, ValueEnum};

use super::common::{Outcome as Done, check_writable, missed_words, write};

/// Arguments of `lab run grid`.
#[derive(Args)]
pub struct GridArgs {
    /// Use virtual time, the emulator's real gateways and kernels, or both with a comparison.
    #[arg(long, value_enum, default_value_t = Engine::Sim)]
    engine: Engine,
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
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the simulated figures to CSV files in this folder, one for each link.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["runs", "seed"])]
    golden: Option<PathBuf>,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

/// Engine of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Virtual time.
    Sim,
    /// Network namespaces.
    Emu,
    /// Virtual time, then network namespaces.
    Both,
}

/// Runs the grid.
pub fn run(args: &GridArgs) -> Done {
    check_writable(args.json.as_deref())?;
    let choice = Choice {
        profiles: args.profiles.clone(),
        losses: args.losses.clone(),
        bursts: args.bursts.clone(),
        works: args.works.clone(),
    };
    let works = if args.engine == Engine::Sim { choice.all() } else { works(&choice)? };
    let mut outcomes = Vec::new();
    let mut rows = Vec::new();
    if args.engine != Engine::Emu {
        outcomes = simulate(args, &works)?;
        rows.extend(outcomes.iter().flat_map(|one| one.rows("sim", args.seed)));
    }
    if args.engine != Engine::Sim {
        let emulated = emulate(args, &works)?;
        rows.extend(emulated.iter().flat_map(|one| one.rows("emu", args.seed)));
        if args.engine == Engine::Both {
            show!("\n{}", table::comparison(&outcomes, &emulated));
        }
        outcomes.extend(emulated);
    }
    write(args.json.as_deref(), &rows)?;
    let missed = targets::judge(&outcomes).iter().filter(|verdict| !verdict.holds).count();
    if args.check && missed > 0 {
        return Err(missed_words(missed).into());
    }
    Ok(())
}

fn simulate(args: &GridArgs, works: &[(Cell, Work)]) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let (live, began) = (Sessions::new(), Instant::now());
    let runs = args.runs.map(usize::from);
    let outcomes = sim::run(works, runs, args.seed, &|done, of| live.tell(done, of))?;
    drop(live);
    show!("{}", table::grid(&outcomes));
    say!("{} cells simulated in {:.0} s.", outcomes.len(), began.elapsed().as_secs_f64());
    if let Some(folder) = &args.golden {
        golden::update(folder, &outcomes)
            .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
    }
    Ok(outcomes)
}

fn emulate(args: &GridArgs, works: &[(Cell, Work)]) -> Result<Vec<Outcome>, Box<dyn Error>> {
    emu::enter()?;
    let scratch = Scratch::new()?;
    let emulator = Emulator {
        runs: args.runs.map(usize::from),
        seed: args.seed,
        deadline: Duration::from_secs(args.deadline),
        program: &sibling::find(GATEWAYS)?,
        folder: scratch.path(),
    };
    let outcomes = emulator.run(works)?;
    show!("{}", table::grid(&outcomes));
    Ok(outcomes)
}

/// Parses a percentage as a person writes it: `6`, `3.3 %`.
pub fn per_cent(text: &str) -> Result<Ratio, String> {
    let number = text.trim_end_matches('%').trim();
    let value: f64 = number.parse().map_err(|_| "write per cent, like 6 or 3.3".to_owned())?;
    Ratio::new(value / 100.0).ok_or_else(|| "it is outside 0 to 100 per cent".to_owned())
}
