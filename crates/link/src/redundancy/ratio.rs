//! Repairs for a steady flow of symbols, so that hardly any stays missing.
//!
//! Of *n* symbols, the last that is of use to the first, *k* repairs are spread over them. One that
//! is lost is not brought back in time where of the other *n* − 1 symbols and the *k* repairs *k* or
//! more are lost too. So what is left of a loss *p* is p · P(Bin(n − 1 + k, p) ≥ k), and the least
//! *k* for which that is small enough says the ratio. Between whole numbers what is left is taken to
//! fall evenly in its logarithm, so that the ratio is a steady function of the loss.

/// The windows that are looked at have at most so many symbols: of more, what is needed beyond the
/// loss itself gets small.
const MOST_SOURCES: f64 = 64.0;

/// To mend bursts as well as independent losses takes many repairs for few symbols: for the bursts'
/// sake no more go with the flow than this.
const MOST_FOR_BURSTS: f64 = 0.25;

/// The flow, and what it is to become.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Symbols that leave while one is of use.
    pub sources: f64,
    /// Symbols of the flow that leave while one burst of losses lasts, which are lost together.
    pub in_burst: f64,
    /// The share that may be left.
    pub residual: f64,
    /// No more repairs than this per symbol, whatever is left then.
    pub most: f64,
}

impl Steady {
    /// Repairs per symbol, where the share `rate` of all packets is lost.
    pub fn ratio(&self, rate: f64) -> f64 {
        // What is lost together counts once, and so does what brings it back.
        let in_bursts = self.needed(self.sources / self.in_burst.max(1.0), rate);
        self.needed(self.sources, rate).max(in_bursts.min(MOST_FOR_BURSTS))
    }

    /// The same in a window of so many symbols, each of which is lost by itself.
    fn needed(&self, sources: f64, rate: f64) -> f64 {
        let sources = sources.clamp(1.0, MOST_SOURCES) as u32;
        let most = (self.most * f64::from(sources)).ceil() as u32;
        let mut before = rate;
        if before <= self.residual {
            return 0.0;
        }
        for repairs in 1..=most {
            let now = left(sources, repairs, rate);
            if now <= self.residual {
                let part = (before / self.residual).ln() / (before / now).ln();
                let repairs = f64::from(repairs - 1) + part;
                return (repairs / f64::from(sources)).min(self.most);
            }
            before = now;
        }
        self.most
    }
}

/// The share that stays lost of `sources` with as many `repairs`.
fn left(sources: u32, repairs: u32, rate: f64) -> f64 {
    let others = sources - 1 + repairs;
    // P(Bin < repairs), term by term.
    let mut term = (1.0 - rate).powi(others as i32);
    let mut fewer = 0.0;
    for lost in 0..repairs {
        fewer += term;
        term *= f64::from(others - lost) / f64::from(lost + 1) * rate / (1.0 - rate);
    }
    rate * (1.0 - fewer).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Steady = Steady { sources: 12.5, in_burst: 1.0, residual: 0.0025, most: 1.5 };

    /// Every way in which packets can be lost: the first symbol, the others, the repairs.
    fn enumerated(sources: u32, repairs: u32, rate: f64) -> f64 {
        let packets = sources + repairs;
        let stays = |lost: &u32| lost & 1 == 1 && lost.count_ones() > repairs;
        let chance = |lost: u32| {
            let lost = lost.count_ones() as i32;
            rate.powi(lost) * (1.0 - rate).powi(packets as i32 - lost)
        };
        (0..1 << packets).filter(stays).map(chance).sum()
    }

    #[test]
    fn what_is_left_is_what_all_ways_to_lose_come_to() {
        for rate in [0.003, 0.02, 0.06, 0.15, 0.4, 0.7] {
            for (sources, repairs) in [(1, 1), (1, 3), (2, 1), (5, 4), (8, 2), (12, 3), (10, 6)] {
                let (left, all) =
                    (left(sources, repairs, rate), enumerated(sources, repairs, rate));
                assert!(
                    (left - all).abs() < 1e-6 * all + 1e-15,
                    "{sources} {repairs} {rate}: {left} {all}"
                );
            }
        }
    }

    #[test]
    fn it_is_the_least_that_suffices() {
        for rate in [0.01, 0.02, 0.06, 0.15, 0.3] {
            let repairs = CALL.ratio(rate) * 12.0;
            let (less, enough) = (repairs.floor() as u32, repairs.ceil() as u32);
            assert!(enumerated(12, enough, rate) <= CALL.residual, "{rate}: {repairs}");
            assert!(enumerated(12, less, rate) > CALL.residual, "{rate}: {repairs}");
        }
    }

    #[test]
    fn it_rises_with_the_loss_up_to_the_most_and_falls_with_the_time() {
        let ratios: Vec<f64> = (0..700).map(|step| CALL.ratio(f64::from(step) / 1000.0)).collect();
        assert!(ratios.is_sorted(), "{ratios:?}");
        assert!(ratios.windows(2).all(|two| two[1] - two[0] < 0.06 || two[0] < 0.02), "{ratios:?}");
        assert_eq!((ratios[2], ratios[699]), (0.0, 1.5));
        let longer = Steady { sources: 50.0, ..CALL };
        assert!(longer.ratio(0.06) < 0.7 * CALL.ratio(0.06));
        let bursts = Steady { in_burst: 4.0, ..CALL };
        assert!(bursts.ratio(0.02) > 1.5 * CALL.ratio(0.02));
        assert_eq!(bursts.ratio(0.15), CALL.ratio(0.15));
    }
}
