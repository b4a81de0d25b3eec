//! Latency under load, similar to RRUL (Real-time Response Under Load, from the bufferbloat
//! project). Bulk in each class and direction runs next to probes at a constant interval. Further
//! parts measure the mutual effects of several downloads, heavy users and idle classes.

mod downloads;
mod fairness;
mod limits;
mod parts;
mod rrul;

use std::time::Duration;

use super::choice::Choice;
use super::report::Report;
use crate::experiment::engine::Engine;

/// Default number of runs.
pub const DEFAULT_RUNS: u16 = 3;
/// Default measured length of each part.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(60);

/// Runs all parts.
pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let mut report = rrul::run(engine, choice)?;
    report.append(downloads::run(engine, choice)?);
    report.append(fairness::run(engine, choice)?);
    report.append(limits::run(engine, choice)?);
    Ok(report.found_by(engine.name()))
}

/// Runs only the part about the classes' rates, ceilings and floors.
pub fn class_rates(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    Ok(limits::run(engine, choice)?.found_by(engine.name()))
}

#[cfg(test)]
mod tests {
    use bentpipe_link::Class;
    use bentpipe_units::Ratio;

    use super::parts::WAYS;
    use super::*;
    use crate::profile::Profile;
    use crate::result::Row;

    /// A very short selection. Its figures have no significance, but every invariant must hold.
    fn tiny(seed: u64) -> Choice {
        let profile = Profile::named("mss").unwrap();
        Choice { profile, length: Duration::from_secs(8), runs: 1, seed }
    }

    #[test]
    fn classes_are_served_by_their_weight_and_an_idle_link_keeps_nobody_waiting() {
        for seed in [3, 77] {
            let mut choice = tiny(seed);
            choice.profile = choice.profile.with_loss(Ratio::ZERO, 1.0).unwrap();
            let report = rrul::run(&Engine::Sim, &choice).unwrap();
            let of = |workload: String, metric: &str| {
                let is_it = |row: &&Row| {
                    row.workload.as_deref() == Some(&*workload) && row.metric == metric
                };
                report.rows.iter().find(is_it).unwrap_or_else(|| panic!("{workload} {metric}"))
            };
            for (name, way) in WAYS {
                let rate = |class| of(format!("bulk, {class}, {name}"), "rate").mean.unwrap();
                let rates = Class::ALL.map(rate);
                assert!(rates.iter().rev().is_sorted() && rates[0] > 4.0 * rates[3], "{rates:?}");
                for class in Class::ALL {
                    let calm = of(format!("probe, {class}, {name}"), "delay");
                    assert!(calm.p95.unwrap() < choice.two_packets()[way], "{calm:?}");
                    let left = of(format!("probe, {class}, {name}"), "residual-loss");
                    assert_eq!(left.mean, Some(0.0));
                }
            }
            let widest = report.text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 80, "{widest}\n{}", report.text);
        }
    }

    #[test]
    fn lower_effort_gives_way_and_a_ceiling_is_not_passed() {
        for seed in [2, 31] {
            let report = limits::run(&Engine::Sim, &tiny(seed)).unwrap();
            let of = |metric: &str, workload: &str| {
                let is_it =
                    |row: &&Row| row.metric == metric && row.workload.as_deref() == Some(workload);
                report.rows.iter().find(is_it).unwrap_or_else(|| panic!("{workload} {metric}"))
            };
            let beside = of("share", "lower-effort beside best-effort").mean.unwrap();
            assert!((0.01..0.15).contains(&beside), "{beside}");
            for (name, _) in WAYS {
                let ceil = of("rate", &format!("saturated, assured, {name}"));
                assert!(ceil.mean.unwrap() <= 1.05 * ceil.limit.unwrap(), "{ceil:?}");
            }
        }
    }

    #[test]
    fn shares_are_of_what_all_got_and_a_run_repeats() {
        let report = fairness::run(&Engine::Sim, &tiny(5)).unwrap();
        let shares: Vec<f64> = (report.rows.iter())
            .filter(|row| row.metric == "share" && !row.workload.as_ref().unwrap().contains("hog"))
            .map(|row| row.mean.unwrap())
            .collect();
        assert_eq!(shares.len(), fairness::PASSENGERS);
        let sum: f64 = shares.iter().sum();
        assert!((sum - shares.len() as f64).abs() < 1e-6, "{sum}");
        assert_eq!(report.rows, fairness::run(&Engine::Sim, &tiny(5)).unwrap().rows);
    }
}
