//! Bounds of a decoder.

use super::contents::SLOT_BYTES;
use super::row::Row;
use super::rows::{ROW_TABLE_BYTES, Recovered};
use crate::MAX_SPAN;
use crate::symbol::{MAX_SYMBOL_BYTES, PREFIX_BYTES};

/// Bounds of a decoder's memory, and thereby of its work.
///
/// **Memory** is at most [`max_bytes`](Self::max_bytes). With the defaults (2,048 symbols of 1,500
/// bytes, 512 equations):
///
/// - contents: 2,048 × (1,502 bytes + 32 of the table) = 3.1 MB
/// - equations: 512 × (1,502 of payload + up to 512 coefficients + 120 of the tables) = 1.1 MB
/// - recovered symbols that the caller has not taken: at most twice `rows`, 1,024 × (1,502 bytes +
///   64 of the table) = 1.6 MB. A caller that takes them after every call holds only those of one
///   call.
///
/// Contents grow towards their bound as symbols arrive. A decoder that has received nothing holds
/// nothing.
///
/// **Work** is counted in multiply-adds of one payload. For 1,500 bytes one takes about 30 ns with
/// AVX-512 and 0.4 µs without vector instructions. The bounds hold whatever the peer sends:
///
/// - A repair symbol: at most [`MAX_SPAN`](crate::MAX_SPAN) to cancel known symbols. Reducing the
///   equations by each other takes at most `MAX_SPAN` per repair symbol on average, because each
///   step makes the span of one equation narrower by at least one symbol. One call takes at most 8
///   × `MAX_SPAN`; an equation that would need more is dropped. A recovered symbol is substituted
///   into at most `rows` other equations, once per repair symbol received. With the defaults this
///   is on average at most 3 × 512 per repair symbol.
/// - A source: at most `rows`, and its share of the reductions above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Cached contents of source symbols, the newest. Of two numbers that are equal modulo this,
    /// the higher is cached. A repair symbol that spans uncached symbols is useless.
    pub cached_symbols: usize,
    /// Maximum number of equations. Beyond it, the equation with the widest span is dropped.
    pub rows: usize,
    /// Maximum length of a source symbol, at most [`MAX_SYMBOL_BYTES`]. A repair symbol may have
    /// [`PREFIX_BYTES`] more. Longer sources are not cached.
    pub max_symbol_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cached_symbols: 2048, rows: 512, max_symbol_bytes: 1500 }
    }
}

impl Limits {
    /// Maximum memory of a decoder.
    pub fn max_bytes(&self) -> usize {
        let repair = self.max_repair_bytes();
        let contents = self.cached_symbols.max(1) * (SLOT_BYTES + repair);
        let rows = self.rows * (size_of::<Row>() + MAX_SPAN + ROW_TABLE_BYTES + repair);
        // A queue doubles its table when it is full, and starts with a few slots.
        let waiting = 2 * self.rows + 2;
        contents + rows + waiting * (2 * size_of::<Recovered>() + repair)
    }

    /// Maximum length of a repair symbol.
    pub(super) fn max_repair_bytes(&self) -> usize {
        PREFIX_BYTES + self.max_symbol_bytes.min(MAX_SYMBOL_BYTES)
    }
}
