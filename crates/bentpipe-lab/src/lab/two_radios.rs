//! `bentpipe lab run two-radios`: a session over two radios at once.

use std::error::Error;
use std::path::PathBuf;

use bentpipe_lab::experiment::two_radios::{self, Choice, TwoRadios};
use bentpipe_lab::system::{self, SystemUnderTest};
use bentpipe_lab::traffic::emu::FurtherRates;
use clap::Args;

use super::common::{Engines, Kept, Planned};

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
    system: Option<&'static dyn SystemUnderTest>,
    /// Seed of the first session. The others' follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the simulated figures of all cells to this CSV file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cell", "sessions", "runs", "learned", "seed"])]
    golden: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
}

/// Parses the name of a baseline that uses several radios.
fn baseline(name: &str) -> Result<&'static dyn SystemUnderTest, String> {
    let all = system::bundling();
    let found = all.iter().find(|one| one.name() == name);
    let names = || all.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    found.copied().ok_or_else(|| format!("of baselines over several radios there are {}", names()))
}

/// The chosen cells.
pub fn planned(args: &TwoRadiosArgs) -> Result<Planned, Box<dyn Error>> {
    if args.golden.is_some() && args.engine == Engines::Emu {
        return Err("the golden figures are the simulator's: leave --engine emu out".into());
    }
    if args.system.is_some() && args.engine != Engines::Emu {
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
    let choice = Choice {
        sessions: args.sessions.map(u64::from),
        runs: args.runs.map(usize::from),
        seed: args.seed,
        rates: if args.learned { FurtherRates::Learned } else { FurtherRates::Typed },
        baseline: args.system,
    };
    let experiment = TwoRadios { cells, choice, golden: args.golden.clone() };
    Ok(Planned::new(experiment, args.engine, &args.kept))
}
