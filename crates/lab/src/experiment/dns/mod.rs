//! The on-board resolver: the fraction of questions answered on board, the duration of the others,
//! and the time that fake-IP addresses save.
//!
//! The method is that of Mile High WiFi, section 5.1: popular names, each queried twice in a row.

mod choice;
mod passengers;
mod testbed;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_gateway::air::DnsCounts;
use tokio::time::sleep;

use super::report::{Goal, Report, delay, percent, row};
use super::table::{align, table};
use crate::experiment::engine::Engine;
use crate::experiment::virtual_link::virtually;
use crate::result::{Row, Sample, Samples};
pub use choice::Choice;
use passengers::{Asked, NAMES, PAUSE, is_right, popular};
use testbed::{Flight, Memory, Testbed};

/// Default length.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(3600);
/// Default number of passengers.
pub const DEFAULT_PASSENGERS: u8 = 50;
/// Initial time during which caches may be cold.
const WARM_UP: Duration = Duration::from_secs(300);
/// Delay below which an answer counts as from the on-board cache.
const ON_BOARD: Duration = Duration::from_millis(5);
/// Number of names that nobody has queried before.
const COLD: u32 = 100;
/// Time between two flights. The second one begins with an empty cache.
const NEXT_DAY: Duration = Duration::from_secs(24 * 3600);

/// Profile of the targets.
const TARGET_PROFILE: &str = "mss";
const FIRST_ON_BOARD: f64 = 0.95;
const SECOND_ON_BOARD: f64 = 0.999;
const COLD_ROUND_TRIPS: f64 = 1.05;
const SAVED_TOLERANCE: f64 = 0.05;

/// All measurements.
struct Seen {
    warm: Vec<Asked>,
    counts: DnsCounts,
    cold: Samples,
    /// Time from the question to the first byte of a page, without and with fake-IP addresses.
    pages: [Samples; 2],
    /// The first minutes of the next day's flight, with an empty cache, or with the names that the
    /// ground remembers.
    beginnings: [Beginning; 2],
}

/// Questions before caches were warm.
struct Beginning {
    /// Number of first questions.
    asked: usize,
    /// Number of first questions answered on board.
    on_board: usize,
    counts: DnsCounts,
}

/// Runs the experiment in virtual time.
pub fn run(choice: &Choice) -> anyhow::Result<Report> {
    let memory = Memory::default();
    let (warm, counts, cold) = virtually(cabin(choice, &memory))?;
    let pages = [virtually(first_bytes(choice, false))?, virtually(first_bytes(choice, true))?];
    // Each run adds to the memory, so the one that uses it must come first.
    let begin = |warm_start| virtually(beginning(choice, warm_start, &memory));
    let (warm_start, cold_start) = (begin(true)?, begin(false)?);
    let beginnings = [cold_start, warm_start];
    let seen = Seen { warm, counts, cold, pages, beginnings };
    let report = Report {
        text: seen.text(choice),
        rows: seen.rows(choice),
        goals: if choice.profile.name == TARGET_PROFILE { seen.goals(choice) } else { Vec::new() },
    };
    Ok(report.found_by(Engine::Sim.name()))
}

/// Passengers query popular names, then some that nobody has queried before.
async fn cabin(
    choice: &Choice,
    memory: &Memory,
) -> anyhow::Result<(Vec<Asked>, DnsCounts, Samples)> {
    let flight = Flight { memory: memory.clone(), ..Flight::default() };
    let testbed = Arc::new(Testbed::start(&choice.profile, choice.seed, &flight).await?);
    let mut warm = popular(choice, choice.length, choice.seed, &testbed).await?;
    warm.retain(|asked: &Asked| asked.at >= WARM_UP.min(choice.length / 2));
    let counts = testbed.resolver.counts();
    let mut cold = Samples::default();
    for n in 0..COLD {
        let name = format!("cold{n}.example");
        let (ip, took) = testbed.ask(Ipv4Addr::new(10, 1, 1, 1).into(), &name).await?;
        is_right(&name, ip)?;
        cold.push(took.as_secs_f64());
        sleep(Duration::from_secs(1)).await;
    }
    Ok((warm, counts, cold))
}

/// The first minutes of another flight, with other passengers, a day later.
async fn beginning(
    choice: &Choice,
    warm_start: bool,
    memory: &Memory,
) -> anyhow::Result<Beginning> {
    let flight = Flight { warm_start, memory: memory.clone(), at: NEXT_DAY, instant: false };
    let seed = choice.seed.wrapping_add(1);
    let testbed = Arc::new(Testbed::start(&choice.profile, seed, &flight).await?);
    let asked = popular(choice, WARM_UP.min(choice.length), seed, &testbed).await?;
    let on_board = asked.iter().filter(|asked| asked.took[0] < ON_BOARD).count();
    Ok(Beginning { asked: asked.len(), on_board, counts: testbed.resolver.counts() })
}

/// Loads pages of names that nobody has queried before, one after another.
async fn first_bytes(choice: &Choice, instant: bool) -> anyhow::Result<Samples> {
    let flight = Flight { instant, ..Flight::default() };
    let testbed = Testbed::start(&choice.profile, choice.seed, &flight).await?;
    let mut samples = Samples::default();
    for n in 0..COLD {
        samples.push(testbed.first_byte(&format!("page{n}.example")).await?.as_secs_f64());
        sleep(Duration::from_secs(1)).await;
    }
    Ok(samples)
}

/// Names of the initial periods.
const BEGINNINGS: [&str; 2] = ["next flight, first minutes", "the same, warm start"];

impl Beginning {
    fn on_board(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.on_board as f64 / self.asked as f64)
    }
}

impl Seen {
    /// Durations of the first or of the second questions.
    fn took(&self, which: usize) -> Samples {
        let times = self.warm.iter().map(|asked| asked.took[which].as_secs_f64());
        Samples(times.map(Sample::Finished).collect())
    }

    fn on_board(&self, which: usize) -> Option<f64> {
        let sooner = self.warm.iter().filter(|asked| asked.took[which] < ON_BOARD).count();
        (!self.warm.is_empty()).then(|| sooner as f64 / self.warm.len() as f64)
    }

    fn cold_round_trips(&self, rtt: Duration) -> Option<f64> {
        Some(self.cold.median()? / rtt.as_secs_f64())
    }

    fn saved_round_trips(&self, rtt: Duration) -> Option<f64> {
        Some((self.pages[0].median()? - self.pages[1].median()?) / rtt.as_secs_f64())
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
        for (beginning, name) in self.beginnings.iter().zip(BEGINNINGS) {
            let (n, share) = (beginning.asked, beginning.on_board());
            rows.push(Row { n, p50: share, p95: share, mean: share, ..row(name, "hit-ratio") });
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
        for (beginning, name) in self.beginnings.iter().zip(BEGINNINGS) {
            let share = beginning.on_board().map_or("–".into(), percent);
            let n = beginning.asked.to_string();
            shown.add_row([name.to_owned(), share, String::new(), String::new(), n]);
        }
        align(&mut shown, &[1, 2, 3, 4]);
        let (counts, [begun, warm]) = (self.counts, &self.beginnings);
        let crossed = |of: &Beginning| of.counts.bytes_to_ground + of.counts.bytes_from_ground;
        format!(
            "{}\n{} passengers ask for {NAMES} names, the nth as often as 1/n, each every {} s,\n\
             for {} s. Names hold 20 s to a day. A page: from its name to its first byte.\n\n{}\n\n\
             Crossed: {} asked for, {} ahead of need, {} anew behind a stale answer.\n\
             Bytes of it: {} asked, {} answered; {} did not cross.\n\n\
             The next day's flight begins without anything; warm, with what the ground\n\
             remembers: {} answers of {} bytes are pushed, {} used. Bytes of questions\n\
             and answers in its first minutes: {} cold, {} warm.\n",
            choice.profile.about,
            choice.passengers,
            PAUSE.as_secs(),
            choice.length.as_secs(),
            shown.trim_fmt(),
            counts.missed,
            counts.prefetched,
            counts.stale,
            counts.bytes_to_ground,
            counts.bytes_from_ground,
            counts.bytes_saved,
            warm.counts.pushed,
            warm.counts.push_bytes,
            warm.counts.push_used,
            crossed(begun),
            crossed(warm),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

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
        // With so few passengers, some names are still cold in the first minutes.
        let cold = report.goals.iter().filter(|goal| !goal.holds()).map(|goal| goal.to_string());
        let cold: Vec<_> = cold.filter(|name| !name.starts_with("first question")).collect();
        assert!(cold.is_empty(), "{cold:?} {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let hits: Vec<_> = report.rows.iter().filter(|row| row.metric == "hit-ratio").collect();
        assert!(hits.len() == 4 && hits[0].mean.unwrap() > 0.8, "{text}");
        // A day later, nine of ten first questions are immediately answered on board.
        let [cold, warm] = [&hits[2], &hits[3]].map(|row| row.mean.unwrap());
        assert!(warm > 0.8 && warm > cold + 0.2, "{text}");
    }
}
