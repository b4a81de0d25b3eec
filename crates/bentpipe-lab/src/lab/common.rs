//! Arguments and output that several commands use.

use std::error::Error;
use std::path::{Path, PathBuf};

use bentpipe_cli::out::show;
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::experiment::engine::Kind;
use bentpipe_lab::experiment::runner::{self, Experiment};
use bentpipe_lab::result::{Row, write_json};
use clap::{Args, ValueEnum};

pub type Outcome = Result<(), Box<dyn Error>>;

/// Default link profile.
pub const DEFAULT_PROFILE: &str = "mss";

/// Link, and output file.
#[derive(Args)]
pub struct LinkArgs {
    /// The link: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = DEFAULT_PROFILE)]
    pub profile: String,
    /// Seed of the link's losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Engine of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engines {
    /// Virtual time.
    Sim,
    /// Network namespaces.
    Emu,
    /// Virtual time, then network namespaces.
    Both,
}

/// Engine of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OneEngine {
    /// Virtual time.
    Sim,
    /// Real kernels.
    Emu,
}

impl From<OneEngine> for Kind {
    fn from(engine: OneEngine) -> Self {
        match engine {
            OneEngine::Sim => Self::Sim,
            OneEngine::Emu => Self::Emu,
        }
    }
}

/// Output of an experiment.
#[derive(Debug, Clone, Args)]
pub struct Kept {
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Fail if a target is missed.
    #[arg(long)]
    pub check: bool,
}

/// A selected experiment, its engines and its output.
pub struct Planned {
    experiment: Box<dyn Experiment>,
    engines: Engines,
    kept: Kept,
}

impl Planned {
    /// An experiment in these engines, as far as it has them.
    pub fn new(experiment: impl Experiment + 'static, engines: Engines, kept: &Kept) -> Self {
        Self { experiment: Box::new(experiment), engines, kept: kept.clone() }
    }

    /// Runs the experiment, prints its report and writes its rows. Returns an error if targets are
    /// missed and `--check` is set.
    pub fn run(&self) -> Outcome {
        let Self { experiment, engines, kept } = self;
        check_writable(kept.json.as_deref())?;
        let kinds: &[Kind] = match engines {
            Engines::Sim => &[Kind::Sim],
            Engines::Emu => &[Kind::Emu],
            Engines::Both => &[Kind::Sim, Kind::Emu],
        };
        let report = runner::run(experiment.as_ref(), kinds, program, &mut |text| show!("{text}"))?;
        write(kept.json.as_deref(), &report.rows)?;
        match (kept.check, report.missed()) {
            (true, 1) => Err("a target is missed".into()),
            (true, 2..) => Err(format!("{} targets are missed", report.missed()).into()),
            _ => Ok(()),
        }
    }
}

/// Finds the program of the gateways.
fn program() -> anyhow::Result<PathBuf> {
    Ok(sibling::find(GATEWAYS)?)
}

/// Checks that the file can be written, so that minutes of measurements do not end with an error.
pub fn check_writable(json: Option<&Path>) -> Outcome {
    if let Some(path) = json {
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Writes the rows if a file is given.
pub fn write(json: Option<&Path>, rows: &[Row]) -> Outcome {
    json.map_or(Ok(()), |path| {
        write_json(path, rows)
            .map_err(|error| format!("cannot write {}: {error}", path.display()).into())
    })
}
