//! Experiments with mixed traffic.
//!
//! - `bentpipe lab run latency-under-load | class-rates | cabin-mix | call`: effect of each kind of
//!   traffic on others.
//! - `bentpipe lab run dns | pages-cold | pages-warm`: benefit of the cabin services.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use bentpipe_lab::experiment::choice::Choice;
use bentpipe_lab::experiment::engine::{Engine, Kind};
use bentpipe_lab::experiment::pages::{self, Reader};
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::experiment::runner::Function;
use bentpipe_lab::experiment::{
    browser, browser_quic, cabin_mix, call, dns, http_cache, latency, pages_browser,
};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::workload::secure::Version;
use bentpipe_units::{ByteSize, Ratio};
use clap::Args;

use super::common::{Engines, Kept, Planned};
use super::grid::per_cent;

/// Arguments shared by all experiments that run in either engine.
#[derive(Args)]
pub struct Common {
    /// Use virtual time, the emulator's real gateways and kernels in real time, or both in
    /// sequence.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// Seed of all losses; further runs use the following seeds.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Arguments of `lab run latency-under-load` and `lab run class-rates`.
#[derive(Args)]
pub struct LatencyArgs {
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::common::DEFAULT_PROFILE)]
    profile: String,
    /// Measured length of each run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = latency::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Number of runs of each part.
    #[arg(long, value_name = "N", default_value_t = latency::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `lab run cabin-mix`.
#[derive(Args)]
pub struct CabinArgs {
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = cabin_mix::DEFAULT_PROFILE)]
    profile: String,
    /// Measured length of each run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = cabin_mix::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Number of runs.
    #[arg(long, value_name = "N", default_value_t = cabin_mix::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `lab run call`.
#[derive(Args)]
pub struct CallArgs {
    /// The link: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::common::DEFAULT_PROFILE)]
    profile: String,
    /// Loss in each direction, in per cent; may be repeated [default: the link's own loss].
    #[arg(long = "loss", value_name = "PERCENT", value_parser = per_cent)]
    losses: Vec<Ratio>,
    /// Mean length of a burst of losses in packet times, 1 for independent losses; may be
    /// repeated.
    #[arg(long = "burst", value_name = "PACKETS", default_values_t = call::DEFAULT_BURSTS)]
    bursts: Vec<f64>,
    /// Length of a call, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = call::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Number of calls for each loss and burst.
    #[arg(long, value_name = "N", default_value_t = call::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    common: Common,
}

impl LatencyArgs {
    fn choice(&self) -> Result<Choice, Box<dyn Error>> {
        let (profile, seed) = (with_rate(&self.profile)?, self.common.seed);
        Ok(Choice { profile, length: Duration::from_secs(self.seconds), runs: self.runs, seed })
    }
}

/// Arguments of `lab run browser-quic` and `lab run pages-browser`.
#[derive(Args)]
pub struct BrowserArgs {
    /// The link: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::common::DEFAULT_PROFILE)]
    profile: String,
    /// Number of loads of each case.
    #[arg(long, value_name = "N", default_value_t = browser::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seed of all losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Arguments of `lab run pages-cold` and `lab run pages-warm`.
#[derive(Args)]
pub struct PagesArgs {
    /// The links: built-in profiles with a rate, or files that end in .toml; may be repeated.
    #[arg(long = "profile", value_name = "PROFILE", default_values_t = pages::DEFAULT_PROFILES.map(String::from))]
    profiles: Vec<String>,
    /// Number of loads of each page.
    #[arg(long, value_name = "N", default_value_t = pages::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seed of all losses; further runs use the following seeds.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Arguments of `lab run http-cache`.
#[derive(Args)]
pub struct HttpCacheArgs {
    /// Requests a second for cached objects.
    #[arg(long, value_name = "N", default_value_t = http_cache::DEFAULT_RATE, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// Length of the run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = http_cache::DEFAULT_SECONDS, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Memory of the cache in the cabin's hour; the cache has no disk there.
    #[arg(long, value_name = "SIZE", default_value_t = http_cache::DEFAULT_MEMORY)]
    memory: ByteSize,
    /// Seed of the passengers' requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// The HTTP cache.
pub fn http_cache(args: &HttpCacheArgs) -> Planned {
    let HttpCacheArgs { rate, seconds, memory, seed, .. } = *args;
    let choice = http_cache::Choice { seed, rate, seconds, memory };
    args.kept.simulated(move || http_cache::run(&choice))
}

/// Arguments of `lab run dns`.
#[derive(Args)]
pub struct DnsArgs {
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::common::DEFAULT_PROFILE)]
    profile: String,
    /// Number of passengers who query popular names.
    #[arg(long, value_name = "N", default_value_t = dns::DEFAULT_PASSENGERS, value_parser = clap::value_parser!(u8).range(1..=250))]
    passengers: u8,
    /// Length of the run, in seconds; the first five minutes are not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = dns::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(600..=86_400))]
    seconds: u64,
    /// Seed of losses and queries.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

type Outcome = Result<Planned, Box<dyn Error>>;

/// Pages for the first or second passenger, in virtual time.
pub fn pages(args: &PagesArgs, reader: Reader) -> Outcome {
    let profiles = args.profiles.iter().map(|name| with_rate(name)).collect::<Result<_, _>>()?;
    let choice = pages::Choice { profiles, runs: args.runs, seed: args.seed, reader };
    Ok(args.kept.simulated(move || pages::run(&choice)))
}

/// Name resolution, in virtual time.
pub fn names(args: &DnsArgs) -> Outcome {
    let choice = dns::Choice {
        profile: with_rate(&args.profile)?,
        passengers: args.passengers,
        length: Duration::from_secs(args.seconds),
        seed: args.seed,
    };
    Ok(args.kept.simulated(move || dns::run(&choice)))
}

/// Pages in Chromium.
pub fn browser(args: &BrowserArgs) -> Outcome {
    let (profile, runs, seed) = (Profile::find(&args.profile)?, args.runs, args.seed);
    let choice = browser::Choice { profile, runs, seed };
    Ok(args.kept.emulated(move |folder| browser_quic::run(&choice, folder)))
}

/// The page with three levels of references in Chromium.
pub fn pages_browser(args: &BrowserArgs) -> Outcome {
    let (profile, runs, seed) = (with_rate(&args.profile)?, args.runs, args.seed);
    let choice = browser::Choice { profile, runs, seed };
    let versions = [Version::Http1, Version::Http2];
    Ok(args.kept.emulated(move |folder| pages_browser::run(&choice, &versions, folder)))
}

impl Kept {
    /// An experiment in virtual time.
    fn simulated(&self, run: impl Fn() -> anyhow::Result<Report> + 'static) -> Planned {
        let run = move |_: &Engine<'_>| run();
        Planned::new(Function::new([Kind::Sim], run), Engines::Sim, self)
    }

    /// An experiment in the emulator, with a folder for keys and configurations.
    fn emulated(&self, run: impl Fn(&Path) -> anyhow::Result<Report> + 'static) -> Planned {
        let run = move |engine: &Engine<'_>| run(engine.emulator()?.folder);
        Planned::new(Function::new([Kind::Emu], run), Engines::Emu, self)
    }
}

impl Common {
    /// An experiment in the chosen engines.
    fn planned(&self, run: impl Fn(&Engine<'_>) -> anyhow::Result<Report> + 'static) -> Planned {
        Planned::new(Function::new([Kind::Sim, Kind::Emu], run), self.engine, &self.kept)
    }
}

/// Bulk traffic, probes and downloads.
pub fn latency(args: &LatencyArgs) -> Outcome {
    let choice = args.choice()?;
    Ok(args.common.planned(move |engine| latency::run(engine, &choice)))
}

/// Classes with rates and ceilings.
pub fn class_rates(args: &LatencyArgs) -> Outcome {
    let choice = args.choice()?;
    Ok(args.common.planned(move |engine| latency::class_rates(engine, &choice)))
}

/// A cabin of fifty passengers.
pub fn cabin(args: &CabinArgs) -> Outcome {
    let (profile, seed) = (with_rate(&args.profile)?, args.common.seed);
    let length = Duration::from_secs(args.seconds);
    let choice = Choice { profile, length, runs: args.runs, seed };
    Ok(args.common.planned(move |engine| cabin_mix::run(engine, &choice)))
}

/// Calls.
pub fn call(args: &CallArgs) -> Outcome {
    let choice = call::Choice {
        profile: with_rate(&args.profile)?,
        losses: args.losses.clone(),
        bursts: args.bursts.clone(),
        runs: args.runs,
        length: Duration::from_secs(args.seconds),
        seed: args.common.seed,
    };
    Ok(args.common.planned(move |engine| call::run(engine, &choice)))
}

/// Returns the profile if it has a rate. On a link without a rate nothing is ever queued, and the
/// simulator would send at 10 Gbit/s.
pub(super) fn with_rate(name: &str) -> Result<Profile, Box<dyn Error>> {
    let profile = Profile::find(name)?;
    let link = &profile.link;
    if link.forward.rate().is_none() || link.return_.rate().is_none() {
        return Err(
            format!("{} has no rate, and nothing to wait for: take mss", profile.name).into()
        );
    }
    Ok(profile)
}
