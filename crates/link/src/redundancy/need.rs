//! Number of repairs that makes a remaining loss unlikely.
//!
//! What is short at the receiver is a sum: known deficit + losses among the sources in flight −
//! arrivals among the repairs in flight. Repairs are added until that sum is above zero with a
//! probability of at most 2 %. For short trains the
//! distribution is computed exactly, state by state of the loss chain; for long ones it is normal.

use std::collections::BTreeMap;

use super::Loss;

/// The probability with which something may stay missing, and its normal deviate.
const RESIDUAL: (f64, f64) = (0.02, 2.05);
/// So few packets are a request: the answer waits for it, and one more repair of it costs little.
const REQUEST_PACKETS: u32 = 2;
/// Allowed remaining loss of a request, which is smaller because it adds to that of the answer.
const REQUEST_RESIDUAL: f64 = 0.005;
/// Below so many bursts on average the expansion does not hold.
const LEAST_BURSTS: f64 = 0.5;
/// Trains up to so many packets are computed exactly.
const EXACT_PACKETS: u32 = 48;
/// Fraction rule of the immediate repairs: a part counts as a whole one from 1 − this on.
const WHOLE_FROM: f64 = 0.75;
/// The second half of a flush is sent in so many parts.
pub const BATCHES: u32 = 4;
/// One plan never asks for more repairs at once.
const MOST_REPAIRS: u32 = 512;
/// Bound on the exact computation: beyond this number of repairs nothing is computed exactly.
const MOST_EXACT: u32 = 192;
/// Exact results kept: 40 bytes each, 160 KiB.
const MAX_KEPT: usize = 4096;

/// Packets in flight for a range of symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Plan {
    /// Symbols known to be missing, less the equations that the receiver holds for them.
    pub deficit: u32,
    /// Sources whose fate is unknown.
    pub sources: u32,
    /// Repairs whose fate is unknown.
    pub repairs: u32,
}

/// Computes, and remembers what it computed.
#[derive(Debug, Default)]
pub struct Need {
    exact: BTreeMap<(Plan, i32, i32), u32>,
}

impl Need {
    /// Number of further repairs: [`at_once`] of them now, the rest later.
    pub fn repairs(&mut self, plan: Plan, loss: Loss) -> u32 {
        if plan.deficit == 0 && plan.sources == 0 {
            return 0;
        }
        let packets = plan.deficit.saturating_add(plan.sources).saturating_add(plan.repairs);
        if packets > EXACT_PACKETS || loss.rate > 0.5 {
            return normal(plan, loss);
        }
        // On a grid of 3 % steps nothing changes that the estimate could know.
        let rate_step = (loss.rate.max(1e-6).ln() * 32.0).round() as i32;
        let correlation_step = (loss.correlation * 32.0).round() as i32;
        let key = (plan, rate_step, correlation_step);
        if let Some(&repairs) = self.exact.get(&key) {
            return repairs;
        }
        let loss = Loss {
            rate: (f64::from(rate_step) / 32.0).exp(),
            correlation: f64::from(correlation_step) / 32.0,
        };
        let repairs = exact(plan, loss);
        if self.exact.len() >= MAX_KEPT {
            self.exact.clear();
        }
        self.exact.insert(key, repairs);
        repairs
    }
}

/// The probability that may stay.
fn residual(plan: Plan) -> f64 {
    let few = plan.deficit.saturating_add(plan.sources) <= REQUEST_PACKETS;
    if few { REQUEST_RESIDUAL } else { RESIDUAL.0 }
}

/// Number of `repairs` that leave right after the sources. If losses are independent it is half, so
/// that most is repaired without waiting, and the only one of them. If a burst that takes sources
/// would take those as well, it is none.
pub fn at_once(repairs: u32, loss: Loss) -> u32 {
    let apart = 1.0 - loss.burstiness();
    (f64::from(repairs) * 0.5 * apart + WHOLE_FROM) as u32
}

fn normal(plan: Plan, loss: Loss) -> u32 {
    let p = loss.rate;
    let spread = p * (1.0 - p) * loss.variance_factor();
    let under_way = f64::from(plan.sources) + f64::from(plan.repairs);
    let (burst, z) = (loss.burst_packets(), RESIDUAL.1);
    let short =
        f64::from(plan.deficit) + p * f64::from(plan.sources) - (1.0 - p) * f64::from(plan.repairs);
    let enough = |repairs: u32| {
        let packets = under_way + f64::from(repairs);
        let sigma = (spread * packets).sqrt();
        short - (1.0 - p) * f64::from(repairs) + skewed(z, p * packets / burst, burst) * sigma
            <= 0.5
    };
    (0..MOST_REPAIRS).find(|&repairs| enough(repairs)).unwrap_or(MOST_REPAIRS)
}

/// The normal deviate `z` as it is for a sum of so many bursts of geometric length, which is skewed: the
/// first term of the Cornish-Fisher expansion, with the skewness of a compound Poisson sum.
fn skewed(z: f64, bursts: f64, mean: f64) -> f64 {
    let second = mean * (2.0 * mean - 1.0);
    let third = mean * (6.0 * mean * mean - 6.0 * mean + 1.0);
    let skewness = third / second.powf(1.5) / bursts.max(LEAST_BURSTS).sqrt();
    z + (z * z - 1.0) * skewness / 6.0
}

fn exact(plan: Plan, loss: Loss) -> u32 {
    let mut train = Walk::start(plan, loss);
    for _ in 0..plan.sources {
        train.source();
    }
    for _ in 0..plan.repairs {
        train.repair();
    }
    // Those at once may fall to one burst with the sources; the rest follow in parts.
    let mut repairs = 0u32;
    let may_stay = residual(plan);
    let mut now = 0;
    while train.short_after(repairs - now) > may_stay && repairs < MOST_EXACT {
        repairs += 1;
        if at_once(repairs, loss) > now {
            now += 1;
            train.repair();
        }
    }
    repairs
}

/// The distribution of what is short, with the state of the loss chain.
struct Walk {
    loss: Loss,
    /// Probability of being short by `index − offset`, after an arrival and after a loss.
    short: Vec<[f64; 2]>,
    offset: usize,
}

impl Walk {
    fn start(plan: Plan, loss: Loss) -> Self {
        let offset = (plan.repairs + MOST_EXACT) as usize;
        let mut short = vec![[0.0; 2]; offset + (plan.deficit + plan.sources) as usize + 1];
        short[offset + plan.deficit as usize] = [1.0 - loss.rate, loss.rate];
        Self { loss, short, offset }
    }

    /// One more source: a loss makes one more short.
    fn source(&mut self) {
        self.step(|from, lost| from + usize::from(lost));
    }

    /// One more repair: an arrival makes one less short.
    fn repair(&mut self) {
        self.step(|from, lost| from - usize::from(!lost));
    }

    fn step(&mut self, to: impl Fn(usize, bool) -> usize) {
        let mut next = vec![[0.0; 2]; self.short.len()];
        let lose = [self.loss.after_arrival(), self.loss.after_loss()];
        for (from, states) in self.short.iter().enumerate() {
            for (state, &probability) in states.iter().enumerate() {
                if probability > 0.0 {
                    next[to(from, true)][1] += probability * lose[state];
                    next[to(from, false)][0] += probability * (1.0 - lose[state]);
                }
            }
        }
        self.short = next;
    }

    /// The probability of still being short once `later` more repairs have been sent later, in
    /// [`BATCHES`] that no burst spans.
    fn short_after(&self, later: u32) -> f64 {
        let mut arrived = vec![1.0];
        let mut left = later;
        for batches in (1..=BATCHES).rev() {
            let batch = left.div_ceil(batches);
            arrived = convolve(&arrived, &arrivals(batch, self.loss));
            left -= batch;
        }
        let mut short = 0.0;
        for (index, states) in self.short.iter().enumerate().skip(self.offset + 1) {
            let stays: f64 = arrived.iter().take(index - self.offset).sum();
            short += states.iter().sum::<f64>() * stays;
        }
        short
    }
}

/// Number of `repairs` in one train that arrive.
fn arrivals(repairs: u32, loss: Loss) -> Vec<f64> {
    let mut train = vec![[0.0; 2]; repairs as usize + 1];
    train[0] = [1.0 - loss.rate, loss.rate];
    let lose = [loss.after_arrival(), loss.after_loss()];
    for _ in 0..repairs {
        let mut next = vec![[0.0; 2]; train.len()];
        for (count, states) in train.iter().enumerate() {
            for (state, &probability) in states.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                next[count][1] += probability * lose[state];
                next[count + 1][0] += probability * (1.0 - lose[state]);
            }
        }
        train = next;
    }
    train.iter().map(|states| states.iter().sum()).collect()
}

fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; a.len() + b.len() - 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            sums[i + j] += x * y;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const RANDOM: Loss = Loss { rate: 0.06, correlation: 0.0 };

    fn fresh(sources: u32) -> Plan {
        Plan { deficit: 0, sources, repairs: 0 }
    }

    #[test]
    fn what_one_pass_takes_at_six_per_cent() {
        // Ideal codes take 2 or 3 for 7 packets, 8 or 10 for 70, 31 or 34 for 350, at 95 or 99 %.
        let mut need = Need::default();
        let counts = [1, 7, 40, 70, 350].map(|sources| need.repairs(fresh(sources), RANDOM));
        assert_eq!(counts, [1, 2, 6, 10, 33]);
    }

    #[test]
    fn nothing_is_added_where_nothing_is_lost_or_nothing_is_missing() {
        let mut need = Need::default();
        let clean = Loss { rate: 1e-6, correlation: 0.0 };
        assert_eq!(need.repairs(fresh(40), clean), 0);
        assert_eq!(need.repairs(fresh(400), clean), 0);
        assert_eq!(need.repairs(Plan { deficit: 0, sources: 0, repairs: 3 }, RANDOM), 0);
        assert_eq!(need.repairs(Plan { deficit: 0, sources: 8, repairs: 3 }, RANDOM), 0);
        assert_eq!(need.repairs(Plan { deficit: 2, sources: 0, repairs: 0 }, clean), 2);
    }

    #[test]
    fn the_exact_count_leaves_as_many_short_as_it_may() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for (loss, sources) in [
            (RANDOM, 8),
            (Loss { rate: 0.06, correlation: 0.73 }, 8),
            (Loss { rate: 0.2, correlation: 0.0 }, 20),
            (Loss { rate: 0.4, correlation: 0.83 }, 4),
        ] {
            let repairs = Need::default().repairs(fresh(sources), loss);
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
    fn where_losses_come_in_bursts_no_repair_leaves_right_behind_the_sources() {
        let bursts = Loss { rate: 0.06, correlation: 0.73 };
        assert_eq!([1, 2, 7].map(|repairs| at_once(repairs, RANDOM)), [1, 1, 4]);
        assert_eq!(at_once(7, bursts), 0);
        let between = Loss { correlation: 0.12, ..RANDOM };
        assert_eq!(at_once(8, between), 2);
    }

    #[test]
    fn a_request_is_missing_more_rarely_than_the_answer() {
        let mut need = Need::default();
        let fifth = Loss { rate: 0.2, correlation: 0.0 };
        assert_eq!(need.repairs(fresh(1), fifth), 3);
        assert_eq!(need.repairs(fresh(1), Loss { rate: 0.004, ..fifth }), 0);
    }
}
