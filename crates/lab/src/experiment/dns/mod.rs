//! Names on board: how many are answered there, how long the others take, and what instant names save.
//!
//! The method is that of Mile High WiFi, section 5.1: popular names, each asked for twice in a row.

mod world;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_gateway::air::DnsCounts;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::time::{Instant, sleep};

use super::report::{Goal, Report, delay, percent, row};
use super::table::{align, table};
use crate::profile::Profile;
use crate::result::{Percentile, Row, Sample, Samples};
use crate::traffic::Engine;
use world::World;

/// Unless told otherwise.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(3600);
/// Unless told otherwise.
pub const DEFAULT_PASSENGERS: u8 = 50;
/// Popular names, as many as the paper has.
const NAMES: usize = 100;
/// Between two names of one passenger, on average.
const PAUSE: Duration = Duration::from_secs(30);
/// Until then caches may be cold.
const WARM_UP: Duration = Duration::from_secs(300);
/// What comes sooner comes from on board.
const ON_BOARD: Duration = Duration::from_millis(5);
/// Names that nobody has asked for.
const COLD: u32 = 100;

/// What is to be reached on [`TARGET_PROFILE`].
const TARGET_PROFILE: &str = "mss";
const FIRST_ON_BOARD: f64 = 0.95;
const SECOND_ON_BOARD: f64 = 0.999;
const COLD_ROUND_TRIPS: f64 = 1.05;
const SAVED_TOLERANCE: f64 = 0.05;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The link.
    pub profile: Profile,
    /// Who asks.
    pub passengers: u8,
    /// For how long; it is measured after the first five minutes.
    pub length: Duration,
    /// Of losses and of what is asked.
    pub seed: u64,
}

/// Nothing was found out.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// Something of the world could not be made.
    #[error("the cabin cannot be set up: {0}")]
    World(String),
    /// The system would not.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl DnsError {
    fn told(why: impl ToString) -> Self {
        Self::World(why.to_string())
    }
}

/// Two questions for one name, one right after the other.
struct Asked {
    at: Duration,
    took: [Duration; 2],
}

/// All that was seen.
struct Seen {
    warm: Vec<Asked>,
    counts: DnsCounts,
    cold: Samples,
    /// From the question to the first byte of a page, without and with instant names.
    pages: [Samples; 2],
}

/// Asks, in virtual time.
pub fn run(choice: &Choice) -> Result<Report, DnsError> {
    let (warm, counts, cold) = virtually(cabin(choice))?;
    let pages = [virtually(first_bytes(choice, false))?, virtually(first_bytes(choice, true))?];
    let seen = Seen { warm, counts, cold, pages };
    let report = Report {
        text: seen.text(choice),
        rows: seen.rows(choice),
        goals: if choice.profile.name == TARGET_PROFILE { seen.goals(choice) } else { Vec::new() },
    };
    Ok(report.found_by(&Engine::Sim))
}

/// Does `work` on a clock that jumps to whatever comes next. The gateway's own listeners are real
/// sockets, on which nothing comes.
fn virtually<T>(work: impl Future<Output = Result<T, DnsError>>) -> Result<T, DnsError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build()?.block_on(work)
}

/// Passengers ask for popular names; then for some that nobody has asked for.
async fn cabin(choice: &Choice) -> Result<(Vec<Asked>, DnsCounts, Samples), DnsError> {
    let world = Arc::new(World::start(&choice.profile, choice.seed, false).await?);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let passengers = (0..choice.passengers).map(|number| {
        let (world, asked, length) = (world.clone(), asked.clone(), choice.length);
        let rng = ChaCha20Rng::seed_from_u64(choice.seed ^ u64::from(number) << 32);
        tokio::spawn(async move {
            let one = passenger(number, rng, began, length, &world, &asked).await;
            one.map_err(|error| error.to_string())
        })
    });
    for passenger in passengers.collect::<Vec<_>>() {
        passenger.await.map_err(DnsError::told)?.map_err(DnsError::told)?;
    }
    let mut warm = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
    warm.retain(|asked: &Asked| asked.at >= WARM_UP.min(choice.length / 2));
    let counts = world.resolver.counts();
    let mut cold = Samples::default();
    for n in 0..COLD {
        let name = format!("cold{n}.example");
        let (ip, took) = world.ask(Ipv4Addr::new(10, 1, 1, 1).into(), &name).await?;
        is_right(&name, ip)?;
        cold.push(took.as_secs_f64());
        sleep(Duration::from_secs(1)).await;
    }
    Ok((warm, counts, cold))
}

async fn passenger(
    number: u8,
    mut rng: ChaCha20Rng,
    began: Instant,
    length: Duration,
    world: &World,
    asked: &Mutex<Vec<Asked>>,
) -> Result<(), DnsError> {
    let from = IpAddr::from([10, 1, 0, number]);
    loop {
        // A Poisson process.
        let pause = -(1.0 - rng.random::<f64>()).ln();
        sleep(PAUSE.mul_f64(pause)).await;
        let at = began.elapsed();
        if at >= length {
            return Ok(());
        }
        let name = format!("n{}.example", zipf(rng.random()));
        let mut took = [Duration::ZERO; 2];
        for took in &mut took {
            let (ip, time) = world.ask(from, &name).await?;
            is_right(&name, ip)?;
            *took = time;
        }
        asked.lock().unwrap_or_else(PoisonError::into_inner).push(Asked { at, took });
    }
}

fn is_right(name: &str, ip: Ipv4Addr) -> Result<(), DnsError> {
    let expected = world::address(name);
    if ip == expected {
        Ok(())
    } else {
        Err(DnsError::told(format!("{name}: {ip}, not {expected}")))
    }
}

/// The rank that a draw from 0 to 1 falls on, where the nth has a weight of 1/n.
fn zipf(draw: f64) -> usize {
    let all: f64 = (1..=NAMES).map(|rank| 1.0 / rank as f64).sum();
    let mut left = draw * all;
    for rank in 1..NAMES {
        left -= 1.0 / rank as f64;
        if left < 0.0 {
            return rank;
        }
    }
    NAMES
}

/// Pages of names that nobody has asked for, one after another.
async fn first_bytes(choice: &Choice, instant: bool) -> Result<Samples, DnsError> {
    let world = World::start(&choice.profile, choice.seed, instant).await?;
    let mut samples = Samples::default();
    for n in 0..COLD {
        samples.push(world.first_byte(&format!("page{n}.example")).await?.as_secs_f64());
        sleep(Duration::from_secs(1)).await;
    }
    Ok(samples)
}

impl Seen {
    /// How long the first or the second question took.
    fn took(&self, which: usize) -> Samples {
        let times = self.warm.iter().map(|asked| asked.took[which].as_secs_f64());
        Samples(times.map(Sample::Finished).collect())
    }

    fn on_board(&self, which: usize) -> Option<f64> {
        let sooner = self.warm.iter().filter(|asked| asked.took[which] < ON_BOARD).count();
        (!self.warm.is_empty()).then(|| sooner as f64 / self.warm.len() as f64)
    }

    fn cold_round_trips(&self, rtt: Duration) -> Option<f64> {
        Some(median(&self.cold)? / rtt.as_secs_f64())
    }

    fn saved_round_trips(&self, rtt: Duration) -> Option<f64> {
        Some((median(&self.pages[0])? - median(&self.pages[1])?) / rtt.as_secs_f64())
    }

    fn rows(&self, choice: &Choice) -> Vec<Row> {
        let row = |workload: &str, metric| {
            row("dns", &choice.profile, workload.to_owned(), metric, choice.seed)
        };
        let rtt = choice.profile.rtt().as_secs_f64();
        let mut rows = Vec::new();
        for (which, name) in ["first question", "second question"].into_iter().enumerate() {
            let share = self.on_board(which);
            let n = self.warm.len();
            rows.push(Row { n, p50: share, p95: share, mean: share, ..row(name, "hit-ratio") });
            rows.push(self.took(which).fill(row(name, "lookup")));
        }
        rows.push(self.cold.fill(Row { limit: Some(rtt), ..row("cold name", "lookup") }));
        for (pages, (name, trips)) in
            self.pages.iter().zip([("cold page", 2.0), ("cold page, instant names", 1.0)])
        {
            let row = Row { limit: Some(trips * rtt), ..row(name, "first-byte") };
            rows.push(pages.fill(row));
        }
        rows
    }

    fn goals(&self, choice: &Choice) -> Vec<Goal> {
        let rtt = choice.profile.rtt();
        let saved = self.saved_round_trips(rtt);
        vec![
            Goal::ratio_at_least(
                "first question answered on board",
                self.on_board(0),
                FIRST_ON_BOARD,
            ),
            Goal::ratio_at_least(
                "second question answered on board",
                self.on_board(1),
                SECOND_ON_BOARD,
            ),
            Goal::ratio_at_most(
                "cold name, round trips",
                self.cold_round_trips(rtt),
                COLD_ROUND_TRIPS,
            ),
            Goal::off_by_at_most(
                "saved by instant names, round trips off 1",
                saved,
                SAVED_TOLERANCE,
            ),
        ]
    }

    fn text(&self, choice: &Choice) -> String {
        let mut shown = table(&["", "on board", "p50", "p95", "n"]);
        for (which, name) in ["first question", "second question"].into_iter().enumerate() {
            let took = self.took(which);
            let share = self.on_board(which).map_or("–".into(), percent);
            let (p50, p95) = (delay(&took, 0.5), delay(&took, 0.95));
            shown.add_row([name.to_owned(), share, p50, p95, took.len().to_string()]);
        }
        let [plain, instant] = &self.pages;
        for (name, samples) in
            [("cold name", &self.cold), ("cold page", plain), ("the same, instant names", instant)]
        {
            let (p50, p95) = (delay(samples, 0.5), delay(samples, 0.95));
            let n = samples.len().to_string();
            shown.add_row([name.to_owned(), String::new(), p50, p95, n]);
        }
        align(&mut shown, &[1, 2, 3, 4]);
        let counts = self.counts;
        format!(
            "{}\n{} passengers ask for {NAMES} names, the nth as often as 1/n, each every {} s,\n\
             for {} s. Names hold 20 s to a day. A page: from its name to its first byte.\n\n{}\n\n\
             Crossed: {} asked for, {} ahead of need, {} anew behind a stale answer.\n",
            choice.profile.about,
            choice.passengers,
            PAUSE.as_secs(),
            choice.length.as_secs(),
            shown.trim_fmt(),
            counts.missed,
            counts.prefetched,
            counts.stale,
        )
    }
}

fn median(samples: &Samples) -> Option<f64> {
    samples.percentile(0.5).and_then(Percentile::known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_of_ten_passengers_reach_the_targets() {
        let choice = Choice {
            profile: Profile::named("mss").unwrap(),
            passengers: 10,
            length: Duration::from_secs(1200),
            seed: 1,
        };
        let report = run(&choice).unwrap();
        assert_eq!(report.goals.len(), 4);
        let text = format!("{}{}", report.text, report.goals_text());
        // So few passengers leave some names cold for the first minutes.
        let cold = report.goals.iter().filter(|goal| !goal.holds()).map(|goal| goal.to_string());
        let cold: Vec<_> = cold.filter(|name| !name.starts_with("first question")).collect();
        assert!(cold.is_empty(), "{cold:?} {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let hits: Vec<_> = report.rows.iter().filter(|row| row.metric == "hit-ratio").collect();
        assert!(hits.len() == 2 && hits[0].mean.unwrap() > 0.8, "{text}");
    }

    #[test]
    fn ranks_are_drawn_by_their_weight() {
        assert_eq!((zipf(0.0), zipf(0.999_999)), (1, NAMES));
        let draws = 100_000;
        let first = (0..draws).filter(|n| zipf(f64::from(*n) / f64::from(draws)) == 1).count();
        assert!((0.19..0.20).contains(&(first as f64 / f64::from(draws))), "{first}");
    }
}
