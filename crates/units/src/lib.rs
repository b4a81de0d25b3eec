//! Quantities as people write them in profiles and configs, parsed once at the edge.
//!
//! | type | written | wrong |
//! |---|---|---|
//! | [`BitRate`] | `"1.89 Mbit/s"`, `"256 kbit/s"` | `"2 MB/s"` (bytes), `"2 Mbps"` |
//! | [`ByteSize`] | `"64 KiB"`, `"1500 B"`, `"180 kB"` | `"64 Kb"` (bits) |
//! | [`Span`] | `"380.5 ms"`, `"2 h"`, `"25 us"` | `"380"` (no unit) |
//! | [`Ratio`] | `"6 %"`, `0.06` | `"6"`, `1.5` |
//!
//! A value without its unit is an error, and every error says what to write instead.

#![forbid(unsafe_code)]

mod quantity;
mod ratio;
mod table;

pub use quantity::{BitRate, ByteSize, Span};
pub use ratio::Ratio;

/// Error for a written quantity that was refused, with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{written:?} is not {what}: {why}; write it like {example:?}")]
pub struct ParseQuantityError {
    /// Text as written.
    pub written: String,
    /// Expected quantity, with its article: "a rate".
    pub what: &'static str,
    /// Reason for the refusal.
    pub why: String,
    /// A correct value of this kind.
    pub example: &'static str,
}

#[cfg(test)]
mod tests {
    use proptest::test_runner::{Config, RngSeed};

    /// Cargo sets `PROPTEST_RNG_SEED` for every crate of the workspace (`.cargo/config.toml`).
    #[test]
    fn property_tests_draw_their_cases_from_a_fixed_seed() {
        assert_ne!(Config::default().rng_seed, RngSeed::Random, "run the tests with cargo");
    }
}
