//! `bentpipe lab run attacks`: measures the gateways under overload.

use std::error::Error;

use bentpipe_lab::experiment::attacks::{self, Attack, Choice};
use bentpipe_lab::experiment::engine::{Emulator, Engine, Kind};
use bentpipe_lab::experiment::runner::Function;
use clap::Args;

use super::common::{Engines, Kept, Planned};
use super::mixes::with_rate;

/// Arguments of `lab run attacks`.
#[derive(Args)]
pub struct AttacksArgs {
    /// Name of an attack; may be repeated [default: all].
    #[arg(long = "attack", value_name = "NAME")]
    attacks: Vec<Attack>,
    /// Use virtual time for attacks that need no kernel, or real gateways and kernels, or both.
    #[arg(long, value_enum, default_value_t = Engines::Both)]
    engine: Engines,
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = attacks::DEFAULT_PROFILE)]
    profile: String,
    /// Pages that the victim loads before each attack, and as many during it.
    #[arg(long, value_name = "N", default_value_t = attacks::DEFAULT_PAGES, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pages: u16,
    /// Multiplier of the attacker's specified strength.
    #[arg(long, value_name = "N", default_value_t = attacks::DEFAULT_FACTOR, value_parser = clap::value_parser!(u32).range(1..=100))]
    factor: u32,
    /// Seed of the link's losses and of the attacker's random bytes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// The chosen attacks.
pub fn planned(args: &AttacksArgs) -> Result<Planned, Box<dyn Error>> {
    let profile = with_rate(&args.profile)?;
    let attacks = if args.attacks.is_empty() { Attack::ALL.to_vec() } else { args.attacks.clone() };
    let AttacksArgs { pages, factor, seed, .. } = *args;
    let choice = Choice { profile, attacks, pages, factor, seed };
    let has = |kind: Kind| {
        choice.attacks.iter().any(|attack| match kind {
            Kind::Sim => attack.is_simulated(),
            Kind::Emu => attack.is_emulated(),
        })
    };
    let engines: Vec<Kind> = [Kind::Sim, Kind::Emu].into_iter().filter(|kind| has(*kind)).collect();
    let run = move |engine: &Engine<'_>| match engine {
        Engine::Sim => Ok(attacks::simulate(&choice)),
        Engine::Emu(Emulator { folder, program }) => attacks::run(&choice, &program()?, folder),
    };
    Ok(Planned::new(Function::new(engines, run), args.engine, &args.kept))
}
