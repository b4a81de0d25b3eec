//! The HTTP cache on board: how much of what passengers ask for it answers, and how fast.
//!
//! `hit-ratio` is arithmetic on a clock of its own: an hour of a cabin, of which every request's fate is
//! known to an ideal cache too, one that forgets nothing that is still fresh. `lookup` is the air gateway
//! itself in real time, its HTTP proxy asked over loopback for what it has.

mod cabin;
mod lookup;

use std::io;

use bentpipe_gateway::net::StartError;
use bentpipe_units::ByteSize;

use super::report::{Goal, Report, millis, percent};
use super::table::{align, table};
use crate::result::{Percentile, Row};
use cabin::Cabin;

/// Requests a second for `lookup`, unless told otherwise.
pub const DEFAULT_RATE: u32 = 2_000;
/// Default length, in seconds.
pub const DEFAULT_SECONDS: u64 = 10;
/// The memory of the cache, unless told otherwise.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::from_bytes(64 << 20);

/// A hit is served within this at p99.
const MOST_LOOKUP_S: f64 = 0.002;
/// Hits in parts of what an ideal cache hits.
const LEAST_OF_IDEAL: f64 = 0.95;

/// Selection of the run.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Seed of the passengers' requests.
    pub seed: u64,
    /// Requests a second for what is here.
    pub rate: u32,
    /// Length, in seconds.
    pub seconds: u64,
    /// The cache's memory; it has no disk.
    pub memory: ByteSize,
}

/// There are no figures.
#[derive(Debug, thiserror::Error)]
pub enum HttpCacheError {
    /// Files, sockets or tasks of the system.
    #[error("{doing}: {source}")]
    System {
        /// Action that failed.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The gateway did not start.
    #[error("the air gateway: {0}")]
    Start(#[from] StartError),
    /// The gateway's config is wrong.
    #[error("the air gateway's config: {0}")]
    Config(String),
    /// The gateway gave another answer than the object.
    #[error("the gateway answered {0:?}")]
    Answer(String),
}

/// Runs both parts.
pub fn run(choice: &Choice) -> Result<Report, HttpCacheError> {
    let cabin = cabin::run(choice.seed, choice.memory)?;
    let lookup = lookup::run(choice.rate, choice.seconds)?;
    let p99 = lookup.percentile(0.99).and_then(Percentile::known);
    let of_ideal = cabin.hits as f64 / cabin.ideal.max(1) as f64;
    let mut goals =
        vec![Goal::ratio_at_least("hits ÷ an ideal cache's", Some(of_ideal), LEAST_OF_IDEAL)];
    if cfg!(debug_assertions) {
        // What an unoptimised build needs says nothing.
    } else if choice.rate >= DEFAULT_RATE {
        goals.push(Goal::time_at_most("a hit, p99", p99, MOST_LOOKUP_S));
    }
    let row = |metric: &str, unit: &str| Row {
        experiment: "http-cache".into(),
        engine: if metric == "lookup" { "" } else { "sim" }.into(),
        metric: metric.into(),
        unit: unit.into(),
        seed: Some(choice.seed),
        ..Row::default()
    };
    let shares: [(&str, u64); 2] = [("hit-ratio", cabin.hits), ("hit-ratio-ideal", cabin.ideal)];
    let mut rows: Vec<Row> = shares
        .iter()
        .map(|(metric, hits)| {
            let share = *hits as f64 / cabin.requests as f64;
            Row { n: cabin.requests as usize, mean: Some(share), ..row(metric, "ratio") }
        })
        .collect();
    rows.push(Row {
        workload: Some(format!("{} requests/s", choice.rate)),
        ..lookup.fill(row("lookup", "s"))
    });
    let time = |q| lookup.percentile(q).and_then(Percentile::known).map_or("–".into(), millis);
    let text = format!(
        "{}\n{} requests/s for {} s for what is here: p50 {}, p95 {}, p99 {}, slowest {}{}.\n",
        shares_text(&cabin),
        choice.rate,
        choice.seconds,
        time(0.5),
        time(0.95),
        time(0.99),
        time(1.0),
        if cfg!(debug_assertions) { "; of a debug build, which is held to no target" } else { "" },
    );
    Ok(Report { text, rows, goals })
}

fn shares_text(cabin: &Cabin) -> String {
    let mut shares = table(&["an hour of fifty passengers", "requests", "share"]);
    let mut line = |name: &str, count: u64| {
        let share = percent(count as f64 / cabin.requests as f64);
        shares.add_row([name.to_owned(), count.to_string(), share]);
    };
    line("asked", cabin.requests);
    line("answered at once", cabin.hits);
    line("an ideal cache would", cabin.ideal);
    line("confirmed by the origin", cabin.validated);
    line("never to be stored", cabin.uncacheable);
    align(&mut shares, &[1, 2]);
    let saved = cabin.saved_bytes as f64 / cabin.bytes.max(1) as f64;
    format!(
        "{}\nOf the bytes asked for {} did not cross the link.\n",
        shares.trim_fmt(),
        percent(saved)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_have_figures_and_the_ideal_is_nearly_reached() {
        let choice = Choice { seed: 1, rate: 200, seconds: 1, memory: DEFAULT_MEMORY };
        let report = run(&choice).unwrap();
        let metrics: Vec<&str> = report.rows.iter().map(|row| row.metric.as_str()).collect();
        assert_eq!(metrics, ["hit-ratio", "hit-ratio-ideal", "lookup"]);
        assert!(report.rows[2].n >= 150, "{}", report.text);
        assert_eq!(report.missed(), 0, "{}", report.goals_text());
    }

    #[test]
    fn a_seed_repeats_the_hour_and_a_small_cache_falls_short() {
        let one = cabin::run(7, DEFAULT_MEMORY).unwrap();
        assert_eq!(one, cabin::run(7, DEFAULT_MEMORY).unwrap());
        let small = cabin::run(7, ByteSize::from_bytes(2 << 20)).unwrap();
        assert!(small.hits < one.hits && small.ideal == one.ideal);
        assert!(one.hits <= one.ideal);
    }
}
