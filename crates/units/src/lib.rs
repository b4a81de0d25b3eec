//! Quantities as people write them in profiles and configs, parsed once at the edge.
//!
//! | type | accepted | refused |
//! |---|---|---|
//! | [`BitRate`] | `"1.89 Mbit/s"`, `"256 kbit/s"` | `"2 MB/s"` (bytes), `"2 Mbps"` |
//! | [`ByteSize`] | `"64 KiB"`, `"1500 B"`, `"180 kB"` | `"64 Kb"` (bits) |
//! | [`Span`] | `"380.5 ms"`, `"2 h"`, `"25 us"` | `"380"` (no unit) |
//! | [`Ratio`] | `"6 %"`, `0.06` | `"6"`, `1.5` |
//!
//! [`TokenBucket`] limits a rate of them, or of any events.
//!
//! A value without its unit is an error. Every error says what to write instead.
//!
//! ```
//! use std::time::Duration;
//! use bentpipe_units::{BitRate, ByteSize};
//!
//! let rate: BitRate = "1.89 Mbit/s".parse().unwrap();
//! let size: ByteSize = "180 kB".parse().unwrap();
//! assert_eq!(rate.time_for(size.bytes()), Duration::from_nanos(761_904_761));
//! assert_eq!(rate.to_string(), "1.89 Mbit/s");
//!
//! let error = "2 MB/s".parse::<BitRate>().unwrap_err().to_string();
//! assert!(error.contains("multiply by 8 and write \"Mbit/s\""));
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `bucket` | [`TokenBucket`], [`TokenBuckets`], [`TokenRate`] |
//! | `quantity` | [`BitRate`], [`ByteSize`], [`Span`], [`micros`] |
//! | `ratio` | [`Ratio`] |
//! | `table` | unit tables and their parser |
//! | `schema` | JSON Schemas of the types, with the feature `schema` |

#![forbid(unsafe_code)]

mod bucket;
mod quantity;
mod ratio;
#[cfg(feature = "schema")]
mod schema;
mod table;

pub use bucket::{TokenBucket, TokenBuckets, TokenRate};
pub use quantity::{BitRate, ByteSize, Span, micros};
pub use ratio::Ratio;

/// Error of a refused quantity, with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{written:?} is not {what}: {why}; write it like {example:?}")]
pub struct ParseQuantityError {
    /// Text as written.
    pub written: String,
    /// Expected quantity, with its article: "a rate".
    pub what: &'static str,
    /// Reason for the refusal.
    pub why: String,
    /// Correct value of this kind.
    pub example: &'static str,
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use proptest::test_runner::{Config, RngSeed};

    /// Cargo sets `PROPTEST_RNG_SEED` for every crate of the workspace (`.cargo/config.toml`).
    #[test]
    fn property_tests_use_a_fixed_seed() {
        assert_ne!(Config::default().rng_seed, RngSeed::Random, "run the tests with cargo");
    }
}
