//! Seeded randomness: one stream per purpose. A change of a link's jitter therefore does not change
//! which packets are lost.

use std::f64::consts::TAU;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Purpose of a random stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Loss = 1,
    LossLevel = 2,
    BitErrors = 3,
    Jitter = 4,
    Outages = 5,
    Reordering = 6,
}

/// Random stream of `seed` for one purpose.
pub(crate) fn stream(seed: u64, purpose: Purpose) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose as u64);
    rng
}

/// Standard exponential variable.
pub(crate) fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    // 1 − [0, 1) is never zero, so the logarithm is finite.
    -(1.0 - rng.random::<f64>()).ln()
}

/// Standard normal variable (Box and Muller).
pub(crate) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (TAU * rng.random::<f64>()).cos()
}

/// Value redrawn for every interval of time. It does not depend on the times at which it is read.
#[derive(Debug, Clone)]
pub(crate) struct Redrawn {
    rng: ChaCha8Rng,
    every_ns: u64,
    current: Option<(u64, f64)>,
}

impl Redrawn {
    /// Words of the stream reserved for each interval. A draw uses at most four.
    const WORDS: u128 = 16;

    pub fn new(rng: ChaCha8Rng, every_ns: u64) -> Self {
        Self { rng, every_ns: every_ns.max(1), current: None }
    }

    /// Value of the interval that contains `at_ns`.
    pub fn at(&mut self, at_ns: u64, draw: impl FnOnce(&mut ChaCha8Rng) -> f64) -> f64 {
        let interval = at_ns / self.every_ns;
        if let Some((drawn_for, value)) = self.current
            && drawn_for == interval
        {
            return value;
        }
        self.rng.set_word_pos(u128::from(interval) * Self::WORDS);
        let value = draw(&mut self.rng);
        self.current = Some((interval, value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrawn_value_depends_only_on_its_interval() {
        let redrawn = || Redrawn::new(stream(3, Purpose::Jitter), 100);
        let draw = |rng: &mut ChaCha8Rng| rng.random::<f64>();
        let mut every = redrawn();
        let all: Vec<f64> = (0..1000).map(|at| every.at(at, draw)).collect();
        assert!(all.chunks(100).all(|interval| interval.iter().all(|v| *v == interval[0])));
        assert!(all[0] != all[100]);
        assert_eq!(redrawn().at(950, draw), all[950]);
    }

    #[test]
    fn every_purpose_and_seed_has_its_own_stream() {
        let first = |seed, purpose| stream(seed, purpose).random::<u64>();
        let all = [
            Purpose::Loss,
            Purpose::LossLevel,
            Purpose::BitErrors,
            Purpose::Jitter,
            Purpose::Outages,
            Purpose::Reordering,
        ];
        let mut values: Vec<u64> = all.iter().flat_map(|p| [first(1, *p), first(2, *p)]).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), 2 * all.len());
    }

    #[test]
    fn variables_have_the_expected_moments() {
        let mut rng = stream(1, Purpose::Jitter);
        let moments = |draw: &mut dyn FnMut() -> f64| {
            let n = 200_000;
            let (sum, squares) =
                (0..n).map(|_| draw()).fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
            let mean = sum / n as f64;
            (mean, squares / n as f64 - mean * mean)
        };
        // Standard errors: of the mean 1/√n = 0.0022; of the variance √(8/n) and √(2/n).
        let (mean, variance) = moments(&mut || exponential(&mut rng));
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.032, "{mean} {variance}");
        let (mean, variance) = moments(&mut || normal(&mut rng));
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.016, "{mean} {variance}");
    }
}
