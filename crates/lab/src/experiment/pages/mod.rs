//! The pages of Rural-PAWS (Mohideen et al., 2018, section VIII) with and without Split HTTP, for a
//! first passenger and for a second one.
//!
//! A page is loaded as in browsers over HTTP/1.1: the document, then its objects on six
//! connections.

mod site;
mod testbed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::choice::seeds;
use super::report::{Goal, Report, row};
use super::table::{align, seconds, table};
use crate::experiment::engine::Engine;
use crate::experiment::virtual_link::virtually;
use crate::profile::Profile;
use crate::result::{Row, Samples};
use crate::sim::parallel;
use crate::system::{BENTPIPE, SystemUnderTest};
use crate::traffic::emu::FurtherRates;
pub use site::Page;
use testbed::Testbed;

/// Default number of loads of each page.
pub const DEFAULT_RUNS: u16 = 5;
/// Default links.
pub const DEFAULT_PROFILES: [&str; 2] = ["geo-rural-8", "mss"];
/// Connections of a browser to one host.
const CONNECTIONS: usize = 6;
/// `Accept` header of a browser for a page.
const OF_PAGES: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
/// `Accept` header of a browser for a picture.
const OF_IMAGES: &str = "image/*,*/*;q=0.8";

/// Maximum load time, as a multiple of two round trips plus the page's bytes at the rate that
/// remains after losses.
const MAX_COLD: f64 = 1.30;
const MAX_WARM_S: f64 = 1.0;

/// Passenger whose load is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Nothing of the page is cached on board.
    First,
    /// The first passenger has just loaded the page.
    Second,
}

/// Selection of runs.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Profiles of the links, which must have rates.
    pub profiles: Vec<Profile>,
    /// Loads of each page.
    pub runs: u16,
    /// Seed of the first load. The others' follow.
    pub seed: u64,
    /// Passenger.
    pub reader: Reader,
}

/// One page over one link, with Split HTTP and with a separate flow for each object.
struct Cell {
    profile: Profile,
    page: Page,
    split: Samples,
    tunnel: Samples,
}

/// Loads the pages in virtual time.
pub fn run(choice: &Choice) -> anyhow::Result<Report> {
    let jobs: Vec<(Profile, Page)> = (choice.profiles.iter())
        .flat_map(|profile| Page::all().map(|page| (profile.clone(), page)))
        .collect();
    let cells = parallel::map(&jobs, |(profile, page)| cell(choice, profile, *page));
    let cells: Vec<Cell> = cells.into_iter().collect::<Result<_, _>>()?;
    let report = Report {
        text: text(choice, &cells),
        rows: cells.iter().flat_map(|cell| cell.rows(choice)).collect(),
        goals: cells.iter().map(|cell| cell.goal(choice)).collect(),
    };
    Ok(report.found_by(Engine::Sim.name()))
}

fn cell(choice: &Choice, profile: &Profile, page: Page) -> anyhow::Result<Cell> {
    let (mut split, mut tunnel) = (Samples::default(), Samples::default());
    for seed in seeds(choice.seed, choice.runs) {
        split.push(virtually(load_with(profile, page, seed, true, choice.reader))?);
        tunnel.push(virtually(load_with(profile, page, seed, false, choice.reader))?);
    }
    Ok(Cell { profile: profile.clone(), page, split, tunnel })
}

async fn load_with(
    profile: &Profile,
    page: Page,
    seed: u64,
    is_split: bool,
    reader: Reader,
) -> anyhow::Result<f64> {
    let (links, rates) = (std::slice::from_ref(profile), FurtherRates::Typed);
    let testbed = Arc::new(Testbed::start(links, rates, seed, is_split).await?);
    let first = load(&testbed, 1, page).await?;
    if reader == Reader::First {
        return Ok(first.as_secs_f64());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(load(&testbed, 2, page).await?.as_secs_f64())
}

/// Time in seconds of a load of `page` with Split HTTP in virtual time, over `links`, which one session
/// uses at once.
pub fn time_over(
    links: &[Profile],
    rates: FurtherRates,
    page: Page,
    seed: u64,
) -> anyhow::Result<f64> {
    virtually(async {
        let testbed = Arc::new(Testbed::start(links, rates, seed, true).await?);
        Ok(load(&testbed, 1, page).await?.as_secs_f64())
    })
}

/// Time from the request for the document to the last byte of all objects.
async fn load(testbed: &Arc<Testbed>, passenger: u32, page: Page) -> anyhow::Result<Duration> {
    let began = Instant::now();
    testbed.get(passenger, &page.path(), OF_PAGES).await?;
    let waiting = Arc::new(Mutex::new(VecDeque::from(page.paths())));
    let mut loading: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (testbed, waiting) = (testbed.clone(), waiting.clone());
        loading.spawn(async move {
            loop {
                let next = waiting.lock().pop_front();
                let Some(path) = next else { return Ok(()) };
                testbed.get(passenger, &path, OF_IMAGES).await?;
            }
        });
    }
    while let Some(done) = loading.join_next().await {
        done??;
    }
    Ok(began.elapsed())
}

impl Cell {
    /// Two round trips, plus the page's bytes at the rate that remains after losses.
    fn bound_s(&self) -> Option<f64> {
        let one = self.profile.forward_limit(self.page.bytes())?;
        Some((one + self.profile.rtt()).as_secs_f64())
    }

    fn goal(&self, choice: &Choice) -> Goal {
        let name = format!("{} over {}", self.page.name(), self.profile.name);
        let median = self.split.median();
        match choice.reader {
            Reader::First => {
                let ratio = median.zip(self.bound_s()).map(|(median, bound)| median / bound);
                Goal::ratio_at_most(format!("{name} ÷ bound"), ratio, MAX_COLD)
            }
            Reader::Second => Goal::time_at_most(name, median, MAX_WARM_S),
        }
    }

    fn rows(&self, choice: &Choice) -> [Row; 2] {
        let experiment = match choice.reader {
            Reader::First => "pages-cold",
            Reader::Second => "pages-warm",
        };
        let systems = [("bentpipe with split-http", &self.split), ("bentpipe", &self.tunnel)];
        systems.map(|(system, samples)| {
            let mut row = row(experiment, &self.profile, self.page.name(), "plt", choice.seed);
            row.system = Some(system.into());
            row.n = samples.len();
            let known = |q| samples.known(q);
            (row.p50, row.p95) = (known(0.5), known(0.95));
            row.limit = self.bound_s();
            row
        })
    }
}

fn text(choice: &Choice, cells: &[Cell]) -> String {
    let whose = match choice.reader {
        Reader::First => "a first passenger",
        Reader::Second => "a second passenger, a minute after the first",
    };
    let tunnel = BENTPIPE.name();
    let mut table = table(&["link", "page", "split-http", tunnel, "2 RTT + bytes ÷ rate"]);
    for cell in cells {
        let show = |value: Option<f64>| value.map_or("–".to_owned(), seconds);
        table.add_row([
            cell.profile.name.clone(),
            cell.page.name(),
            show(cell.split.median()),
            show(cell.tunnel.median()),
            show(cell.bound_s()),
        ]);
    }
    align(&mut table, &[2, 3, 4]);
    format!(
        "Page load time for {whose}, medians of {} loads in virtual time.\n{}\n",
        choice.runs,
        table.trim_fmt()
    )
}
