//! Number of repairs for a short train, computed exactly.
//!
//! The distribution of the receiver's deficit is followed packet by packet, together with the state
//! of the loss chain. The probability of a remaining deficit falls with every repair, so that a
//! search by doubling and halving finds the least number of repairs.

use super::Loss;
use super::plan::{BATCHES, Plan, at_once};

/// Maximum number of packets of a train.
pub const MAX_PACKETS: u32 = 48;
/// Maximum number of repairs.
const MAX_REPAIRS: u32 = 192;
/// Bound of the products of one computation, some 0.1 ms.
#[cfg(test)]
pub const MAX_TERMS: u32 = 1 << 16;

/// Result of a computation, and its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exact {
    pub repairs: u32,
    /// Number of products.
    pub terms: u32,
}

/// Returns the least number of repairs that leaves something missing with a probability of at most
/// `may_stay`.
pub fn exact(plan: Plan, loss: Loss, may_stay: f64) -> Exact {
    let mut train = Train::of(plan, loss);
    let mut later = Later::new(loss, train.short.len() - 1);
    let mut terms = train.terms;
    let mut enough = |train: &Train, repairs: u32| {
        train.short_after(later.arrived(repairs - train.repairs)) <= may_stay
    };
    if enough(&train, 0) {
        return Exact { repairs: 0, terms: terms + later.terms };
    }
    let (mut too_few, mut suffices, mut step) = (0, MAX_REPAIRS, 1);
    while suffices - too_few > 1 {
        let repairs = (too_few + step).min(too_few.midpoint(suffices));
        let mut tried = train.clone();
        // One burst may take these repairs with the source symbols; the rest follow in parts.
        while tried.repairs < at_once(repairs, loss) {
            tried.repair();
            tried.repairs += 1;
        }
        terms += tried.terms - train.terms;
        if enough(&tried, repairs) {
            suffices = repairs;
        } else {
            (too_few, train) = (repairs, tried);
        }
        step *= 2;
    }
    Exact { repairs: suffices, terms: terms + later.terms }
}

/// Distribution of the deficit after some packets.
#[derive(Clone)]
struct Train {
    loss: Loss,
    /// Probability of each deficit, after an arrival and after a loss. A deficit that repairs have
    /// filled is dropped, because no source symbol follows that could raise it again.
    short: Vec<[f64; 2]>,
    /// Number of repairs that are sent at once.
    repairs: u32,
    terms: u32,
}

impl Train {
    fn of(plan: Plan, loss: Loss) -> Self {
        let mut short = vec![[0.0; 2]; (plan.deficit + plan.sources) as usize + 1];
        short[plan.deficit as usize] = [1.0 - loss.rate, loss.rate];
        let mut train = Self { loss, short, repairs: 0, terms: 0 };
        (0..plan.sources).for_each(|_| train.source());
        (0..plan.repairs).for_each(|_| train.repair());
        train
    }

    /// Probabilities of an arrival and of a loss, from those after the previous packet.
    fn next(&mut self, [arrived, lost]: [f64; 2]) -> [f64; 2] {
        self.terms += 4;
        let (after_arrival, after_loss) = (self.loss.after_arrival(), self.loss.after_loss());
        [
            arrived * (1.0 - after_arrival) + lost * (1.0 - after_loss),
            arrived * after_arrival + lost * after_loss,
        ]
    }

    /// Adds a source symbol, whose loss raises the deficit.
    fn source(&mut self) {
        for deficit in (0..self.short.len() - 1).rev() {
            let [arrives, is_lost] = self.next(self.short[deficit]);
            self.short[deficit] = [arrives, 0.0];
            self.short[deficit + 1][1] = is_lost;
        }
    }

    /// Adds a repair, whose arrival lowers the deficit.
    fn repair(&mut self) {
        self.short[0] = [0.0; 2];
        for deficit in 1..self.short.len() {
            let [arrives, is_lost] = self.next(self.short[deficit]);
            self.short[deficit - 1][0] = arrives;
            self.short[deficit] = [0.0, is_lost];
        }
    }

    /// Probability of a deficit after later repairs, of which these numbers arrive.
    fn short_after(&self, arrived: Vec<f64>) -> f64 {
        let (mut short, mut stays) = (0.0, 0.0);
        let mut arrived = arrived.into_iter();
        for states in self.short.iter().skip(1) {
            stays += arrived.next().unwrap_or(0.0);
            short += states.iter().sum::<f64>() * stays;
        }
        short
    }
}

/// Repairs that are sent later, in [`BATCHES`] that no burst spans.
struct Later {
    loss: Loss,
    /// Number of different arrivals that matter.
    counts: usize,
    /// Probability of each number of arrivals among the packets of one batch, after an arrival and
    /// after a loss …
    batch: Vec<[f64; 2]>,
    /// … and their sums for each length of the batch so far.
    batches: Vec<Vec<f64>>,
    terms: u32,
}

impl Later {
    fn new(loss: Loss, counts: usize) -> Self {
        let batch = vec![[1.0 - loss.rate, loss.rate]];
        Self { loss, counts, batch, batches: Vec::new(), terms: 0 }
    }

    /// Distribution of the number of arrivals among `repairs`, up to what matters.
    fn arrived(&mut self, repairs: u32) -> Vec<f64> {
        let (mut arrived, mut left) = (vec![1.0], repairs);
        for batches in (1..=BATCHES).rev() {
            let batch = left.div_ceil(batches);
            self.extend(batch);
            arrived = self.convolve(&arrived, batch);
            left -= batch;
        }
        arrived
    }

    /// Computes batches up to this many repairs.
    fn extend(&mut self, repairs: u32) {
        let lose = [self.loss.after_arrival(), self.loss.after_loss()];
        while self.batches.len() <= repairs as usize {
            self.batches.push(self.batch.iter().map(|states| states.iter().sum()).collect());
            let mut next = vec![[0.0; 2]; (self.batch.len() + 1).min(self.counts)];
            for (count, states) in self.batch.iter().enumerate() {
                for (state, &probability) in states.iter().enumerate() {
                    next[count][1] += probability * lose[state];
                    if let Some(more) = next.get_mut(count + 1) {
                        more[0] += probability * (1.0 - lose[state]);
                    }
                }
            }
            self.terms += 4 * self.batch.len() as u32;
            self.batch = next;
        }
    }

    fn convolve(&mut self, arrived: &[f64], batch: u32) -> Vec<f64> {
        let batch = &self.batches[batch as usize];
        let mut sums = vec![0.0; (arrived.len() + batch.len() - 1).min(self.counts)];
        for (count, x) in arrived.iter().enumerate() {
            let more = batch.iter().take(self.counts - count);
            self.terms += more.len() as u32;
            for (sum, y) in sums[count..].iter_mut().zip(more) {
                *sum += x * y;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// The same by definition: every number of repairs in turn, and every deficit, also below zero.
    fn one_by_one(plan: Plan, loss: Loss, may_stay: f64) -> u32 {
        (0..MAX_REPAIRS)
            .find(|&repairs| short_after(plan, loss, repairs) <= may_stay)
            .unwrap_or(MAX_REPAIRS)
    }

    fn short_after(plan: Plan, loss: Loss, repairs: u32) -> f64 {
        let now = at_once(repairs, loss);
        let at = plan.deficit as usize;
        let sources = deal(loss, plan.sources, start(loss, at), |at, lost| at + usize::from(lost));
        let zero = (plan.repairs + now) as usize;
        let raised = [vec![[0.0; 2]; zero], sources].concat();
        let train = deal(loss, plan.repairs + now, raised, |at, lost| at - usize::from(!lost));
        let (mut arrived, mut left) = (vec![1.0], repairs - now);
        for batches in (1..=BATCHES).rev() {
            let batch = left.div_ceil(batches);
            let of = deal(loss, batch, start(loss, 0), |at, lost| at + usize::from(!lost));
            let mut sums = vec![0.0; arrived.len() + of.len() - 1];
            for (i, x) in arrived.iter().enumerate() {
                for (j, states) in of.iter().enumerate() {
                    sums[i + j] += x * states.iter().sum::<f64>();
                }
            }
            (arrived, left) = (sums, left - batch);
        }
        let short = train.iter().enumerate().skip(zero + 1);
        let stays = |deficit: usize| arrived.iter().take(deficit).sum::<f64>();
        short.map(|(at, states)| states.iter().sum::<f64>() * stays(at - zero)).sum()
    }

    fn start(loss: Loss, at: usize) -> Vec<[f64; 2]> {
        let mut train = vec![[0.0; 2]; at + 1];
        train[at] = [1.0 - loss.rate, loss.rate];
        train
    }

    /// Lets `packets` arrive or be lost, each of which moves a state to another.
    fn deal(
        loss: Loss,
        packets: u32,
        mut train: Vec<[f64; 2]>,
        to: impl Fn(usize, bool) -> usize,
    ) -> Vec<[f64; 2]> {
        let lose = [loss.after_arrival(), loss.after_loss()];
        for _ in 0..packets {
            let mut next = vec![[0.0; 2]; train.len() + 1];
            for (at, states) in train.iter().enumerate() {
                for (state, &probability) in states.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                    next[to(at, true)][1] += probability * lose[state];
                    next[to(at, false)][0] += probability * (1.0 - lose[state]);
                }
            }
            train = next;
        }
        train
    }

    #[test]
    fn the_search_finds_the_least_number_of_repairs() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for _ in 0..60 {
            let deficit = rng.random_range(0..6);
            let sources = rng.random_range(u32::from(deficit == 0)..20);
            let plan = Plan { deficit, sources, repairs: rng.random_range(0..8) };
            let loss =
                Loss { rate: rng.random_range(0.0..0.3), correlation: rng.random_range(0.0..0.8) };
            let may_stay = if rng.random() { 0.02 } else { 0.005 };
            let found = exact(plan, loss, may_stay).repairs;
            assert_eq!(found, one_by_one(plan, loss, may_stay), "{plan:?} {loss:?} {may_stay}");
        }
    }

    #[test]
    fn no_plan_costs_more_than_the_bound() {
        let mut max = 0;
        for correlation in [0.0, 0.1, 0.24, 0.25, 0.5, 0.75, 0.9, 0.98] {
            for rate in [1e-6, 0.01, 0.1, 0.3, 0.5] {
                for deficit in [0, 1, 24, 48] {
                    for repairs in [0, 1, 12, 24] {
                        let Some(sources) = MAX_PACKETS.checked_sub(deficit + repairs) else {
                            continue;
                        };
                        let plan = Plan { deficit, sources, repairs };
                        let found = exact(plan, Loss { rate, correlation }, 0.005);
                        assert!(found.repairs + repairs >= deficit, "{plan:?}: {found:?}");
                        max = max.max(found.terms);
                    }
                }
            }
        }
        assert!((MAX_TERMS / 2..=MAX_TERMS).contains(&max), "{max} of {MAX_TERMS}");
    }
}
