//! Latency under load, in the manner of RRUL (Real-time Response Under Load, of the bufferbloat
//! project): bulk in each class and each direction beside probes at a steady pace, and what several
//! downloads, hogs and idle classes do to each other.

mod downloads;
mod fairness;
mod limits;
mod rrul;

use std::time::Duration;

use bentpipe_link::Class;

use super::choice::Choice;
use super::report::Report;
use crate::result::{Percentile, Sample, Samples};
use crate::traffic::{
    Carry, DOWN, ENDLESS, Engine, EngineError, REQUEST_BYTES, Talk, Traffic, UP, in_order,
};

/// Runs unless told otherwise.
pub const DEFAULT_RUNS: u16 = 3;
/// Default measured length of each part.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(60);

/// Bulk is steady after so many round trips …
const WARM_ROUND_TRIPS: u32 = 30;
/// … and at least this.
const LEAST_WARM: Duration = Duration::from_secs(20);
/// Time after which a packet in flight at the end has arrived, or never will: the longest lifetime
/// that a class gives its datagrams, and as much again.
const AFTERWARDS: Duration = Duration::from_secs(20);
/// Between two packets of a probe, as RRUL's VoIP-like ones.
const PROBE_GAP: Duration = Duration::from_millis(20);
/// 20 ms of G.711 (RFC 3551, section 4.5.14) and RTP's header.
const PROBE_BYTES: usize = 172;
/// A full packet on the radio, with which waits are compared.
const PACKET_BYTES: u64 = 1500;

/// Runs all of it.
pub fn run(engine: &Engine<'_>, choice: &Choice) -> Result<Report, EngineError> {
    let mut report = rrul::run(engine, choice)?;
    report.append(downloads::run(engine, choice)?);
    report.append(fairness::run(engine, choice)?);
    report.append(limits::run(engine, choice)?);
    Ok(report.found_by(engine))
}

/// Runs what is about classes' rates, ceilings and floors alone.
pub fn class_rates(engine: &Engine<'_>, choice: &Choice) -> Result<Report, EngineError> {
    Ok(limits::run(engine, choice)?.found_by(engine))
}

impl Choice {
    /// Time at which bulk that begins now is steady.
    fn warm(&self) -> Duration {
        (self.profile.link.rtt() * WARM_ROUND_TRIPS).max(LEAST_WARM)
    }

    /// A probe for all of a run, its packets `phase` after those of another.
    fn probe(&self, class: Class, passenger: u32, phase: Duration) -> Talk {
        let length = self.warm() + 2 * self.length; // some are measured twice
        let packets = (length.as_nanos() / PROBE_GAP.as_nanos()) as usize;
        let sizes = vec![PROBE_BYTES; packets];
        Talk { class, passenger, gap: PROBE_GAP, sizes, phase }
    }

    /// The time without queues: towards the aircraft, and from it.
    fn propagation(&self) -> [Duration; 2] {
        [self.profile.link.forward.mean_delay(), self.profile.link.return_.mean_delay()]
    }

    /// Sending time of two full packets, each way.
    fn two_packets(&self) -> [f64; 2] {
        [&self.profile.link.forward, &self.profile.link.return_]
            .map(|way| way.rate().map_or(0.0, |rate| rate.time_for(2 * PACKET_BYTES).as_secs_f64()))
    }

    /// The waits of a probe's packets that were sent between two moments.
    fn waits(
        &self,
        cabin: &dyn Traffic,
        talk: usize,
        way: usize,
        from: Duration,
        to: Duration,
    ) -> Samples {
        let transits = cabin.transits(talk, way).into_iter();
        let sent = transits.filter(|(left, _)| (from..to).contains(left));
        Samples(sent.map(|(_, transit)| wait(transit, self.propagation()[way])).collect())
    }

    /// p95 of the same over those that came in order: of what the link did not lose, which waited
    /// for its turn alone.
    fn p95_in_order(
        &self,
        cabin: &dyn Traffic,
        talk: usize,
        way: usize,
        from: Duration,
        to: Duration,
    ) -> Option<f64> {
        let sent = in_order(&cabin.transits(talk, way));
        let sent = sent.into_iter().filter(|(left, _)| (from..to).contains(left));
        let waits: Samples =
            sent.map(|(_, it)| it.saturating_sub(self.propagation()[way]).as_secs_f64()).collect();
        waits.percentile(0.95).and_then(Percentile::known)
    }
}

/// Beyond the propagation; what never came counts as infinitely late.
fn wait(transit: Option<Duration>, propagation: Duration) -> Sample {
    transit.map_or(Sample::Cut(0.0), |transit| {
        Sample::Finished(transit.saturating_sub(propagation).as_secs_f64())
    })
}

/// The share of those that never came.
fn left(samples: &Samples) -> f64 {
    let never = samples.0.iter().filter(|sample| matches!(sample, Sample::Cut(_))).count();
    never as f64 / samples.len().max(1) as f64
}

/// The 95th percentile of the waits of what the link did not lose at first, where it lost the share
/// `lost`: a packet that a repair brought back comes later than those that needed none, so these are
/// the least 1 − `lost` of all.
fn p95_at_first(samples: &Samples, lost: f64) -> Option<f64> {
    samples.percentile(0.95 * (1.0 - lost)).and_then(Percentile::known)
}

/// A figure of one run.
fn of_run(figure: Option<f64>) -> Sample {
    figure.map_or(Sample::Cut(0.0), Sample::Finished)
}

/// A download without end.
fn bulk_down(class: Class, passenger: u32) -> Carry {
    Carry { class, passenger, up: REQUEST_BYTES, down: ENDLESS }
}

/// Bytes that came on these streams so far, towards the aircraft and from it.
fn got(cabin: &dyn Traffic, streams: &[usize]) -> [u64; 2] {
    let sum = |way: usize| streams.iter().map(|&number| cabin.course(number).got[way]).sum();
    [sum(DOWN), sum(UP)]
}

const WAYS: [(&str, usize); 2] = [("down", DOWN), ("up", UP)];

#[cfg(test)]
mod tests {
    use bentpipe_units::Ratio;

    use super::*;
    use crate::profile::Profile;
    use crate::result::Row;

    /// As short as it may be: figures mean nothing yet, but what must hold for any seed does.
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
