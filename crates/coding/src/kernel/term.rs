//! Summand of a multiply-add.

/// Summand: a multiple of some bytes. Past its end a source counts as zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct Term<'a> {
    /// Factor by which the bytes are multiplied.
    pub factor: u8,
    /// Bytes.
    pub source: &'a [u8],
}
