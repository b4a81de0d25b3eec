//! `bentpipe lab`: experiments on emulated and simulated links.

mod attacks;
mod benches;
mod common;
mod grid;
mod hub_change;
mod learned;
mod mesh;
mod mixes;
mod papers;
mod record;
mod replay;
mod two_radios;

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_cli::log;
use bentpipe_cli::out::{say, show};
use bentpipe_lab::emu;
use bentpipe_lab::experiment::engine::{Engine, Kind};
use bentpipe_lab::experiment::pages::Reader;
use bentpipe_lab::experiment::runner::Function;
use bentpipe_lab::experiment::transfers::Plan;
use bentpipe_lab::experiment::{measure, table};
use bentpipe_lab::modem::{self, SimulatedModem};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::Row;
use bentpipe_lab::system::{self, BENTPIPE, SystemUnderTest};
use bentpipe_lab::workload::Workload;
use bentpipe_lab::{bench, sim};
use bentpipe_units::{BitRate, Ratio};
use clap::{Args, Subcommand};
use common::{Engines, Kept, LinkArgs, Outcome, Planned};
pub use common::{check_writable, write};

/// Measured part of a long download, in seconds.
const BULK_SECONDS: u64 = 60;

/// Commands of the lab.
#[derive(Subcommand)]
pub enum Lab {
    /// Run an experiment and print its table.
    #[command(subcommand)]
    Run(Run),
    /// Emulate a link and compare it with its specification.
    Measure(LinkArgs),
    /// Download over the radio transport in virtual time.
    Sim(SimArgs),
    /// Simulate a DLEP modem, until Ctrl-C.
    Modem(ModemArgs),
    /// Repeat the published studies in `experiments/`, and compare Bentpipe with each.
    Papers(papers::PapersArgs),
    /// Run a proxy that records a site loaded by a browser, until Ctrl-C.
    Record(record::RecordArgs),
    /// Load a recorded site over a link: with any system and protocol, in real Chromium, or in
    /// virtual time.
    Replay(replay::ReplayArgs),
    /// Measure the capacity of this machine.
    #[command(subcommand)]
    Bench(benches::Bench),
    /// Accept connections and keep them open: the server for `bench idle`.
    #[command(hide = true)]
    Hold {
        /// Address to listen on.
        listen: SocketAddr,
    },
}

/// Experiments.
#[derive(Subcommand)]
pub enum Run {
    /// Fetch objects, pages and bulk data with each system over an emulated link.
    Transfers(TransfersArgs),
    /// Run the radio transport over every loss × burst × link, in virtual time or in the emulator.
    Grid(grid::GridArgs),
    /// Measure what a session finds and leaves to others if nobody typed its rate, in virtual time.
    Learned(learned::LearnedArgs),
    /// Two radios at once: objects, downloads and deaths of a path, against the limit of both, in
    /// virtual time or between real kernels.
    TwoRadios(two_radios::TwoRadiosArgs),
    /// Flows whose hub or egress changes, restarts or dies: resets, gaps and the time to recover.
    HubChange(hub_change::HubChangeArgs),
    /// Hubs far from the content, and egresses near it: their leg, the choice of the egress, and
    /// the rate of one connection.
    Mesh(mesh::MeshArgs),
    /// Measure bulk traffic in each class and direction with probes, and the effect of downloads
    /// and heavy users on others.
    LatencyUnderLoad(mixes::LatencyArgs),
    /// Measure rates and ceilings of classes in both directions, and the rate that lower effort
    /// takes and leaves.
    ClassRates(mixes::LatencyArgs),
    /// Run fifty passengers with pages, films, messages, calls, downloads and a heavy user.
    CabinMix(mixes::CabinArgs),
    /// Load a page in real Chromium: by its own QUIC if the gateways carry it, by TCP if they
    /// refuse it.
    BrowserQuic(mixes::BrowserArgs),
    /// Load a page of 60 objects over HTTPS in real Chromium: from the operator's own site, with
    /// and without the cabin services, and from another site.
    PagesBrowser(mixes::BrowserArgs),
    /// Measure UDP calls: the remaining loss, and its cost in overhead.
    Call(mixes::CallArgs),
    /// Load pages for a first passenger: with Split HTTP, and object by object.
    PagesCold(mixes::PagesArgs),
    /// Load the same pages for a second passenger.
    PagesWarm(mixes::PagesArgs),
    /// Measure the on-board HTTP cache: the share of an hour of a cabin's requests that it answers,
    /// and how fast.
    HttpCache(mixes::HttpCacheArgs),
    /// Measure the on-board resolver: popular names, cold names, and pages of either.
    Dns(mixes::DnsArgs),
    /// Measure overload: a passenger browses while another device, or a stranger, attacks the
    /// gateways.
    Attacks(attacks::AttacksArgs),
}

/// Arguments of `lab run transfers`.
#[derive(Args)]
pub struct TransfersArgs {
    #[command(flatten)]
    link: LinkArgs,
    /// System under test; may be repeated [default: those of the demo].
    #[arg(long = "system", value_name = "NAME", value_parser = system::named)]
    systems: Vec<&'static dyn SystemUnderTest>,
    /// Workload: object-SIZE, file-SIZE, page-N, chromium-N, bulk; may be repeated [default: those
    /// of the demo].
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<Workload>,
    /// Number of runs of each configuration [default: as many as give a steady figure].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Time limit for all runs in one testbed, in seconds; runs not finished by then count as
    /// unfinished.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    deadline: u64,
}

/// Arguments of `lab sim`.
#[derive(Args)]
pub struct SimArgs {
    #[command(flatten)]
    link: LinkArgs,
    /// Virtual time, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// Arguments of `lab modem`.
#[derive(Args)]
pub struct ModemArgs {
    /// Listening address for sessions.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:854")]
    listen: SocketAddr,
    /// Interface on which to answer discovery, on port 854.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    #[command(flatten)]
    rate: ModemRate,
}

/// Rates that the modem reports.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct ModemRate {
    /// Report this rate in both directions, permanently.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Report the varying rates of this link: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

/// Runs the command.
pub fn run(lab: &Lab) -> Outcome {
    match lab {
        Lab::Run(run) => {
            log::if_requested();
            run.planned()?.run()
        }
        Lab::Measure(args) => measure(args),
        Lab::Sim(args) => simulate(args),
        Lab::Modem(args) => modem(args),
        Lab::Papers(args) => papers::run(args),
        Lab::Record(args) => record::record(args),
        Lab::Replay(args) => replay::replay(args),
        Lab::Bench(bench) => benches::run(bench),
        Lab::Hold { listen } => Ok(bench::idle::hold(*listen)?),
    }
}

impl Run {
    /// The experiment that the arguments select.
    fn planned(&self) -> Result<Planned, Box<dyn Error>> {
        match self {
            Self::Transfers(args) => transfers(args),
            Self::Grid(args) => grid::planned(args),
            Self::Learned(args) => learned::planned(args),
            Self::TwoRadios(args) => two_radios::planned(args),
            Self::HubChange(args) => hub_change::planned(args),
            Self::Mesh(args) => mesh::planned(args),
            Self::LatencyUnderLoad(args) => mixes::latency(args),
            Self::ClassRates(args) => mixes::class_rates(args),
            Self::CabinMix(args) => mixes::cabin(args),
            Self::BrowserQuic(args) => mixes::browser(args),
            Self::PagesBrowser(args) => mixes::pages_browser(args),
            Self::Call(args) => mixes::call(args),
            Self::PagesCold(args) => mixes::pages(args, Reader::First),
            Self::PagesWarm(args) => mixes::pages(args, Reader::Second),
            Self::HttpCache(args) => Ok(mixes::http_cache(args)),
            Self::Dns(args) => mixes::names(args),
            Self::Attacks(args) => attacks::planned(args),
        }
    }
}

/// Experiment of `lab run transfers`.
fn transfers(args: &TransfersArgs) -> Result<Planned, Box<dyn Error>> {
    let profile = Profile::find(&args.link.profile)?;
    let systems = if args.systems.is_empty() { system::demo() } else { args.systems.clone() };
    let workloads =
        if args.workloads.is_empty() { Workload::demo() } else { args.workloads.clone() };
    let (runs, seed) = (args.runs.map(usize::from), args.link.seed);
    let deadline = Duration::from_secs(args.deadline);
    let run = move |engine: &Engine<'_>| {
        let emulator = engine.emulator()?;
        table::report(&Plan {
            experiment: "transfers",
            profile: &profile,
            systems: &systems,
            workloads: &workloads,
            runs,
            seed,
            deadline,
            bulk_length: Duration::from_secs(BULK_SECONDS),
            program: &(emulator.program)()?,
            folder: emulator.folder,
        })
    };
    let kept = Kept { json: args.link.json.clone(), check: false };
    Ok(Planned::new(Function::new([Kind::Emu], run), Engines::Emu, &kept))
}

fn measure(args: &LinkArgs) -> Outcome {
    let profile = Profile::find(&args.profile)?;
    check_writable(args.json.as_deref())?;
    emu::enter()?;
    let lines = measure::run(&profile, args.seed)?;
    say!("{}", profile.about);
    show!("{}", table::measured(&lines));
    write(args.json.as_deref(), &measure::rows(&profile, args.seed, &lines))
}

fn simulate(args: &SimArgs) -> Outcome {
    let LinkArgs { profile, seed, json } = &args.link;
    let profile = Profile::find(profile)?;
    check_writable(json.as_deref())?;
    if profile.link.forward.rate().is_none() && args.seconds > 1 {
        let name = &profile.name;
        let why = "has no rate: in virtual time it carries what the ends are paced at, 10 Gbit/s, packet by packet";
        return Err(
            format!("{name} {why}; give --seconds 1, or see `bentpipe lab bench relay`").into()
        );
    }
    let transfer = sim::transfer::run(&profile, Duration::from_secs(args.seconds), *seed)?;
    let virtual_s = args.seconds as f64;
    let real_s = transfer.real.as_secs_f64();
    let share = transfer.capacity_bps.map(|capacity| transfer.goodput_bps / capacity);
    let rows = [
        ("delivered", format!("{} bytes", transfer.bytes)),
        ("goodput", table::megabits(transfer.goodput_bps)),
        ("of (1−p)·rate", share.map_or("–".into(), |share| format!("{:.1} %", share * 100.0))),
        ("sent ÷ delivered", format!("{:.3}", transfer.wire_per_byte)),
        ("sent back ÷ sent", format!("{:.4}", transfer.back_per_forward)),
        ("virtual time", table::seconds(virtual_s)),
        ("real time", table::seconds(real_s)),
        ("speed-up", format!("{:.0}×", virtual_s / real_s)),
        ("digest", transfer.digest.to_string()),
    ];
    say!("{}", profile.about);
    show!("{}", table::pairs(&rows.map(|(name, value)| (name.to_owned(), value))));
    let row = |metric: &str, unit: &str, value: f64, limit| Row {
        experiment: "sim".into(),
        engine: "sim".into(),
        system: Some(BENTPIPE.name().into()),
        profile: Some(profile.name.clone()),
        workload: Some(Workload::Bulk.to_string()),
        metric: metric.into(),
        unit: unit.into(),
        n: 1,
        p50: Some(value),
        p95: Some(value),
        mean: Some(value),
        limit,
        seed: Some(*seed),
        ..Row::default()
    };
    let mut rows = vec![row("goodput", "bit/s", transfer.goodput_bps, transfer.capacity_bps)];
    rows.extend(share.map(|share| row("utilization", "ratio", share, Some(1.0))));
    let least = 1.0 / (1.0 - profile.forward_loss());
    rows.push(row("overhead", "ratio", transfer.wire_per_byte, Some(least)));
    // The duration is left out: it measures this machine, and would make every run's file differ.
    write(json.as_deref(), &rows)
}

fn modem(args: &ModemArgs) -> Outcome {
    let link = match (&args.rate.profile, args.rate.rate) {
        (Some(profile), _) => Profile::find(profile)?.link,
        (None, rate) => {
            let rate =
                rate.filter(|rate| rate.bps() > 0).ok_or("a modem needs a rate above zero")?;
            let direction = DirectionSpec::fixed(Some(rate), Duration::ZERO, Ratio::ZERO);
            LinkSpec { forward: direction.clone(), return_: direction }
        }
    };
    log::all();
    let settings = modem::Settings {
        listen: args.listen,
        discovery: args.interface.clone().map(|name| (name, bentpipe_dlep::DEFAULT_PORT)),
        heartbeat: bentpipe_dlep::DEFAULT_HEARTBEAT,
        rates: modem::rates_at(&link, Duration::ZERO),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let failed = |error| format!("cannot be a modem at {}: {error}", args.listen);
        let modem = SimulatedModem::start(&settings).map_err(failed)?;
        say!("a modem at {}; Ctrl-C switches it off", modem.address());
        tokio::select! {
            () = modem.follow(&link) => {}
            stopped = tokio::signal::ctrl_c() => stopped?,
        }
        modem.close().await;
        Ok(())
    })
}
