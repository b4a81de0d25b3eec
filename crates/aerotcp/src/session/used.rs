//! The set of used connection numbers.

use std::collections::BTreeMap;

/// Maximum number of ranges. The air gateway numbers its connections in order, so there are no more
/// than open connections and numbers from which nothing ever arrived.
const MAX_RANGES: usize = 16 << 10;

/// A set of numbers as ranges of 48 bytes each: at most 768 KiB.
#[derive(Debug, Default)]
pub struct UsedNumbers {
    /// First and last number of each range.
    ranges: BTreeMap<u64, u64>,
}

impl UsedNumbers {
    /// Returns `true` if `number` was used.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Marks `number` as used. If there are too many ranges, closes the lowest gap: the numbers in
    /// it then count as used.
    pub fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let before = self.ranges.range(..number).next_back().map(|(first, last)| (*first, *last));
        let first =
            before.filter(|(_, last)| last + 1 == number).map_or(number, |(first, _)| first);
        let after = number.checked_add(1).and_then(|next| self.ranges.remove(&next));
        self.ranges.insert(first, after.unwrap_or(number));
        if self.ranges.len() > MAX_RANGES
            && let Some((first, _)) = self.ranges.pop_first()
            && let Some((_, last)) = self.ranges.pop_first()
        {
            self.ranges.insert(first, last);
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
        fn agrees_with_a_set(inserted in proptest::collection::vec(0u64..200, 0..200)) {
            let (mut numbers, mut set) = (UsedNumbers::default(), BTreeSet::new());
            for number in inserted {
                numbers.insert(number);
                set.insert(number);
            }
            for number in 0..=200 {
                prop_assert_eq!(numbers.contains(number), set.contains(&number), "{}", number);
            }
        }
    }

    #[test]
    fn the_set_is_bounded_and_never_forgets() {
        let mut numbers = UsedNumbers::default();
        let used = || (1..50_000).map(|n| n * 2);
        used().for_each(|number| numbers.insert(number));
        assert_eq!(numbers.ranges.len(), MAX_RANGES);
        assert!(used().all(|number| numbers.contains(number)));
        numbers.insert(u64::MAX);
        assert!(numbers.contains(u64::MAX) && !numbers.contains(99_999));
    }
}
