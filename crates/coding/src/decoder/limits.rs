//! Bounds on a decoder.

use super::contents::SLOT_BYTES;
use super::row::Row;
use super::rows::{ROW_TABLE_BYTES, Recovered};
use crate::MAX_SPAN;
use crate::symbol::{MAX_SYMBOL_BYTES, PREFIX_BYTES};

/// Bounds on a decoder's memory, and with that on the work it may be given.
///
/// **Memory** is at most [`max_bytes`](Self::max_bytes). With the defaults (2,048 symbols of 1,500
/// bytes, 512 equations):
///
/// - contents: 2,048 × (1,502 bytes + 32 of the table) = 3.1 MB;
/// - equations: 512 × (1,502 of payload + up to 512 coefficients + 120 of the tables) = 1.1 MB;
/// - recovered symbols nobody has taken yet: at most twice `rows`, 1,024 × (1,502 bytes + 64 of the
///   table) = 1.6 MB. A caller who takes them after every call holds those of one call only.
///
/// Contents are held as they come and grow to their bound only on a lane that has had that many;
/// a decoder that has had nothing holds nothing.
///
/// **Work**, in multiply-adds of one payload (1,500 bytes: about 30 ns with AVX-512, 0.4 µs without
/// any vector instruction), whatever the peer sends:
///
/// - a repair: at most [`MAX_SPAN`](crate::MAX_SPAN) to cancel what is known. Reducing the equations
///   with each other takes at most `MAX_SPAN` for each repair over all repairs, as each step makes
///   one equation's span at least one symbol narrower, and never more than 8 × `MAX_SPAN` in one
///   call: an equation that would need more is dropped. What it recovers is put into at most `rows`
///   other equations, once for each repair that came. With the defaults that makes at most 3 × 512
///   for a repair over all of them;
/// - a source: at most `rows`, and its share of the reductions above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Contents kept of source symbols, the newest: of two numbers that are equal modulo this, the
    /// higher. A repair that spans older ones is useless.
    pub kept_symbols: usize,
    /// Equations held. Where there are more the one with the widest span goes.
    pub rows: usize,
    /// The longest source symbol, at most [`MAX_SYMBOL_BYTES`]; a repair may have
    /// [`PREFIX_BYTES`] more. Longer sources are not kept.
    pub max_symbol_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { kept_symbols: 2048, rows: 512, max_symbol_bytes: 1500 }
    }
}

impl Limits {
    /// The most memory that a decoder holds.
    pub fn max_bytes(&self) -> usize {
        let repair = self.max_repair_bytes();
        let contents = self.kept_symbols.max(1) * (SLOT_BYTES + repair);
        let rows = self.rows * (size_of::<Row>() + MAX_SPAN + ROW_TABLE_BYTES + repair);
        // A queue doubles its table when it is full, and starts with a few places.
        let waiting = 2 * self.rows + 2;
        contents + rows + waiting * (2 * size_of::<Recovered>() + repair)
    }

    /// The longest repair.
    pub(super) fn max_repair_bytes(&self) -> usize {
        PREFIX_BYTES + self.max_symbol_bytes.min(MAX_SYMBOL_BYTES)
    }
}
