//! `bentpipe lab run attacks`: overload, measured like throughput.

use bentpipe_lab::emu;
use bentpipe_lab::experiment::attacks::{self, Attack, Choice};
use bentpipe_lab::scratch::Scratch;
use clap::Args;

use super::mixes::{Kept, with_rate};
use super::{Outcome, check_writable};
use crate::out::say;

/// Arguments of `lab run attacks`.
#[derive(Args)]
pub struct AttacksArgs {
    /// An attack by its name; may be repeated [default: all].
    #[arg(long = "attack", value_name = "NAME")]
    attacks: Vec<Attack>,
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = attacks::DEFAULT_PROFILE)]
    profile: String,
    /// Pages of the victim before each attack, and as many in it.
    #[arg(long, value_name = "N", default_value_t = attacks::DEFAULT_PAGES, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pages: u16,
    /// Strength of the attacker against what is stated of the attack.
    #[arg(long, value_name = "N", default_value_t = attacks::DEFAULT_FACTOR, value_parser = clap::value_parser!(u32).range(1..=100))]
    factor: u32,
    /// Seed of the link's losses and of the attacker's random bytes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Plays the attacks, one after the other.
pub fn run(args: &AttacksArgs) -> Outcome {
    let profile = with_rate(&args.profile)?;
    check_writable(args.kept.json.as_deref())?;
    emu::enter()?;
    let scratch = Scratch::new()?;
    let attacks = if args.attacks.is_empty() { Attack::ALL.to_vec() } else { args.attacks.clone() };
    let AttacksArgs { pages, factor, seed, .. } = *args;
    let choice = Choice { profile, attacks, pages, factor, seed };
    let report = attacks::run(&choice, &std::env::current_exe()?, scratch.path())?;
    say!("{}\n{}", report.text, report.goals_text());
    args.kept.keep(&report.rows, report.missed())
}
