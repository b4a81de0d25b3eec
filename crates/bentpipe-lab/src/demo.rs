//! `bentpipe demo`: the gateways on an emulated in-flight link, compared with baselines without
//! them.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bentpipe_cli::out::{say, show};
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::browser;
use bentpipe_lab::emu;
use bentpipe_lab::experiment::browse::Browse;
use bentpipe_lab::experiment::table;
use bentpipe_lab::experiment::transfers::{Cell, Plan};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::{Percentile, Row};
use bentpipe_lab::scratch::Scratch;
use bentpipe_lab::system::{self, BENTPIPE, E2E_CUBIC, SystemUnderTest};
use bentpipe_lab::workload::Workload;
use clap::Args;

use crate::lab::{check_writable, write};

type Outcome = Result<(), Box<dyn Error>>;

/// Profile of the link: an average flight.
const PROFILE: &str = "mss";

/// Time limit for all runs in one testbed. With setup and measurement, the slowest testbed finishes
/// in about three minutes.
const DEADLINE: Duration = Duration::from_secs(150);

/// Measured part of a long download.
const BULK_LENGTH: Duration = Duration::from_secs(90);

/// Number of objects of the page that Chromium loads.
const PAGE_OBJECTS: usize = 25;

/// Arguments of the demo.
#[derive(Args)]
pub struct Demo {
    /// End after the table instead of keeping a proxy open to browse through.
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of the link's losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// System under test; may be repeated [default: e2e-cubic, e2e-bbr, split-bbr, bentpipe].
    #[arg(long = "system", value_name = "NAME", value_parser = system::named)]
    systems: Vec<&'static dyn SystemUnderTest>,
}

/// Runs the demo.
pub fn run(demo: &Demo) -> Outcome {
    let began = Instant::now();
    check_writable(demo.json.as_deref())?;
    emu::enter()?;
    let scratch = Scratch::new()?;
    let profile = Profile::named(PROFILE)?;
    let program = sibling::find(GATEWAYS)?;
    let systems = if demo.systems.is_empty() { system::demo() } else { demo.systems.clone() };
    let workloads = Workload::demo();
    let plan = Plan {
        experiment: "demo",
        profile: &profile,
        systems: &systems,
        workloads: &workloads,
        runs: None,
        seed: demo.seed,
        deadline: DEADLINE,
        bulk_length: BULK_LENGTH,
        program: &program,
        folder: scratch.path(),
    };
    say!(
        "The link: {}.\n\
         Client, gateways and server: {} small networks of this machine's real kernel.\n\
         The table takes about three minutes; Ctrl-C stops everything.\n",
        profile.about,
        plan.testbed_count()
    );
    let cells = plan.show()?;
    show!("{}", table::transfers(&profile, &cells));
    say!(
        "\nlimit  RTT + 8·bytes/((1−p)·rate), which nothing can beat; for bulk (1−p)·rate\n\
         ratio  to the limit\n\
         wire   bytes sent into the link for each byte delivered\n\
         runs   finished/begun where some were not finished in {} s; > is then a bound",
        DEADLINE.as_secs()
    );
    show!("{}", table::notes(&cells));
    if let Some(line) = comparison(&cells) {
        say!("\n{line}");
    }
    say!("The table took {} s.", began.elapsed().as_secs());
    let mut rows = plan.rows(&cells);
    write(demo.json.as_deref(), &rows)?;

    rows.extend(in_chromium(&plan)?);
    write(demo.json.as_deref(), &rows)?;
    if demo.quick {
        return Ok(());
    }
    browse(&profile, demo.seed, &program, &scratch)
}

/// Compares the times of a large file.
fn comparison(cells: &[Cell]) -> Option<String> {
    let median = |system: &dyn SystemUnderTest| {
        let is_it =
            |cell: &&Cell| cell.system == system && cell.workload.to_string() == "file-1600k";
        cells.iter().find(is_it)?.found.samples.percentile(0.5)
    };
    let ours = median(&BENTPIPE)?.known()?;
    let (least, theirs) = match median(&E2E_CUBIC)? {
        Percentile::Known(theirs) => ("", theirs),
        Percentile::Above(theirs) => ("more than ", theirs),
    };
    let times = theirs / ours;
    Some(format!(
        "The 1.6 MB file is there {least}{times:.1} times sooner than end to end with cubic."
    ))
}

/// Loads a page in a real browser, with and without the gateways.
fn in_chromium(plan: &Plan<'_>) -> Result<Vec<Row>, Box<dyn Error>> {
    let Some(program) = browser::find() else {
        say!("\nChromium is not installed here, so no page was loaded in a real browser.");
        return Ok(Vec::new());
    };
    say!("\nThe page in real Chromium ({}):", program.display());
    let of_interest: [&'static dyn SystemUnderTest; 2] = [&E2E_CUBIC, &BENTPIPE];
    let systems: Vec<_> =
        of_interest.into_iter().filter(|one| plan.systems.contains(one)).collect();
    let workloads = [Workload::Chromium { objects: PAGE_OBJECTS }];
    let folder = plan.folder.join("chromium");
    std::fs::create_dir(&folder)?;
    let plan = Plan { systems: &systems, workloads: &workloads, folder: &folder, ..plan.clone() };
    let cells = match plan.show() {
        Ok(cells) => cells,
        Err(error) => {
            say!("  it could not be loaded: {error}");
            return Ok(Vec::new());
        }
    };
    for cell in &cells {
        let samples = &cell.found.samples;
        let median = samples.median();
        let took = median.map_or_else(
            || cell.found.failures.first().cloned().unwrap_or("did not finish".into()),
            |median| format!("{} (median of {})", table::seconds(median), samples.len()),
        );
        say!("  {:<10} {took}", cell.system.name());
    }
    Ok(plan.rows(&cells))
}

/// Keeps a proxy open until the user stops it.
fn browse(profile: &Profile, seed: u64, program: &std::path::Path, scratch: &Scratch) -> Outcome {
    let mut browse = Browse::start(profile, seed, program, &scratch.path().join("browse"))?;
    scratch.expect_a_stop();
    let Browse { socks5, http_proxy, page, .. } = &browse;
    say!(
        "\nNow browse from the aircraft: this machine → air gateway → the emulated link →\n\
         ground gateway → this machine's network.\n\n\
         \x20 SOCKS5      {socks5}\n\
         \x20 HTTP proxy  {http_proxy}\n\n\
         \x20 curl --socks5-hostname {socks5} {page}\n\
         \x20 curl --proxy http://{http_proxy} -I https://example.com/\n\
         \x20 chromium --user-data-dir=/tmp/aircraft --proxy-server=socks5://{socks5} {page}\n\n\
         Ctrl-C ends it."
    );
    Ok(browse.serve()?)
}
