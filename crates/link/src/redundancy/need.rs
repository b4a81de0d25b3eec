//! Number of repairs that makes a remaining loss unlikely.
//!
//! The receiver's deficit is a sum: known deficit + losses among the source symbols in flight −
//! arrivals among the repairs in flight. Repairs are added until the probability of a positive sum
//! is at most 2 %. For short trains the distribution is computed [exactly](exact), state by state of
//! the loss chain; for long ones it is taken to be normal.
//!
//! The peer's reports choose the inputs. A hostile peer can choose new ones each time, so that no
//! cached result serves. Every exact computation is paid with [time](TIME_PER_TERM). Until enough of
//! it has passed, short trains are taken to be normal too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Loss;
use super::exact::{self, Exact, exact};
use super::plan::Plan;

/// Probability with which something may stay missing, and its normal deviate.
const RESIDUAL: (f64, f64) = (0.02, 2.05);
/// Maximum number of packets of a request. The answer waits for a request, and one more repair of
/// it costs little.
const REQUEST_PACKETS: u32 = 2;
/// Probability for a request, which is smaller because it adds to that of the answer.
const REQUEST_RESIDUAL: f64 = 0.005;
/// Minimum mean number of bursts for which the expansion holds.
const MIN_BURSTS: f64 = 0.5;
/// Maximum number of repairs in one plan.
const MAX_REPAIRS: u32 = 512;
/// Maximum number of cached results: 4,096 × 40 bytes = 160 KiB.
const MAX_CACHED: usize = 4096;
/// Time that has to pass for each term of an exact computation: a million terms, some 1 ms, in a
/// second …
const TIME_PER_TERM: Duration = Duration::from_micros(1);
/// … and maximum time that may be used ahead.
const MAX_AHEAD: Duration = Duration::from_secs(2);

/// Computation of repairs, with a cache of exact results.
#[derive(Debug, Default)]
pub struct Need {
    exact: BTreeMap<(Plan, i32, i32), u32>,
    /// Time for which the evaluated terms are paid.
    paid_until: Duration,
}

impl Need {
    /// Returns the number of further repairs; [`at_once`](super::at_once) says how many of them are
    /// sent now.
    pub fn repairs(&mut self, plan: Plan, loss: Loss, now: Duration) -> u32 {
        if plan.deficit == 0 && plan.sources == 0 {
            return 0;
        }
        let packets = plan.deficit.saturating_add(plan.sources).saturating_add(plan.repairs);
        if packets > exact::MAX_PACKETS || loss.rate > 0.5 {
            return normal(plan, loss);
        }
        // A grid of 3 % steps is finer than the estimate.
        let rate_step = (loss.rate.max(1e-6).ln() * 32.0).round() as i32;
        let correlation_step = (loss.correlation * 32.0).round() as i32;
        let key = (plan, rate_step, correlation_step);
        if let Some(&repairs) = self.exact.get(&key) {
            return repairs;
        }
        if self.paid_until > now + MAX_AHEAD {
            return normal(plan, loss);
        }
        let loss = Loss {
            rate: (f64::from(rate_step) / 32.0).exp(),
            correlation: f64::from(correlation_step) / 32.0,
        };
        let Exact { repairs, terms } = exact(plan, loss, residual(plan));
        self.paid_until = self.paid_until.max(now) + TIME_PER_TERM * terms;
        if self.exact.len() >= MAX_CACHED {
            self.exact.clear();
        }
        self.exact.insert(key, repairs);
        repairs
    }
}

/// Probability with which something may stay missing.
fn residual(plan: Plan) -> f64 {
    let few = plan.deficit.saturating_add(plan.sources) <= REQUEST_PACKETS;
    if few { REQUEST_RESIDUAL } else { RESIDUAL.0 }
}

/// Returns the least number of repairs, if the deficit is normally distributed.
fn normal(plan: Plan, loss: Loss) -> u32 {
    if is_enough(plan, loss, 0) {
        return 0;
    }
    // The bound of the deficit is a concave function of the repairs. Once it falls, it never rises.
    let (mut too_few, mut suffices) = (0, MAX_REPAIRS);
    while suffices - too_few > 1 {
        let middle = too_few.midpoint(suffices);
        *(if is_enough(plan, loss, middle) { &mut suffices } else { &mut too_few }) = middle;
    }
    suffices
}

/// Returns `true` if no deficit is left after `repairs`, with the probability of [`RESIDUAL`].
fn is_enough(plan: Plan, loss: Loss, repairs: u32) -> bool {
    let (p, repairs) = (loss.rate, f64::from(repairs));
    let spread = p * (1.0 - p) * loss.variance_factor();
    let under_way = f64::from(plan.sources) + f64::from(plan.repairs);
    let (burst, z) = (loss.burst_packets(), RESIDUAL.1);
    let short =
        f64::from(plan.deficit) + p * f64::from(plan.sources) - (1.0 - p) * f64::from(plan.repairs);
    let packets = under_way + repairs;
    let sigma = (spread * packets).sqrt();
    short - (1.0 - p) * repairs + skewed(z, p * packets / burst, burst) * sigma <= 0.5
}

/// Normal deviate `z`, corrected for the skewed sum of `bursts` bursts of geometric length. This is
/// the first term of the Cornish-Fisher expansion, with the skewness of a compound Poisson sum.
fn skewed(z: f64, bursts: f64, mean: f64) -> f64 {
    let second = mean * (2.0 * mean - 1.0);
    let third = mean * (6.0 * mean * mean - 6.0 * mean + 1.0);
    let skewness = third / second.powf(1.5) / bursts.max(MIN_BURSTS).sqrt();
    z + (z * z - 1.0) * skewness / 6.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{BATCHES, at_once};
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const NOW: Duration = Duration::from_secs(10);
    const RANDOM: Loss = Loss { rate: 0.06, correlation: 0.0 };

    fn fresh(sources: u32) -> Plan {
        Plan { deficit: 0, sources, repairs: 0 }
    }

    #[test]
    fn repairs_of_one_pass_at_six_per_cent() {
        // Ideal codes need 2 or 3 for 7 packets, 8 or 10 for 70, 31 or 34 for 350, at 95 or 99 %.
        let mut need = Need::default();
        let counts = [1, 7, 40, 70, 350].map(|sources| need.repairs(fresh(sources), RANDOM, NOW));
        assert_eq!(counts, [1, 2, 6, 10, 33]);
    }

    #[test]
    fn no_repairs_without_loss_or_without_missing_symbols() {
        let mut need = Need::default();
        let clean = Loss { rate: 1e-6, correlation: 0.0 };
        assert_eq!(need.repairs(fresh(40), clean, NOW), 0);
        assert_eq!(need.repairs(fresh(400), clean, NOW), 0);
        assert_eq!(need.repairs(Plan { deficit: 0, sources: 0, repairs: 3 }, RANDOM, NOW), 0);
        assert_eq!(need.repairs(Plan { deficit: 0, sources: 8, repairs: 3 }, RANDOM, NOW), 0);
        assert_eq!(need.repairs(Plan { deficit: 2, sources: 0, repairs: 0 }, clean, NOW), 2);
    }

    #[test]
    fn the_exact_count_keeps_the_residual() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for (loss, sources) in [
            (RANDOM, 8),
            (Loss { rate: 0.06, correlation: 0.73 }, 8),
            (Loss { rate: 0.2, correlation: 0.0 }, 20),
            (Loss { rate: 0.4, correlation: 0.83 }, 4),
        ] {
            let repairs = Need::default().repairs(fresh(sources), loss, NOW);
            let short_with = |repairs: u32, rng: &mut ChaCha8Rng| {
                let mut draw = |packets: u32| {
                    let mut bad = rng.random_bool(loss.rate);
                    let mut lost = Vec::new();
                    for _ in 0..packets {
                        let p = if bad { loss.after_loss() } else { loss.after_arrival() };
                        bad = rng.random_bool(p);
                        lost.push(bad);
                    }
                    lost
                };
                let now = at_once(repairs, loss);
                let train = draw(sources + now);
                let (first, with) = train.split_at(sources as usize);
                let (mut later, mut left) = (Vec::new(), repairs - now);
                for batches in (1..=BATCHES).rev() {
                    later.extend(draw(left.div_ceil(batches)));
                    left -= left.div_ceil(batches);
                }
                let arrived = with.iter().chain(&later).filter(|lost| !**lost).count();
                first.iter().filter(|lost| **lost).count() > arrived
            };
            let share = |repairs, rng: &mut ChaCha8Rng| {
                (0..20_000).filter(|_| short_with(repairs, rng)).count() as f64 / 20_000.0
            };
            let (enough, fewer) = (share(repairs, &mut rng), share(repairs - 1, &mut rng));
            let may = residual(fresh(sources));
            assert!(
                enough < 1.3 * may && fewer > 0.6 * may,
                "{loss:?}: {repairs} leave {enough}, one less {fewer}"
            );
        }
    }

    #[test]
    fn no_repair_follows_at_once_if_losses_come_in_bursts() {
        let bursts = Loss { rate: 0.06, correlation: 0.73 };
        assert_eq!([1, 2, 7].map(|repairs| at_once(repairs, RANDOM)), [1, 1, 4]);
        assert_eq!(at_once(7, bursts), 0);
        let between = Loss { correlation: 0.12, ..RANDOM };
        assert_eq!(at_once(8, between), 2);
    }

    #[test]
    fn a_request_has_a_smaller_residual_than_the_answer() {
        let mut need = Need::default();
        let fifth = Loss { rate: 0.2, correlation: 0.0 };
        assert_eq!(need.repairs(fresh(1), fifth, NOW), 3);
        assert_eq!(need.repairs(fresh(1), Loss { rate: 0.004, ..fifth }, NOW), 0);
    }

    /// Reports of a hostile peer: new counts and another loss in each.
    fn hostile(rng: &mut ChaCha8Rng) -> (Plan, Loss) {
        let deficit = rng.random_range(0..24);
        let sources = rng.random_range(u32::from(deficit == 0)..24);
        let (rate, correlation) = (rng.random_range(0.3..0.5), rng.random_range(0.0..0.98));
        (Plan { deficit, sources, repairs: 0 }, Loss { rate, correlation })
    }

    #[test]
    fn reports_cannot_buy_more_terms_than_time_has_paid() {
        let (mut need, mut rng) = (Need::default(), ChaCha8Rng::seed_from_u64(3));
        let (reports, lasts) = (20_000, Duration::from_secs(10));
        for report in 0..reports {
            let (plan, loss) = hostile(&mut rng);
            need.repairs(plan, loss, NOW + lasts * report / reports);
        }
        let most = lasts + MAX_AHEAD + TIME_PER_TERM * exact::MAX_TERMS;
        assert!(need.paid_until > NOW + lasts + MAX_AHEAD, "they ask for more than that");
        assert!(need.paid_until <= NOW + most, "{:?}", need.paid_until);
        // Short trains are computed exactly again as soon as the time has passed.
        let (short, later) = (fresh(8), need.paid_until);
        let exactly = Need::default().repairs(short, RANDOM, NOW);
        assert_ne!(need.repairs(short, RANDOM, NOW + lasts), exactly);
        assert_eq!(need.repairs(short, RANDOM, later), exactly);
    }

    #[test]
    fn the_normal_number_is_the_least_that_suffices() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..500 {
            let (plan, loss) = hostile(&mut rng);
            let plan = Plan { repairs: rng.random_range(0..400), ..plan };
            let wide = Plan { sources: rng.random_range(1..512), ..plan };
            for plan in [plan, wide] {
                let loss = Loss { rate: loss.rate * rng.random_range(0.01..1.4), ..loss };
                let least = (0..MAX_REPAIRS).find(|&it| is_enough(plan, loss, it));
                assert_eq!(normal(plan, loss), least.unwrap_or(MAX_REPAIRS), "{plan:?} {loss:?}");
            }
        }
    }
}
