//! `bentpipe lab run mesh`: hubs, and egresses near the content.

use std::error::Error;

use bentpipe_lab::experiment::mesh::{Mesh, Part, Seeds};
use clap::Args;

use super::common::{Engines, Kept, Planned};

/// Arguments of `lab run mesh`.
#[derive(Args)]
pub struct MeshArgs {
    /// Engine of the runs. All of them are in virtual time.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// Only parts with this in their names.
    #[arg(long, value_name = "TEXT")]
    part: Option<String>,
    /// Number of runs of each simulated path.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seed of the first run. The others' follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// The chosen parts.
pub fn planned(args: &MeshArgs) -> Result<Planned, Box<dyn Error>> {
    let chosen = |part: &Part| args.part.as_ref().is_none_or(|it| part.name().contains(it));
    let parts: Vec<Part> = Part::ALL.into_iter().filter(chosen).collect();
    if parts.is_empty() {
        return Err("no part has this in its name".into());
    }
    let seeds = Seeds { first: args.seed, runs: args.runs.into() };
    Ok(Planned::new(Mesh { parts, seeds }, args.engine, &args.kept))
}
