//! Repairs for a paced flow of symbols, so that hardly any stays missing.
//!
//! Let *n* symbols be sent while the first of them is useful, with *k* repairs spread over them. A
//! lost symbol is not recovered in time if *k* or more of the other *n* − 1 symbols and the *k*
//! repairs are lost too. So the residual of a loss *p* is p · P(Bin(n − 1 + k, p) ≥ k). The least
//! *k* with a small enough residual gives the ratio. Between whole numbers the logarithm of the
//! residual is interpolated, so that the ratio is a continuous function of the loss.

/// Maximum number of symbols in the computed window. In a larger window, the need beyond the loss
/// itself is small.
const MAX_SOURCES: f64 = 64.0;

/// Maximum ratio on account of bursts. Recovery from bursts as good as from independent losses
/// would take many repairs for few symbols.
const MAX_FOR_BURSTS: f64 = 0.25;

/// A paced flow, and its permitted residual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacedFlow {
    /// Number of symbols sent while one is useful.
    pub sources: f64,
    /// Number of symbols of the flow sent during one burst of losses, which are lost together.
    pub in_burst: f64,
    /// Share of symbols that may stay lost.
    pub residual: f64,
    /// Maximum repairs per symbol, whatever the residual.
    pub max: f64,
}

impl PacedFlow {
    /// Returns the repairs per symbol if the share `rate` of all packets is lost.
    pub fn ratio(&self, rate: f64) -> f64 {
        // Symbols lost together count once, and so do repairs.
        let in_bursts = self.needed(self.sources / self.in_burst.max(1.0), rate);
        self.needed(self.sources, rate).max(in_bursts.min(MAX_FOR_BURSTS))
    }

    /// Repairs per symbol in a window of `sources` symbols with independent losses.
    fn needed(&self, sources: f64, rate: f64) -> f64 {
        let sources = sources.clamp(1.0, MAX_SOURCES) as u32;
        let max = (self.max * f64::from(sources)).ceil() as u32;
        if rate <= self.residual {
            return 0.0;
        }
        let found = least(max, rate, self.residual, |repairs| residual_of(sources, repairs, rate));
        let Some((repairs, [before, now])) = found else { return self.max };
        let part = (before / self.residual).ln() / (before / now).ln();
        ((f64::from(repairs - 1) + part) / f64::from(sources)).min(self.max)
    }
}

/// Least number of repairs, up to `max`, that leaves `residual`, and what one less and this number
/// leave. Without repairs, it is `none`. The search by doubling and halving tries few numbers, because
/// the peer's reports choose the rate, and this is computed for every datagram.
fn least(
    max: u32,
    none: f64,
    residual: f64,
    mut of: impl FnMut(u32) -> f64,
) -> Option<(u32, [f64; 2])> {
    let (mut too_few, mut before) = (0, none);
    let mut repairs = max.min(1);
    let mut now = of(repairs);
    while now > residual {
        if repairs == max {
            return None;
        }
        (too_few, before) = (repairs, now);
        repairs = max.min(2 * repairs);
        now = of(repairs);
    }
    while repairs - too_few > 1 {
        let middle = too_few.midpoint(repairs);
        match of(middle) {
            left if left > residual => (too_few, before) = (middle, left),
            left => (repairs, now) = (middle, left),
        }
    }
    Some((repairs, [before, now]))
}

/// Residual of `sources` symbols with `repairs` repairs.
fn residual_of(sources: u32, repairs: u32, rate: f64) -> f64 {
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

    const CALL: PacedFlow = PacedFlow { sources: 12.5, in_burst: 1.0, residual: 0.0025, max: 1.5 };

    /// Residual by enumeration of all losses: of the first symbol, the others, the repairs.
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
    fn the_residual_equals_an_enumeration_of_all_losses() {
        for rate in [0.003, 0.02, 0.06, 0.15, 0.4, 0.7] {
            for (sources, repairs) in [(1, 1), (1, 3), (2, 1), (5, 4), (8, 2), (12, 3), (10, 6)] {
                let (residual, all) =
                    (residual_of(sources, repairs, rate), enumerated(sources, repairs, rate));
                assert!(
                    (residual - all).abs() < 1e-6 * all + 1e-15,
                    "{sources} {repairs} {rate}: {residual} {all}"
                );
            }
        }
    }

    #[test]
    fn the_least_number_is_found_in_few_tries() {
        for (sources, max) in [(1, 2), (12, 18), (50, 38), (64, 96)] {
            for rate in [0.003, 0.02, 0.06, 0.15, 0.3, 0.4, 0.5, 0.7] {
                let of = |repairs| residual_of(sources, repairs, rate);
                let expected = (1..=max).find(|&repairs| of(repairs) <= 0.0025);
                let mut tries = 0;
                let found = least(max, rate, 0.0025, |repairs| {
                    tries += 1;
                    of(repairs)
                });
                assert_eq!(found.map(|(repairs, _)| repairs), expected, "{sources} {rate}");
                assert!(tries <= 14, "{tries}");
                if let Some((repairs, [before, now])) = found {
                    let less = if repairs > 1 { of(repairs - 1) } else { rate };
                    assert_eq!([before, now], [less, of(repairs)]);
                }
            }
        }
    }

    #[test]
    fn the_ratio_is_the_least_that_suffices() {
        for rate in [0.01, 0.02, 0.06, 0.15, 0.3] {
            let repairs = CALL.ratio(rate) * 12.0;
            let (less, enough) = (repairs.floor() as u32, repairs.ceil() as u32);
            assert!(enumerated(12, enough, rate) <= CALL.residual, "{rate}: {repairs}");
            assert!(enumerated(12, less, rate) > CALL.residual, "{rate}: {repairs}");
        }
    }

    #[test]
    fn the_ratio_rises_with_the_loss_to_its_maximum_and_falls_with_the_window() {
        let ratios: Vec<f64> = (0..700).map(|step| CALL.ratio(f64::from(step) / 1000.0)).collect();
        assert!(ratios.is_sorted(), "{ratios:?}");
        assert!(ratios.windows(2).all(|two| two[1] - two[0] < 0.06 || two[0] < 0.02), "{ratios:?}");
        assert_eq!((ratios[2], ratios[699]), (0.0, 1.5));
        let longer = PacedFlow { sources: 50.0, ..CALL };
        assert!(longer.ratio(0.06) < 0.7 * CALL.ratio(0.06));
        let bursts = PacedFlow { in_burst: 4.0, ..CALL };
        assert!(bursts.ratio(0.02) > 1.5 * CALL.ratio(0.02));
        assert_eq!(bursts.ratio(0.15), CALL.ratio(0.15));
    }
}
