//! The on-board HTTP cache: its hit ratio and its response time.
//!
//! `hit-ratio` is a calculation on a simulated clock: an hour of a cabin, compared with an ideal
//! cache that keeps every fresh object. `lookup` measures the real air gateway: its HTTP proxy gets
//! requests for cached objects over loopback.

mod cabin;
mod lookup;

use bentpipe_units::ByteSize;

use super::report::{Goal, Report, millis, percent};
use super::table::{align, table};
use crate::result::Row;
use cabin::Cabin;

/// Default request rate of `lookup` per second.
pub const DEFAULT_RATE: u32 = 2_000;
/// Default length, in seconds.
pub const DEFAULT_SECONDS: u64 = 10;
/// Default memory of the cache.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::from_bytes(64 << 20);

/// Maximum p99 of the time for a hit.
const MAX_LOOKUP_S: f64 = 0.002;
/// Minimum of hits, as a fraction of the ideal cache's.
const MIN_OF_IDEAL: f64 = 0.95;

/// Selection of the run.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Seed of the passengers' requests.
    pub seed: u64,
    /// Requests per second for cached objects.
    pub rate: u32,
    /// Length, in seconds.
    pub seconds: u64,
    /// Memory of the cache, which has no disk.
    pub memory: ByteSize,
}

/// Runs both parts.
pub fn run(choice: &Choice) -> anyhow::Result<Report> {
    let cabin = cabin::run(choice.seed, choice.memory)?;
    let lookup = lookup::run(choice.rate, choice.seconds)?;
    let p99 = lookup.known(0.99);
    let of_ideal = cabin.hits as f64 / cabin.ideal.max(1) as f64;
    let mut goals =
        vec![Goal::ratio_at_least("hits ÷ an ideal cache's", Some(of_ideal), MIN_OF_IDEAL)];
    if cfg!(debug_assertions) {
        // Times of an unoptimised build have no significance.
    } else if choice.rate >= DEFAULT_RATE {
        goals.push(Goal::time_at_most("a hit, p99", p99, MAX_LOOKUP_S));
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
    let time = |q| lookup.known(q).map_or("–".into(), millis);
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
