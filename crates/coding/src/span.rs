//! Span of source symbols that a repair symbol combines.

use crate::MAX_SPAN;

/// Source symbols `first .. first + count`, with `1 <= count <= MAX_SPAN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Lowest symbol number.
    pub first: u64,
    /// Number of symbols.
    pub count: u16,
}

impl Span {
    /// Creates a span. Returns `None` if it is empty, wider than [`MAX_SPAN`], or ends past the
    /// last number.
    pub fn new(first: u64, count: u16) -> Option<Self> {
        let fits = count >= 1 && usize::from(count) <= MAX_SPAN;
        first.checked_add(count.into()).filter(|_| fits).map(|_| Self { first, count })
    }

    /// First number after the span.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count.into())
    }

    /// Returns `true` if symbol `number` is in the span.
    pub fn contains(&self, number: u64) -> bool {
        (self.first..self.end()).contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_spans_are_rejected() {
        assert_eq!(Span::new(7, 0), None);
        assert_eq!(Span::new(7, 513), None);
        assert_eq!(Span::new(u64::MAX, 1), None);
        let last = Span::new(u64::MAX - 1, 1).unwrap();
        assert!(last.contains(u64::MAX - 1) && !last.contains(u64::MAX));
        let widest = Span::new(7, 512).unwrap();
        assert_eq!(widest.end(), 519);
        assert!(widest.contains(7) && widest.contains(518));
        assert!(!widest.contains(6) && !widest.contains(519));
    }
}
