//! Replay window: each packet number is accepted once (after RFC 6479, a ring of words that
//! slides).

/// Maximum distance of an accepted packet behind the newest one. Retransmissions have new numbers,
/// so that it only has to cover reordering: 4,096 packets of 1,500 bytes are 3 s at 16 Mbit/s.
pub const REPLAY_WINDOW: u64 = 4096;

const WORDS: usize = REPLAY_WINDOW as usize / 64 + 1;

/// Replay window over the latest packet numbers: 536 bytes for each path and pair of keys.
#[derive(Debug, Clone)]
pub struct ReplayWindow {
    newest: Option<u64>,
    seen: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { newest: None, seen: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// Returns `true` if `number` may be new. To be called before decryption, and
    /// [`take`](Self::take) after it.
    pub fn is_fresh(&self, number: u64) -> bool {
        match self.newest {
            None => true,
            Some(newest) if number > newest => true,
            Some(newest) if newest - number >= REPLAY_WINDOW => false,
            Some(_) => self.seen[slot(number)] & bit(number) == 0,
        }
    }

    /// The greatest number accepted.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Marks an authenticated packet's number as seen.
    pub fn take(&mut self, number: u64) {
        let from = self.newest.map_or(number / 64, |newest| newest / 64 + 1);
        if self.newest.is_none_or(|newest| number > newest) {
            let to = number / 64;
            for word in from..=to.min(from + WORDS as u64) {
                self.seen[(word % WORDS as u64) as usize] = 0;
            }
            if to > from + WORDS as u64 {
                self.seen = [0; WORDS];
            }
            self.newest = Some(number);
        }
        self.seen[slot(number)] |= bit(number);
    }
}

fn slot(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u64..9000), 1..400)) {
            let (mut window, mut seen, mut newest) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
            for (ahead, by) in steps {
                let number = if ahead { newest + by } else { newest.saturating_sub(by) };
                let expected = !seen.contains(&number)
                    && (seen.is_empty() || number > newest || newest - number < REPLAY_WINDOW);
                prop_assert_eq!(window.is_fresh(number), expected, "number {}", number);
                if expected {
                    window.take(number);
                    seen.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }
}
