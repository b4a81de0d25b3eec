//! Errors of repair symbols.

/// Repair symbol that no correct encoder sends. The peer is broken or hostile: end its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The span is empty, too wide, or ends past the last number.
    #[error("a repair spans {count} symbols from {first} on")]
    Span {
        /// First symbol.
        first: u64,
        /// Number of symbols.
        count: u16,
    },
    /// The payload is too short for a length prefix, or longer than any symbol.
    #[error("a repair has {bytes} bytes, where 2 to {limit} are possible")]
    Bytes {
        /// Actual length.
        bytes: usize,
        /// Maximum length.
        limit: usize,
    },
    /// A source is longer than the repair symbol that combines it.
    #[error("a repair is too short for symbol {number}, which it combines")]
    Shorter {
        /// The source.
        number: u64,
    },
    /// The equations contradict each other or the sources.
    #[error("repairs contradict each other or the symbols they combine")]
    Contradiction,
    /// The length of a recovered symbol exceeds its bytes, or its padding is not zero.
    #[error("repairs make symbol {number} one that nobody could have sent")]
    Symbol {
        /// The symbol.
        number: u64,
    },
}
