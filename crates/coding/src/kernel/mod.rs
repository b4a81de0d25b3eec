//! Multiply-add of byte slices, which is all the work there is: `destination ^= Σ factor · source`.
//!
//! Many sources are added in one pass, so that the destination stays in registers meanwhile.

mod portable;

/// A way to multiply and add. All give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Shifts and exclusive ors of words, on anything.
    Portable,
}

/// One summand: a multiple of some bytes. Behind its end a source counts as zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct Term<'a> {
    /// What the bytes are multiplied by.
    pub factor: u8,
    /// The bytes.
    pub source: &'a [u8],
}

impl Kernel {
    /// The fastest that this processor has.
    pub fn best() -> Self {
        Self::Portable
    }

    /// Adds every term to `destination`.
    ///
    /// # Panics
    ///
    /// If a source is longer than `destination`.
    pub fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        let longest = terms.iter().map(|term| term.source.len()).max().unwrap_or(0);
        assert!(longest <= destination.len(), "a source longer than its destination");
        match self {
            Self::Portable => portable::add_multiples(destination, terms),
        }
    }
}
