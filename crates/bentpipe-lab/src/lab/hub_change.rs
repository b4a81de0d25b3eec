//! `bentpipe lab run hub-change`: flows whose hub or egress changes, restarts or dies.

use std::error::Error;

use bentpipe_lab::experiment::engine::{Emulator, Engine, Kind};
use bentpipe_lab::experiment::hub_change::emu::Emu;
use bentpipe_lab::experiment::hub_change::scenes::Scene;
use bentpipe_lab::experiment::hub_change::script::Stage;
use bentpipe_lab::experiment::hub_change::sim::Sim;
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::experiment::runner::Function;
use clap::Args;

use super::common::{DEFAULT_PROFILE, Engines, Kept, Planned};
use super::mixes::with_rate;

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

/// The chosen scenes.
pub fn planned(args: &HubChangeArgs) -> Result<Planned, Box<dyn Error>> {
    let (profile, seed) = (with_rate(&args.profile)?, args.seed);
    let chosen = |scene: &&Scene| args.scene.as_ref().is_none_or(|it| scene.name().contains(it));
    let scenes: Vec<Scene> = Scene::ALL.iter().filter(chosen).copied().collect();
    if scenes.is_empty() {
        return Err("no scene has this in its name".into());
    }
    let is_emulated = scenes.iter().any(|scene| scene.is_emulated());
    let is_simulated = scenes.iter().any(|scene| scene.is_simulated());
    let engines = is_simulated.then_some(Kind::Sim).into_iter();
    let engines = engines.chain(is_emulated.then_some(Kind::Emu));
    let run = move |engine: &Engine<'_>| {
        let stage: Box<dyn Stage + '_> = match engine {
            Engine::Sim => Box::new(Sim { profile: &profile, seed }),
            Engine::Emu(Emulator { folder, program }) => {
                Box::new(Emu { profile: &profile, seed, program: program()?, folder })
            }
        };
        let plays = |scene: &&Scene| match engine {
            Engine::Sim => scene.is_simulated(),
            Engine::Emu(_) => scene.is_emulated(),
        };
        let mut report = Report::default();
        for scene in scenes.iter().filter(plays) {
            report.append(scene.play(stage.as_ref(), &profile, seed)?);
        }
        Ok(report)
    };
    Ok(Planned::new(Function::new(engines, run), args.engine, &args.kept))
}
