//! Latency under load, similar to RRUL (Real-time Response Under Load, from the bufferbloat
//! project). Bulk in each class and direction runs next to probes at a constant interval. Further
//! parts measure the mutual effects of several downloads, heavy users and idle classes.

mod downloads;
mod fairness;
mod limits;
mod rrul;

use std::time::Duration;

use bentpipe_link::Class;

use super::choice::Choice;
use super::report::Report;
use crate::experiment::engine::Engine;
use crate::result::{Percentile, Sample, Samples};
use crate::traffic::{Carry, DOWN, ENDLESS, REQUEST_BYTES, Talk, Traffic, UP, in_order};

/// Default number of runs.
pub const DEFAULT_RUNS: u16 = 3;
/// Default measured length of each part.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(60);

/// Round trips until bulk is steady.
const WARM_ROUND_TRIPS: u32 = 30;
/// Minimum time until bulk is steady.
const MIN_WARM: Duration = Duration::from_secs(20);
/// Time after which a packet in flight at the end has arrived or is lost: twice the longest
/// lifetime that a class gives its datagrams.
const AFTERWARDS: Duration = Duration::from_secs(20);
/// Interval between two packets of a probe, as in RRUL's VoIP-like probes.
const PROBE_GAP: Duration = Duration::from_millis(20);
/// Payload of a probe: 20 ms of G.711 (RFC 3551, section 4.5.14) and RTP's header.
const PROBE_BYTES: usize = 172;
/// Size of a full packet on the radio, as the unit for waiting times.
const PACKET_BYTES: u64 = 1500;

/// Runs all parts.
pub fn run(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    let mut report = rrul::run(engine, choice)?;
    report.append(downloads::run(engine, choice)?);
    report.append(fairness::run(engine, choice)?);
    report.append(limits::run(engine, choice)?);
    Ok(report.found_by(engine))
}

/// Runs only the part about the classes' rates, ceilings and floors.
pub fn class_rates(engine: &Engine<'_>, choice: &Choice) -> anyhow::Result<Report> {
    Ok(limits::run(engine, choice)?.found_by(engine))
}

impl Choice {
    /// Time after which new bulk is steady.
    fn warm(&self) -> Duration {
        (self.profile.link.rtt() * WARM_ROUND_TRIPS).max(MIN_WARM)
    }

    /// A probe that lasts for a whole run. Its packets follow those of another probe after `phase`.
    fn probe(&self, class: Class, passenger: u32, phase: Duration) -> Talk {
        let length = self.warm() + 2 * self.length; // some are measured twice
        let packets = (length.as_nanos() / PROBE_GAP.as_nanos()) as usize;
        let sizes = vec![PROBE_BYTES; packets];
        Talk { class, passenger, gap: PROBE_GAP, sizes, phase }
    }

    /// Propagation delay without queues: towards the aircraft, and from it.
    fn propagation(&self) -> [Duration; 2] {
        [self.profile.link.forward.mean_delay(), self.profile.link.return_.mean_delay()]
    }

    /// Serialization time of two full packets, in each direction.
    fn two_packets(&self) -> [f64; 2] {
        [&self.profile.link.forward, &self.profile.link.return_]
            .map(|way| way.rate().map_or(0.0, |rate| rate.time_for(2 * PACKET_BYTES).as_secs_f64()))
    }

    /// Waiting times of a probe's packets sent between two moments.
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

    /// p95 of these waiting times over the packets that arrived in order. These are the packets
    /// that the link did not lose, which only waited for their turn.
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

/// Delay beyond propagation. A lost packet counts as infinitely late.
fn wait(transit: Option<Duration>, propagation: Duration) -> Sample {
    transit.map_or(Sample::Cut(0.0), |transit| {
        Sample::Finished(transit.saturating_sub(propagation).as_secs_f64())
    })
}

/// Fraction of packets that never arrived.
fn left(samples: &Samples) -> f64 {
    let never = samples.0.iter().filter(|sample| matches!(sample, Sample::Cut(_))).count();
    never as f64 / samples.len().max(1) as f64
}

/// 95th percentile of the waiting times of packets that the link did not lose at first, for a loss
/// of `lost`. A packet recovered from repair packets arrives later than the others, so the packets
/// in question are the smallest 1 − `lost` of all.
fn p95_at_first(samples: &Samples, lost: f64) -> Option<f64> {
    samples.percentile(0.95 * (1.0 - lost)).and_then(Percentile::known)
}

/// Figure of one run as a sample.
fn of_run(figure: Option<f64>) -> Sample {
    figure.map_or(Sample::Cut(0.0), Sample::Finished)
}

/// Description of an endless download.
fn bulk_down(class: Class, passenger: u32) -> Carry {
    Carry { class, passenger, up: REQUEST_BYTES, down: ENDLESS }
}

/// Bytes received on these streams so far, towards the aircraft and from it.
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
