//! `bentpipe lab replay`: loads a site recorded by `lab record`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bentpipe_cli::out::{say, show};
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::engine::Kind;
use bentpipe_lab::experiment::progress::Sessions;
use bentpipe_lab::experiment::replay::emu::{By, check, run as run_emu};
use bentpipe_lab::experiment::replay::sim::{PROTOCOL, run as run_sim};
use bentpipe_lab::experiment::replay::{Choice, DEFAULT_RUNS, Found, Loaded, text};
use bentpipe_lab::loader::Protocol;
use bentpipe_lab::profile::Profile;
use bentpipe_lab::scratch::Scratch;
use bentpipe_lab::site::Site;
use bentpipe_lab::system::{self, BENTPIPE, SystemUnderTest};
use clap::Args;

use super::common::{LinkArgs, OneEngine, Outcome, check_writable, write};

/// Arguments of `lab replay`.
#[derive(Args)]
pub struct ReplayArgs {
    /// The archive: a folder written by `bentpipe lab record`.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    link: LinkArgs,
    /// Use real kernels, with any system and protocol; or virtual time, with Bentpipe and
    /// http/1.1-close only, which is exactly reproducible.
    #[arg(long, value_enum, default_value_t = OneEngine::Emu)]
    engine: OneEngine,
    /// System under test; may be repeated [default: those of the demo; in virtual time, bentpipe].
    #[arg(long = "system", value_name = "NAME", value_parser = system::named)]
    systems: Vec<&'static dyn SystemUnderTest>,
    /// Protocol of the load: http/1.1, http/1.1-close, http/1.1-tls, http/1.1-tls-resumed, http/2,
    /// http/2-proxied, http/3 or http/3-0rtt [default: http/2; in virtual time, http/1.1-close].
    #[arg(long, value_name = "NAME")]
    protocol: Option<Protocol>,
    /// Load it in real Chromium, which parses it and runs its scripts, instead of the page-load
    /// client: over http/1.1, http/1.1-tls, http/2 or http/3.
    #[arg(long)]
    browser: bool,
    /// Loads with each system, each with empty caches on its own link; each link uses the seed
    /// after the previous one.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_RUNS, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Time limit for a load, in seconds; loads not finished by then count as unfinished.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    deadline: u64,
    /// Write the first load's waterfall to this file, as HAR 1.2; requires exactly one --system.
    #[arg(long, value_name = "FILE")]
    har: Option<PathBuf>,
}

/// Loads the archive with each system.
pub fn replay(args: &ReplayArgs) -> Outcome {
    let (systems, protocol) = (systems(args)?, protocol(args)?);
    let profile = Profile::find(&args.link.profile)?;
    let site = Site::read(&args.folder).map_err(|error| {
        format!("{error}\nan archive is a folder that `bentpipe lab record DIR` has written")
    })?;
    if args.har.is_some() && systems.len() > 1 {
        return Err("--har keeps one load: name one --system".into());
    }
    let folder = args.folder.display();
    check(&site, protocol, args.browser).map_err(|why| format!("{folder}: {why}"))?;
    check_writable(args.link.json.as_deref())?;
    check_writable(args.har.as_deref())?;
    let deadline = Duration::from_secs(args.deadline);
    let choice = Choice { site: &site, profile: &profile, protocol, deadline };
    let found = match args.engine {
        OneEngine::Sim => simulated(args, &choice)?,
        OneEngine::Emu => emulated(args, &choice, &systems)?,
    };
    say!("{}", profile.about);
    let (resources, domains) = (site.resources.len(), site.domains.len());
    say!("{}: {resources} objects of {domains} domains, {} bytes", site.name, site.bytes());
    show!("{}", text(&choice, &found));
    for found in &found {
        let failed: Vec<_> = found.loads.iter().filter_map(|load| load.failed.as_ref()).collect();
        if let Some(first) = failed.first() {
            say!("{}: {} loads failed; the first: {first}", found.system, failed.len());
        }
    }
    if let (Some(path), Some(first)) = (&args.har, found[0].loads.first()) {
        fs::write(path, format!("{:#}\n", first.har))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let engine = Kind::from(args.engine).name();
    let rows = found.iter().flat_map(|found| found.rows(&choice, engine, args.link.seed));
    write(args.link.json.as_deref(), &rows.collect::<Vec<_>>())
}

fn systems(args: &ReplayArgs) -> Result<Vec<&'static dyn SystemUnderTest>, Box<dyn Error>> {
    let named = args.systems.clone();
    match args.engine {
        OneEngine::Emu if named.is_empty() => Ok(system::demo()),
        OneEngine::Emu => Ok(named),
        OneEngine::Sim => match named.iter().find(|one| one.name() != BENTPIPE.name()) {
            Some(other) => Err(format!(
                "{other} is not there in virtual time: leave it out, or take --engine emu"
            )
            .into()),
            None => Ok(vec![&BENTPIPE]),
        },
    }
}

fn protocol(args: &ReplayArgs) -> Result<Protocol, Box<dyn Error>> {
    match (args.engine, args.protocol) {
        (OneEngine::Emu, protocol) => Ok(protocol.unwrap_or(Protocol::Http2)),
        (OneEngine::Sim, _) if args.browser => {
            Err("a browser needs real time: take --engine emu".into())
        }
        (OneEngine::Sim, None | Some(PROTOCOL)) => Ok(PROTOCOL),
        (OneEngine::Sim, Some(other)) => {
            Err(format!("in virtual time there is {PROTOCOL}, but no {other}: take --engine emu")
                .into())
        }
    }
}

/// Seeds of one system's runs.
fn seeds(args: &ReplayArgs) -> impl Iterator<Item = u64> {
    let first = args.link.seed;
    (0..u64::from(args.runs)).map(move |run| first.wrapping_add(run))
}

fn simulated(args: &ReplayArgs, choice: &Choice<'_>) -> Result<Vec<Found>, Box<dyn Error>> {
    let loads: Result<Vec<Loaded>, _> = seeds(args).map(|seed| run_sim(choice, seed)).collect();
    Ok(vec![Found { system: &BENTPIPE, loads: loads? }])
}

fn emulated(
    args: &ReplayArgs,
    choice: &Choice<'_>,
    systems: &[&'static dyn SystemUnderTest],
) -> Result<Vec<Found>, Box<dyn Error>> {
    emu::enter()?;
    let (scratch, live) = (Scratch::new()?, Sessions::new());
    let (program, all) = (sibling::find(GATEWAYS)?, systems.len() * usize::from(args.runs));
    let (mut found, mut over) = (Vec::new(), 0);
    for &system in systems {
        let mut loads = Vec::new();
        for seed in seeds(args) {
            live.tell(over, all);
            let folder = scratch.path().join(over.to_string());
            fs::create_dir(&folder)?;
            let (browser, program) = (args.browser, program.as_path());
            let by = By { system, browser, program, folder: &folder };
            loads.push(run_emu(choice, &by, seed)?);
            over += 1;
        }
        found.push(Found { system, loads });
    }
    Ok(found)
}
