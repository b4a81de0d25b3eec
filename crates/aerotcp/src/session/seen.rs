//! The connection numbers that were used.

use std::collections::BTreeMap;

/// Most stretches remembered. The air numbers its connections in order, so there are no more than
/// connections that are open, and numbers of which nothing ever came.
const MAX_STRETCHES: usize = 16 << 10;

/// A set of numbers, as stretches: 48 bytes each, 768 KiB at most.
#[derive(Debug, Default)]
pub struct Seen {
    /// First and last of each.
    stretches: BTreeMap<u64, u64>,
}

impl Seen {
    /// Returns `true` if `number` was used.
    pub fn contains(&self, number: u64) -> bool {
        self.stretches.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Marks `number` as used. Where there are too many stretches, the lowest gap is closed: a
    /// number in it counts as used too.
    pub fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let before =
            self.stretches.range(..number).next_back().map(|(first, last)| (*first, *last));
        let first =
            before.filter(|(_, last)| last + 1 == number).map_or(number, |(first, _)| first);
        let after = number.checked_add(1).and_then(|next| self.stretches.remove(&next));
        self.stretches.insert(first, after.unwrap_or(number));
        if self.stretches.len() > MAX_STRETCHES
            && let Some((first, _)) = self.stretches.pop_first()
            && let Some((_, last)) = self.stretches.pop_first()
        {
            self.stretches.insert(first, last);
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
        fn agrees_with_a_set(numbers in proptest::collection::vec(0u64..200, 0..200)) {
            let (mut seen, mut set) = (Seen::default(), BTreeSet::new());
            for number in numbers {
                seen.insert(number);
                set.insert(number);
            }
            for number in 0..=200 {
                prop_assert_eq!(seen.contains(number), set.contains(&number), "{}", number);
            }
        }
    }

    #[test]
    fn it_is_bounded_and_never_forgets() {
        let mut seen = Seen::default();
        let used = || (1..50_000).map(|n| n * 2);
        used().for_each(|number| seen.insert(number));
        assert_eq!(seen.stretches.len(), MAX_STRETCHES);
        assert!(used().all(|number| seen.contains(number)));
        seen.insert(u64::MAX);
        assert!(seen.contains(u64::MAX) && !seen.contains(99_999));
    }
}
