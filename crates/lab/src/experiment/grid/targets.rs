//! Targets of the radio transport for each cell. This is their only list.

use std::fmt;

use super::outcome::{Both, Outcome};
use super::{BURSTS, Cell, LOSSES, PROFILES, Work, percent};
use crate::experiment::report::{Bound, Goal};
use crate::result::Percentile;

/// A figure with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Bulk goodput ÷ ((1−p)·rate).
    Utilization,
    /// Median completion time in seconds.
    MedianSeconds,
    /// 95th percentile of completion ÷ limit.
    P95,
    /// Number of objects that never arrived.
    Failures,
    /// Repair packets and retransmissions per source packet, towards the aircraft.
    RepairsPerSource,
    /// Fraction of bytes towards the aircraft that is not payload.
    Overhead,
    /// Fraction of bytes towards the aircraft in repair packets and retransmissions.
    RepairBytes,
    /// Bytes of the aircraft's reports ÷ the capacity of the forward link.
    ReportsOfDownlink,
    /// Bytes of the aircraft's reports ÷ the capacity of the return link.
    ReportsOfUplink,
}

/// One bound on one figure of one work in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The cell.
    pub cell: Cell,
    /// The work.
    pub work: Work,
    /// The figure.
    pub figure: Figure,
    /// Its bound.
    pub bound: Bound,
}

/// All targets.
pub fn all() -> Vec<Target> {
    [bulk(), short(), repairs(), beside_bulk(), harshest(), long(), clean(), reports()].concat()
}

/// Targets of the works that were run, with their goals, in the order of the targets.
pub fn judge(outcomes: &[Outcome]) -> Vec<(Target, Goal)> {
    let judged = all().into_iter().filter_map(|target| {
        let is_it = |one: &&Outcome| (&one.cell, &one.work) == (&target.cell, &target.work);
        let outcome = outcomes.iter().find(is_it)?;
        let goal = target.judge(outcome)?;
        Some((target, goal))
    });
    judged.collect()
}

impl Target {
    fn new(link: &str, at: (f64, f64), work: &str, figure: Figure, bound: Bound) -> Self {
        let cell = Cell { profile: link.into(), loss: percent(at.0), burst: at.1 };
        Self { cell, work: work.parse().expect("the works of targets parse"), figure, bound }
    }

    /// Returns `None` if the outcome lacks the figure, for example traffic in the emulator.
    fn judge(&self, outcome: &Outcome) -> Option<Goal> {
        let of = |figure: fn(&Both) -> f64| Some(figure(outcome.traffic.as_ref()?));
        let found = match self.figure {
            Figure::Utilization => Some(outcome.utilization()?),
            Figure::MedianSeconds => outcome.samples.median(),
            Figure::P95 => outcome.completion(0.95).and_then(Percentile::known),
            Figure::Failures => Some(outcome.failures() as f64),
            Figure::RepairsPerSource => Some(of(|both| both.forward.redundancy())?),
            Figure::Overhead => Some(of(|both| both.forward.overhead())?),
            Figure::RepairBytes => {
                Some(of(|both| both.forward.repair() + both.forward.retransmission())?)
            }
            Figure::ReportsOfDownlink => Some(of(Both::reports_of_downlink)?),
            Figure::ReportsOfUplink => Some(of(Both::reports_of_uplink)?),
        };
        let Self { cell, work, figure, bound } = self;
        let unit = if *figure == Figure::MedianSeconds { "s" } else { "ratio" };
        Some(Goal::new(format!("{cell}: {work}, {figure}"), found, *bound, unit))
    }
}

/// Bulk fills the link, with independent loss and with bursts of 4. There is no target for bursts
/// of 20.
fn bulk() -> Vec<Target> {
    let mut targets = Vec::new();
    for link in ["mss", "geo-satl"] {
        for loss in LOSSES {
            for burst in if loss == 0.0 { &[1.0][..] } else { &[1.0, 4.0][..] } {
                let least = match (loss, burst) {
                    (40.0.., _) => 0.88,
                    (_, 1.0) => 0.93,
                    _ => 0.91,
                };
                let (at, bound) = ((loss, *burst), Bound::AtLeast(least));
                targets.push(Target::new(link, at, "bulk", Figure::Utilization, bound));
            }
        }
    }
    targets
}

/// Short transfers hardly ever need a second round trip.
fn short() -> Vec<Target> {
    let most = [
        ((6.0, 1.0), [1.10, 1.12, 1.12]),
        ((6.0, 4.0), [1.20, 1.25, 1.20]),
        ((20.0, 1.0), [1.15, 1.20, 1.15]),
    ];
    let of = |(at, most): ((f64, f64), [f64; 3])| {
        let works = ["object-10k", "object-100k", "object-1m"].into_iter().zip(most);
        works
            .map(move |(work, most)| Target::new("mss", at, work, Figure::P95, Bound::AtMost(most)))
    };
    most.into_iter().flat_map(of).collect()
}

/// Maximum redundancy of these short transfers.
fn repairs() -> Vec<Target> {
    let most = [("object-10k", 0.40), ("object-100k", 0.20), ("object-1m", 0.10)];
    let of = |(work, most)| {
        [1.0, 4.0].map(|burst| {
            let bound = Bound::AtMost(most);
            Target::new("mss", (6.0, burst), work, Figure::RepairsPerSource, bound)
        })
    };
    most.into_iter().flat_map(of).collect()
}

/// Short transfers next to another passenger's bulk hardly ever need a second round trip either.
fn beside_bulk() -> Vec<Target> {
    let of = |work| {
        [(6.0, 1.0), (6.0, 4.0), (20.0, 1.0)]
            .map(|at| Target::new("mss", at, work, Figure::P95, Bound::AtMost(1.25)))
    };
    ["object-10k-beside-bulk", "object-100k-beside-bulk"].into_iter().flat_map(of).collect()
}

/// Targets of the harshest cells: no transfer fails.
fn harshest() -> Vec<Target> {
    let at = (40.0, 10.0);
    let mut targets: Vec<_> = (["object-10k", "object-100k", "object-1m"].into_iter())
        .map(|work| Target::new("mss", at, work, Figure::Failures, Bound::AtMost(0.0)))
        .collect();
    targets.push(Target::new("mss", at, "object-100k", Figure::P95, Bound::AtMost(2.0)));
    targets
}

/// 10 MiB over the lossy GEO scenario of the QUIC measurements.
fn long() -> Vec<Target> {
    let (figure, bound) = (Figure::MedianSeconds, Bound::AtMost(5.15));
    vec![Target::new("geo-satl", (1.0, 1.0), "file-10mib", figure, bound)]
}

/// On a link without loss, there is hardly any overhead beyond headers.
fn clean() -> Vec<Target> {
    let of = |link| {
        [(Figure::Overhead, 0.06), (Figure::RepairBytes, 0.005)].map(|(figure, most)| {
            Target::new(link, (0.0, 1.0), "bulk", figure, Bound::AtMost(most))
        })
    };
    PROFILES.into_iter().flat_map(of).collect()
}

/// Targets of reports: the aircraft sends few bytes, compared with what it receives.
fn reports() -> Vec<Target> {
    let mut targets = Vec::new();
    for link in PROFILES {
        for loss in LOSSES {
            for burst in if loss == 0.0 { &[1.0][..] } else { &BURSTS[..] } {
                let shares = [(Figure::ReportsOfDownlink, 0.02), (Figure::ReportsOfUplink, 0.10)];
                targets.extend(shares.map(|(figure, most)| {
                    Target::new(link, (loss, *burst), "bulk", figure, Bound::AtMost(most))
                }));
            }
        }
    }
    targets
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Utilization => "utilization",
            Self::MedianSeconds => "median",
            Self::P95 => "p95 ÷ limit",
            Self::Failures => "failures",
            Self::RepairsPerSource => "repairs per source",
            Self::Overhead => "overhead",
            Self::RepairBytes => "share of repairs",
            Self::ReportsOfDownlink => "reports ÷ downlink",
            Self::ReportsOfUplink => "reports ÷ uplink",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Sample, Samples};

    fn outcome(samples: Vec<Sample>) -> Outcome {
        let cell = Cell { profile: "mss".into(), loss: percent(6.0), burst: 1.0 };
        let work = "object-10k".parse().unwrap();
        Outcome::of_samples(cell, work, 1.0, Samples(samples), None)
    }

    #[test]
    fn a_bound_holds_up_to_itself_and_the_unknown_is_a_miss() {
        let holds = |sample| {
            let verdicts = judge(&[outcome(vec![sample])]);
            // A figure that the emulator cannot count is not judged.
            assert_eq!(verdicts.len(), 1, "{verdicts:?}");
            verdicts[0].1.holds()
        };
        assert!(holds(Sample::Finished(1.10)));
        assert!(!holds(Sample::Finished(1.11)));
        assert!(!holds(Sample::Cut(1.0)));
    }
}
