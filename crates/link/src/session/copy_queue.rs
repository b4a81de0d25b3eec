//! Copies that wait for a path.

use std::cmp::Reverse;
use std::collections::VecDeque;

use bentpipe_coding::Span;

use crate::Class;
use crate::lane::Lane;

/// Maximum number of copies that wait for a path. Of more, the oldest of the least favoured class is
/// dropped, since a copy only saves time.
const MAX_COPIES: usize = 64;

/// A copy that waits for its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    pub lane: Lane,
    pub what: Original,
    /// Class that pays for it.
    pub class: Class,
}

/// Something that went on another path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Original {
    Symbol(u64),
    /// The copy is another repair of the same symbols.
    Repair(Span),
}

/// Copies that wait for a path.
#[derive(Debug, Default)]
pub struct Copies(VecDeque<Copied>);

impl Copies {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, copied: Copied) {
        self.0.push_back(copied);
        if self.0.len() > MAX_COPIES {
            let waiting = self.0.iter().enumerate();
            let last = waiting.max_by_key(|(place, copied)| (copied.class, Reverse(*place)));
            self.0.remove(last.map_or(0, |(place, _)| place));
        }
    }

    pub fn remove(&mut self, place: usize) {
        self.0.remove(place);
    }

    pub fn retain(&mut self, stays: impl Fn(&Copied) -> bool) {
        self.0.retain(stays);
    }

    /// The oldest copy of the most favoured class, with its place.
    pub fn next(&self) -> Option<(usize, Copied)> {
        self.0.iter().copied().enumerate().min_by_key(|(place, copied)| (copied.class, *place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_the_oldest_copy_of_the_least_favoured_class() {
        let mut copies = Copies::default();
        let copy =
            |number, class| Copied { lane: Lane::Urgent, what: Original::Symbol(number), class };
        let others = MAX_COPIES as u64 - 2;
        (0..others).for_each(|number| copies.push(copy(number, Class::Operator)));
        (100..103).for_each(|number| copies.push(copy(number, Class::BestEffort)));
        let kept = |copies: &Copies| -> Vec<Original> {
            copies.0.iter().skip(others as usize).map(|copied| copied.what).collect()
        };
        assert_eq!(kept(&copies), [101, 102].map(Original::Symbol));
        copies.push(copy(103, Class::LowerEffort));
        assert_eq!(kept(&copies), [101, 102].map(Original::Symbol), "it is the least favoured");
        copies.push(copy(104, Class::Operator));
        assert_eq!(kept(&copies), [102, 104].map(Original::Symbol));
        assert_eq!(copies.next().map(|(place, _)| place), Some(0));
    }
}
