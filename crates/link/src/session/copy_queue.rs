//! Copies that wait for a path.

use std::collections::VecDeque;

use bentpipe_coding::Span;

use crate::Class;
use crate::lane::Lane;

/// Maximum number of copies that wait for a path. The oldest are dropped, since a copy only saves
/// time.
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
        if self.0.len() == MAX_COPIES {
            self.0.pop_front();
        }
        self.0.push_back(copied);
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
