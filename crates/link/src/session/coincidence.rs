//! Paths that lose at the same times, because they share a beam, an antenna or a network: a repair on the
//! other path is then lost with its sources.

use std::time::Duration;

use crate::wire::header::MAX_PATHS;

/// Interval in which the losses of a path are counted.
const SLOT: Duration = Duration::from_millis(100);
/// Intervals whose outcomes are waited for: 6.4 s.
const SLOTS: usize = 64;
/// Minimum number of lost packets in a dark interval; they are at least three quarters of those sent.
const MIN_LOST: u8 = 3;
/// Maximum distance in intervals at which two dark times begin together, because the delays of paths
/// differ.
const TOGETHER_SLOTS: u64 = 5;
/// Minimum number of dark times in common from which two paths are correlated …
const MIN_COMMON: f64 = 4.5;
/// … and their share of the dark times of the path that has fewer of them, less that by chance …
const CORRELATED_EXCESS: f64 = 0.4;
/// … until it falls below this.
const INDEPENDENT_EXCESS: f64 = 0.15;
/// Standard deviations by which those in common then exceed chance.
const MIN_DEVIATIONS: f64 = 3.0;
/// Share by chance from which two paths are never correlated.
const MAX_CHANCE: f64 = 0.3;
/// Number of intervals after which one counts for 1/e: 5 min.
const MEMORY_SLOTS: f64 = 3000.0;
/// The same for dark times.
const MEMORY_TIMES: f64 = 64.0;
/// Number of paths and of pairs of them.
const PATHS: usize = MAX_PATHS as usize;
const PAIRS: usize = PATHS * (PATHS - 1) / 2;

/// The losses of all paths over time.
#[derive(Debug, Clone, Default)]
pub struct Coincidence {
    /// The oldest interval that is waited for.
    oldest: u64,
    paths: [Seen; PATHS],
    pairs: [Pair; PAIRS],
}

/// Dark times of a path.
#[derive(Debug, Clone)]
struct Seen {
    /// Judged and lost packets in each interval.
    slots: [(u8, u8); SLOTS],
    /// The last interval with packets was dark.
    is_dark: bool,
    /// Interval in which the last dark time began.
    began: Option<u64>,
    /// Share of the time soon after such a beginning, and the number of intervals that it is of.
    dark_share: f64,
    intervals: f64,
}

/// Dark times of two paths, and those of both.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    each: [f64; 2],
    common: f64,
    is_correlated: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            slots: [(0, 0); SLOTS],
            is_dark: false,
            began: None,
            dark_share: 0.0,
            intervals: 0.0,
        }
    }
}

fn slot_of(at: Duration) -> u64 {
    (at.as_millis() / SLOT.as_millis()) as u64
}

/// Index of the pair of two different paths.
fn pair_of(a: usize, b: usize) -> Option<usize> {
    let (low, high) = (a.min(b), a.max(b));
    (low < high && high < PATHS).then(|| high * (high - 1) / 2 + low)
}

impl Coincidence {
    /// Notes the outcome of a packet on `path` that passed the aircraft at this time.
    pub fn note(&mut self, path: u8, lost: bool, at: Duration) {
        let number = slot_of(at);
        let Some(seen) = self.paths.get_mut(usize::from(path)) else { return };
        if (self.oldest..self.oldest + SLOTS as u64).contains(&number) {
            let (judged, lost_here) = &mut seen.slots[number as usize % SLOTS];
            if *judged < u8::MAX {
                (*judged, *lost_here) = (*judged + 1, *lost_here + u8::from(lost));
            }
        }
    }

    /// Notes that `path` was dark at this time, because it has become silent.
    pub fn silent(&mut self, path: u8, at: Duration) {
        let number = slot_of(at);
        let is_open = (self.oldest..self.oldest + SLOTS as u64).contains(&number);
        if let Some(seen) = self.paths.get_mut(usize::from(path)).filter(|_| is_open) {
            seen.slots[number as usize % SLOTS] = (MIN_LOST, MIN_LOST);
        }
    }

    /// Judges the intervals whose outcomes are known by `now`. Calls `changed` for two paths whose
    /// losses have become correlated or independent.
    pub fn settle(&mut self, now: Duration, mut changed: impl FnMut([usize; 2], bool)) {
        let passed = (slot_of(now) + 1).saturating_sub(self.oldest + SLOTS as u64);
        // After a long pause, the others are empty.
        for _ in 0..passed.min(SLOTS as u64) {
            let at = self.oldest;
            self.oldest += 1;
            let begins: [bool; PATHS] = std::array::from_fn(|path| self.paths[path].settle(at));
            for path in (0..PATHS).filter(|path| begins[*path]) {
                self.begins(path, at, &mut changed);
            }
        }
        self.oldest += passed.saturating_sub(SLOTS as u64);
    }

    /// Compares a dark time of `path` that begins in the interval `at` with those of other paths.
    fn begins(&mut self, path: usize, at: u64, changed: &mut impl FnMut([usize; 2], bool)) {
        for other in (0..PATHS).filter(|other| *other != path) {
            let (Some(pair), Some(began)) = (pair_of(path, other), self.paths[other].began) else {
                continue;
            };
            // If both begin in one interval, only the first of them is in common.
            let together = at - began <= TOGETHER_SLOTS && (began < at || path < other);
            let dark_shares =
                [path.min(other), path.max(other)].map(|path| self.paths[path].dark_share);
            let pair = &mut self.pairs[pair];
            let was = pair.is_correlated;
            pair.add(usize::from(path > other), together);
            pair.is_correlated = pair.seems_correlated(dark_shares);
            if pair.is_correlated != was {
                changed([path.min(other), path.max(other)], !was);
            }
        }
    }

    pub fn is_correlated(&self, a: usize, b: usize) -> bool {
        pair_of(a, b).is_some_and(|at| self.pairs[at].is_correlated)
    }
}

impl Seen {
    /// Judges the interval `at`, and empties it. Returns `true` if a dark time begins in it.
    fn settle(&mut self, at: u64) -> bool {
        let (judged, lost) = std::mem::take(&mut self.slots[at as usize % SLOTS]);
        let was_dark = self.is_dark;
        if judged > 0 {
            self.is_dark = lost >= MIN_LOST && 4 * u16::from(lost) >= 3 * u16::from(judged);
        }
        let begins = self.is_dark && !was_dark;
        if begins {
            self.began = Some(at);
        }
        let is_soon = self.began.is_some_and(|began| at - began <= TOGETHER_SLOTS);
        self.intervals = (self.intervals + 1.0).min(MEMORY_SLOTS);
        self.dark_share += (f64::from(u8::from(is_soon)) - self.dark_share) / self.intervals;
        begins
    }
}

impl Pair {
    /// Adds a dark time of one of the paths.
    fn add(&mut self, of: usize, in_common: bool) {
        let fade = 1.0 - 1.0 / MEMORY_TIMES;
        self.each[of] = self.each[of] * fade + 1.0;
        self.common = self.common * fade.sqrt() + f64::from(u8::from(in_common));
    }

    fn seems_correlated(&self, dark_shares: [f64; 2]) -> bool {
        let fewer = usize::from(self.each[1] < self.each[0]);
        // The other path's dark time may have begun before or may begin after.
        let by_chance = 2.0 * dark_shares[1 - fewer];
        let times = self.each[fewer].max(1.0);
        let (expected, excess) = (times * by_chance, self.common / times - by_chance);
        let is_clear = self.common - expected >= MIN_DEVIATIONS * expected.sqrt();
        by_chance <= MAX_CHANCE
            && match self.is_correlated {
                true => excess >= INDEPENDENT_EXCESS,
                false => self.common >= MIN_COMMON && excess >= CORRELATED_EXCESS && is_clear,
            }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha20Rng;

    use super::*;

    /// Paths 1 and 3 for an hour, dark for `dark` from each of the times that `begin` names for a path and
    /// a minute. Returns the times at which the judgement changed.
    fn changes(
        losses: [f64; 2],
        mut begin: impl FnMut(usize, u64) -> Option<u64>,
    ) -> Vec<(Duration, bool)> {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let (mut it, mut found) = (Coincidence::default(), Vec::new());
        for minute in 0..60 {
            let dark = [0, 1].map(|path| begin(path, minute));
            for ms in (0..60_000).step_by(20) {
                let at = Duration::from_millis(60_000 * minute + ms);
                it.settle(at, |paths, are| {
                    assert_eq!(paths, [1, 3]);
                    found.push((at, are));
                });
                for (path, number) in [1, 3].into_iter().enumerate() {
                    let is_dark = dark[path].is_some_and(|from| (from..from + 700).contains(&ms));
                    it.note(number, is_dark || rng.random_bool(losses[path]), at);
                }
            }
        }
        found
    }

    #[test]
    fn paths_that_are_dark_together_are_correlated_after_five_times() {
        // The second one notices half of a second later.
        let found = changes([0.03, 0.06], |path, _| Some(30_000 + 400 * path as u64));
        let minutes: Vec<_> = found.iter().map(|(at, are)| (at.as_secs() / 60, *are)).collect();
        assert_eq!(minutes, [(4, true)]);
    }

    #[test]
    fn paths_that_are_dark_at_different_times_are_not_correlated() {
        let apart = |path: usize, minute: u64| Some(10_000 + 7 * minute + 20_000 * path as u64);
        assert_eq!(changes([0.03, 0.06], apart), []);
        // Of so many losses, some intervals are dark by chance.
        for losses in [[0.2, 0.3], [0.3, 0.3], [0.4, 0.2], [0.5, 0.6]] {
            assert_eq!(changes(losses, |_, _| None), []);
        }
    }

    #[test]
    fn paths_that_part_are_independent_again() {
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let found = changes([0.0; 2], |path, minute| match minute {
            0..10 => Some(30_000),
            _ => Some(rng.random_range(0..20_000) + 25_000 * path as u64),
        });
        let are: Vec<bool> = found.iter().map(|(_, are)| *are).collect();
        assert_eq!(are, [true, false]);
    }

    #[test]
    fn a_path_that_stays_dark_is_correlated_with_nothing() {
        let mut it = Coincidence::default();
        for ms in (0..600_000).step_by(20) {
            let at = Duration::from_millis(ms);
            it.note(0, ms % 10_000 < 500, at);
            if ms < 5_000 {
                it.note(1, ms > 300, at);
            }
            it.settle(at, |paths, _| panic!("{paths:?} at {at:?}"));
        }
    }
}
