//! `bentpipe lab run latency-under-load | class-rates | cabin-mix | rural-paws-policy | call`: what each
//! traffic does to the others on the link; `dns | pages-cold | pages-warm`: what the cabin's services do
//! for it.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bentpipe_lab::emu;
use bentpipe_lab::experiment::choice::Choice;
use bentpipe_lab::experiment::pages::{self, Reader};
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::experiment::{
    browser, browser_quic, cabin_mix, call, compare, dns, http_cache, latency, pages_browser,
    rural_paws,
};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::Row;
use bentpipe_lab::scratch::Scratch;
use bentpipe_lab::traffic::{Emulator, Engine};
use bentpipe_lab::workload::secure::Version;
use bentpipe_units::{ByteSize, Ratio};
use clap::Args;

use super::grid::{Engine as Engines, per_cent};
use super::{Outcome, check_writable, missed_words, write};
use crate::out::{say, show};

/// Destination of the figures.
#[derive(Args)]
pub(super) struct Kept {
    /// Write the figures there, as an array of rows.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

/// Arguments shared by all experiments that run in either engine.
#[derive(Args)]
pub struct Common {
    /// Virtual time, or the emulator's real gateways and kernels in real time, or one after the other.
    #[arg(long, value_enum, default_value_t = Engines::Sim)]
    engine: Engines,
    /// Seed of all losses; further runs have the seeds after it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Arguments of `lab run latency-under-load` and `lab run class-rates`.
#[derive(Args)]
pub struct LatencyArgs {
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::DEFAULT_PROFILE)]
    profile: String,
    /// Measured of each run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = latency::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Runs of each part.
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
    /// Measured of each run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = cabin_mix::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Runs.
    #[arg(long, value_name = "N", default_value_t = cabin_mix::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `lab run rural-paws-policy`.
#[derive(Args)]
pub struct PolicyArgs {
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = rural_paws::DEFAULT_PROFILE)]
    profile: String,
    /// Pages loaded in each run, alone and beside the others.
    #[arg(long, value_name = "N", default_value_t = rural_paws::DEFAULT_PAGES, value_parser = clap::value_parser!(u16).range(1..))]
    pages: u16,
    /// Runs.
    #[arg(long, value_name = "N", default_value_t = rural_paws::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `lab run call`.
#[derive(Args)]
pub struct CallArgs {
    /// The link: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::DEFAULT_PROFILE)]
    profile: String,
    /// Lost in each direction, in per cent; may be repeated [default: what the link loses].
    #[arg(long = "loss", value_name = "PERCENT", value_parser = per_cent)]
    losses: Vec<Ratio>,
    /// Mean length of a burst of losses in packet times, 1 for independent losses; may be
    /// repeated.
    #[arg(long = "burst", value_name = "PACKETS", default_values_t = call::DEFAULT_BURSTS)]
    bursts: Vec<f64>,
    /// Length of a call, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = call::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Calls for each loss and burst.
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
    #[arg(long, value_name = "PROFILE", default_value = super::DEFAULT_PROFILE)]
    profile: String,
    /// Loads of each case.
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
    /// Loads of each page.
    #[arg(long, value_name = "N", default_value_t = pages::DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seed of all losses; further runs have the seeds after it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Arguments of `lab run http-cache`.
#[derive(Args)]
pub struct HttpCacheArgs {
    /// Requests a second for what is in the cache.
    #[arg(long, value_name = "N", default_value_t = http_cache::DEFAULT_RATE, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// Length of the run, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = http_cache::DEFAULT_SECONDS, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The cache's memory in the hour of the cabin; it has no disk there.
    #[arg(long, value_name = "SIZE", default_value_t = http_cache::DEFAULT_MEMORY)]
    memory: ByteSize,
    /// Seed of the passengers' requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Asks the HTTP cache.
pub fn http_cache(args: &HttpCacheArgs) -> Outcome {
    check_writable(args.kept.json.as_deref())?;
    let HttpCacheArgs { rate, seconds, memory, seed, .. } = *args;
    let report = http_cache::run(&http_cache::Choice { seed, rate, seconds, memory })?;
    say!("{}\n{}", report.text, report.goals_text());
    args.kept.keep(&report.rows, report.missed())
}

/// Arguments of `lab run dns`.
#[derive(Args)]
pub struct DnsArgs {
    /// The link: a built-in profile with a rate, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = super::DEFAULT_PROFILE)]
    profile: String,
    /// Number of passengers who ask for popular names.
    #[arg(long, value_name = "N", default_value_t = dns::DEFAULT_PASSENGERS, value_parser = clap::value_parser!(u8).range(1..=250))]
    passengers: u8,
    /// For how long, in seconds; what comes after five minutes is measured.
    #[arg(long, value_name = "SECONDS", default_value_t = dns::DEFAULT_LENGTH.as_secs(), value_parser = clap::value_parser!(u64).range(600..=86_400))]
    seconds: u64,
    /// Seed of losses and questions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    kept: Kept,
}

/// Loads pages for one of two passengers, in virtual time.
pub fn pages(args: &PagesArgs, reader: Reader) -> Outcome {
    check_writable(args.kept.json.as_deref())?;
    let profiles = args.profiles.iter().map(|name| with_rate(name)).collect::<Result<_, _>>()?;
    let choice = pages::Choice { profiles, runs: args.runs, seed: args.seed, reader };
    let report = pages::run(&choice)?;
    println!("{}\n{}", report.text, report.goals_text());
    args.kept.keep(&report.rows, report.missed())
}

/// Asks for names, in virtual time.
pub fn names(args: &DnsArgs) -> Outcome {
    check_writable(args.kept.json.as_deref())?;
    let choice = dns::Choice {
        profile: with_rate(&args.profile)?,
        passengers: args.passengers,
        length: Duration::from_secs(args.seconds),
        seed: args.seed,
    };
    let report = dns::run(&choice)?;
    println!("{}\n{}", report.text, report.goals_text());
    args.kept.keep(&report.rows, report.missed())
}

/// Loads pages in Chromium.
pub fn browser(args: &BrowserArgs) -> Outcome {
    let (profile, runs, seed) = (Profile::find(&args.profile)?, args.runs, args.seed);
    check_writable(args.kept.json.as_deref())?;
    emu::enter()?;
    let scratch = Scratch::new()?;
    let choice = browser::Choice { profile, runs, seed };
    let report = browser_quic::run(&choice, scratch.path())?;
    say!("{}\n{}", report.text, report.goals_text());
    args.kept.keep(&report.rows, report.missed())
}

/// Loads the page of three levels in Chromium.
pub fn pages_browser(args: &BrowserArgs) -> Outcome {
    let (profile, runs, seed) = (with_rate(&args.profile)?, args.runs, args.seed);
    check_writable(args.kept.json.as_deref())?;
    emu::enter()?;
    let scratch = Scratch::new()?;
    let choice = browser::Choice { profile, runs, seed };
    let versions = [Version::Http1, Version::Http2];
    let report = pages_browser::run(&choice, &versions, scratch.path())?;
    say!("{}\n{}", report.text, report.goals_text());
    args.kept.keep(&report.rows, report.missed())
}

impl Kept {
    /// Writes the rows; an error where targets that must hold are missed.
    pub(super) fn keep(&self, rows: &[Row], missed: usize) -> Outcome {
        write(self.json.as_deref(), rows)?;
        if self.check && missed > 0 {
            return Err(missed_words(missed).into());
        }
        Ok(())
    }
}

/// Runs bulk, probes and downloads.
pub fn latency(args: &LatencyArgs) -> Outcome {
    let choice = args.choice()?;
    args.common.tell(|engine| Ok(latency::run(engine, &choice)?))
}

/// Runs what has rates and ceilings.
pub fn class_rates(args: &LatencyArgs) -> Outcome {
    let choice = args.choice()?;
    args.common.tell(|engine| Ok(latency::class_rates(engine, &choice)?))
}

/// Runs a cabin of fifty.
pub fn cabin(args: &CabinArgs) -> Outcome {
    let (profile, seed) = (with_rate(&args.profile)?, args.common.seed);
    let length = Duration::from_secs(args.seconds);
    let choice = Choice { profile, length, runs: args.runs, seed };
    args.common.tell(|engine| Ok(cabin_mix::run(engine, &choice)?))
}

/// Runs a village.
pub fn policy(args: &PolicyArgs) -> Outcome {
    let choice = rural_paws::Choice {
        profile: with_rate(&args.profile)?,
        pages: args.pages,
        runs: args.runs,
        seed: args.common.seed,
    };
    args.common.tell(|engine| Ok(rural_paws::run(engine, &choice)?))
}

/// Runs calls.
pub fn call(args: &CallArgs) -> Outcome {
    let choice = call::Choice {
        profile: with_rate(&args.profile)?,
        losses: args.losses.clone(),
        bursts: args.bursts.clone(),
        runs: args.runs,
        length: Duration::from_secs(args.seconds),
        seed: args.common.seed,
    };
    args.common.tell(|engine| Ok(call::run(engine, &choice)?))
}

/// On a link without a rate nothing ever waits, and the simulator would send at 10 Gbit/s.
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

impl Common {
    /// Prints what `run` finds with each engine chosen, and writes its rows.
    fn tell(&self, run: impl Fn(&Engine<'_>) -> Result<Report, Box<dyn Error>>) -> Outcome {
        check_writable(self.kept.json.as_deref())?;
        let (mut found, mut missed) = (Vec::new(), 0);
        let mut one = |engine: &Engine<'_>| -> Outcome {
            let began = Instant::now();
            let report = run(engine)?;
            let (goals, took) = (report.goals_text(), began.elapsed().as_secs_f64());
            say!("{}\n{goals}The {} engine took {took:.0} s.", report.text, engine.name());
            missed += report.missed();
            found.push(report.rows);
            Ok(())
        };
        if self.engine != Engines::Sim {
            emu::enter()?;
        }
        if self.engine != Engines::Emu {
            one(&Engine::Sim)?;
        }
        if self.engine != Engines::Sim {
            let scratch = Scratch::new()?;
            one(&Engine::Emu(Emulator { folder: scratch.path() }))?;
        }
        if let [simulated, emulated] = &found[..] {
            show!("\n{}", compare::engines(simulated, emulated));
        }
        self.kept.keep(&found.concat(), missed)
    }
}
