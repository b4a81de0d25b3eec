//! `bentpipe lab run attacks`: measures the gateways under overload.

use bentpipe_cli::out::say;
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::attacks::{self, Attack, Choice};
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::scratch::Scratch;
use clap::Args;

use super::common::{Outcome, check_writable};
use super::grid::Engine as Engines;
use super::mixes::{Kept, with_rate};

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

/// Runs the attacks one after another.
pub fn run(args: &AttacksArgs) -> Outcome {
    let profile = with_rate(&args.profile)?;
    check_writable(args.kept.json.as_deref())?;
    let attacks = if args.attacks.is_empty() { Attack::ALL.to_vec() } else { args.attacks.clone() };
    let AttacksArgs { pages, factor, seed, .. } = *args;
    let choice = Choice { profile, attacks, pages, factor, seed };
    if args.engine != Engines::Sim {
        emu::enter()?;
    }
    let (mut rows, mut missed) = (Vec::new(), 0);
    let mut tell = |report: Report| {
        say!("{}\n{}", report.text, report.goals_text());
        missed += report.missed();
        rows.extend(report.rows);
    };
    if args.engine != Engines::Emu && choice.attacks.iter().any(|it| it.is_simulated()) {
        tell(attacks::simulate(&choice));
    }
    if args.engine != Engines::Sim && choice.attacks.iter().any(|it| it.is_emulated()) {
        let scratch = Scratch::new()?;
        tell(attacks::run(&choice, &sibling::find(GATEWAYS)?, scratch.path())?);
    }
    args.kept.keep(&rows, missed)
}
