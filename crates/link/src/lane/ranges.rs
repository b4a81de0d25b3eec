//! A set of numbers that contains nearly all of `0..n`: a base, and runs above it.

use std::collections::BTreeMap;

/// Everything below a base, and runs above it.
#[derive(Debug, Default, Clone)]
pub struct RangeSet {
    base: u64,
    runs: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Number below which every number is in the set.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Runs above the base, ascending and half-open.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&start, &end)| (start, end))
    }

    /// Number of runs above the base.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// One past the largest number in the set.
    pub fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(self.base, |(_, &end)| end)
    }

    /// Returns `true` if `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        number < self.base
            || self.runs.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// Adds `number`. Returns `false` if it was in the set before.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let mut end = number + 1;
        if let Some(next_end) = self.runs.remove(&end) {
            end = next_end;
        }
        if number == self.base {
            self.base = end;
        } else if let Some((_, last_end)) =
            self.runs.range_mut(..number).next_back().filter(|(_, end)| **end == number)
        {
            *last_end = end;
        } else {
            self.runs.insert(number, end);
        }
        true
    }

    /// Adds every number below `base`.
    pub fn advance(&mut self, base: u64) {
        self.base = self.base.max(base);
        while let Some(first) = self.runs.first_entry()
            && *first.key() <= self.base
        {
            self.base = self.base.max(first.remove());
        }
    }

    /// Adds the numbers below the first run, if there is one.
    pub fn close_first_gap(&mut self) {
        if let Some((_, end)) = self.runs.pop_first() {
            self.base = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(numbers in proptest::collection::vec(0u64..60, 0..120), base in 0u64..62) {
            let (mut ranges, mut set) = (RangeSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(ranges.insert(number), set.insert(number));
            }
            for number in 0..62 {
                prop_assert_eq!(ranges.contains(number), set.contains(&number));
            }
            prop_assert_eq!(ranges.base(), (0..).find(|n| !set.contains(n)).unwrap());
            prop_assert_eq!(ranges.end(), set.last().map_or(0, |n| n + 1));
            let mut advanced = ranges.clone();
            advanced.advance(base);
            for number in 0..62 {
                prop_assert_eq!(advanced.contains(number), number < base || set.contains(&number));
            }
            let touches = advanced.runs().next().is_some_and(|(start, _)| start <= advanced.base());
            prop_assert!(!touches);
            let held: u64 = ranges.base() + ranges.runs().map(|(start, end)| end - start).sum::<u64>();
            prop_assert_eq!(held, set.len() as u64);
            let starts: Vec<_> = ranges.runs().collect();
            prop_assert!(starts.windows(2).all(|pair| pair[0].1 < pair[1].0), "runs never touch");
        }
    }
}
