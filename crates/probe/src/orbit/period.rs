//! The 15 s rhythm: Starlink assigns satellites again every 15 s, and the round-trip time steps.
//!
//! A model says that the round-trip time has a level for each slot of some length. Its gain is the logarithm
//! of the likelihood over that of a constant, less the gain that chance gives to so many levels. The slots
//! of a constellation have one phase all the time, so phases are judged by all windows of a flight together.
//! Slots of lengths that nobody uses show how much slow changes gain. Ranks instead of times keep a few slow
//! replies from deciding.

use std::collections::BTreeMap;

/// Length of a slot, and those to compare with, in seconds.
const PERIOD_S: u32 = 15;
const OTHERS_S: [u32; 4] = [11, 13, 17, 19];

/// A reply to a ping of a far target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of sending in seconds since the start of the session.
    pub at_s: f64,
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
    /// Number of the target, so that targets compare with themselves.
    pub target: usize,
}

/// Gains of 15 s over the best other length, one for each window.
pub fn gains(windows: &[&[Sample]]) -> Vec<f64> {
    let points: Vec<Vec<(f64, f64)>> = windows.iter().map(|samples| ranks(samples)).collect();
    let own = best(&points, PERIOD_S);
    let others = OTHERS_S.map(|period| best(&points, period));
    let total = |gains: &Vec<f64>| gains.iter().sum::<f64>();
    let other = others.iter().max_by(|a, b| total(a).total_cmp(&total(b)));
    match other {
        Some(other) => own.iter().zip(other).map(|(own, other)| own - other).collect(),
        None => own,
    }
}

/// Gains of each window at the phase that gains most in all together.
fn best(windows: &[Vec<(f64, f64)>], period_s: u32) -> Vec<f64> {
    let at = |phase: u32| -> Vec<f64> {
        windows.iter().map(|points| gain(points, f64::from(period_s), f64::from(phase))).collect()
    };
    let phases = (0..period_s).map(at);
    let total = |gains: &Vec<f64>| gains.iter().sum::<f64>();
    phases.max_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or_default()
}

/// Gain of a level for each slot over one level.
fn gain(points: &[(f64, f64)], period_s: f64, phase_s: f64) -> f64 {
    let slot = |at_s: f64| ((at_s + phase_s) / period_s) as usize;
    let first = points.iter().map(|(at_s, _)| slot(*at_s)).min().unwrap_or_default();
    // A window of 300 s has at most 29 slots of 11 s.
    let mut slots = Vec::with_capacity(32);
    for (at_s, rank) in points {
        let index = slot(*at_s) - first;
        if index >= slots.len() {
            slots.resize(index + 1, (0.0, 0.0, 0.0));
        }
        let (count, sum, squares) = &mut slots[index];
        *count += 1.0;
        *sum += rank;
        *squares += rank * rank;
    }
    slots.retain(|(count, ..)| *count > 0.0);
    let (n, levels) = (points.len() as f64, slots.len() as f64);
    if n < levels + 2.0 {
        return 0.0;
    }
    let rest: f64 = slots.iter().map(|(count, sum, squares)| squares - sum * sum / count).sum();
    let sum: f64 = points.iter().map(|(_, rank)| rank).sum();
    let all: f64 = points.iter().map(|(_, rank)| rank * rank).sum::<f64>() - sum * sum / n;
    // Equal times leave no rest; their logarithm must stay finite.
    let variance = |squares: f64, free: f64| (squares.max(1e-9) / free).ln();
    0.5 * n * (variance(all, n - 1.0) - variance(rest, n - levels))
}

/// Times of sending with the ranks of round-trip times among those of the same target, from 0 to 1.
fn ranks(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut targets: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        targets.entry(sample.target).or_default().push(sample);
    }
    let mut points = Vec::with_capacity(samples.len());
    for mut own in targets.into_values() {
        own.sort_by_key(|sample| sample.rtt_us);
        let n = own.len() as f64;
        points.extend(own.iter().enumerate().map(|(rank, sample)| (sample.at_s, rank as f64 / n)));
    }
    points
}
