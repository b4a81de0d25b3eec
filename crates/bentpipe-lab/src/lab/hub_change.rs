//! `bentpipe lab run hub-change`: flows whose hub or egress changes, restarts or dies.

use std::time::Instant;

use bentpipe_cli::out::say;
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::hub_change::emu::Emu;
use bentpipe_lab::experiment::hub_change::scenes::Scene;
use bentpipe_lab::experiment::hub_change::sim::Sim;
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::scratch::Scratch;
use clap::Args;

use super::common::{DEFAULT_PROFILE, Outcome, check_writable};
use super::grid::Engine as Engines;
use super::mixes::{Kept, with_rate};

/// Arguments of `lab run hub-change`.
#[derive(Args)]
pub struct HubChangeArgs {
    /// Use virtual time, real gateways and kernels for those scenes that they can play, or both.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// The radio link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = DEFAULT_PROFILE)]
    profile: String,
    /// Only scenes with this in their names.
    #[arg(long, value_name = "TEXT")]
    scene: Option<String>,
    /// Seed of the links' losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Plays the scenes.
pub fn run(args: &HubChangeArgs) -> Outcome {
    let profile = with_rate(&args.profile)?;
    check_writable(args.kept.json.as_deref())?;
    let chosen = |scene: &&Scene| args.scene.as_ref().is_none_or(|it| scene.name().contains(it));
    let scenes: Vec<Scene> = Scene::ALL.iter().filter(chosen).copied().collect();
    if scenes.is_empty() {
        return Err("no scene has this in its name".into());
    }
    if args.engine != Engines::Sim {
        emu::enter()?;
    }
    let (began, seed, mut report) = (Instant::now(), args.seed, Report::default());
    if args.engine != Engines::Emu {
        let stage = Sim { profile: &profile, seed };
        for scene in &scenes {
            report.append(scene.play(&stage, &profile, seed)?);
        }
    }
    if args.engine != Engines::Sim {
        let scratch = Scratch::new()?;
        let program = sibling::find(GATEWAYS)?;
        let stage = Emu { profile: &profile, seed, program, folder: scratch.path() };
        for scene in scenes.iter().filter(|scene| scene.is_emulated()) {
            report.append(scene.play(&stage, &profile, seed)?);
        }
    }
    say!("{}\n{}", report.text.trim_start(), report.goals_text());
    say!("It took {:.0} s.", began.elapsed().as_secs_f64());
    args.kept.keep(&report.rows, report.missed())
}
