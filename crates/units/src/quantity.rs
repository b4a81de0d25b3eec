//! Rates, sizes and durations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ParseQuantityError;
use crate::table::Table;

pub(crate) const RATES: Table = Table {
    what: "a rate",
    example: "1.89 Mbit/s",
    units: &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)],
    mistakes: &[
        ("Mbps", "is ambiguous: write \"Mbit/s\""),
        ("kbps", "is ambiguous: write \"kbit/s\""),
        ("bps", "is ambiguous: write \"bit/s\""),
        ("MB/s", "counts bytes: multiply by 8 and write \"Mbit/s\""),
        ("kB/s", "counts bytes: multiply by 8 and write \"kbit/s\""),
        ("B/s", "counts bytes: multiply by 8 and write \"bit/s\""),
    ],
};

pub(crate) const SIZES: Table = Table {
    what: "a size",
    example: "64 KiB",
    units: &[
        ("B", 1.0),
        ("kB", 1e3),
        ("KiB", 1024.0),
        ("MB", 1e6),
        ("MiB", 1048576.0),
        ("GB", 1e9),
        ("GiB", 1073741824.0),
    ],
    mistakes: &[
        ("KB", "is ambiguous: write \"kB\" (1000) or \"KiB\" (1024)"),
        ("Kb", "counts bits: divide by 8 and write \"kB\""),
        ("Mb", "counts bits: divide by 8 and write \"MB\""),
    ],
};

pub(crate) const SPANS: Table = Table {
    what: "a duration",
    example: "380.5 ms",
    units: &[
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
        ("h", 3600e9),
        ("d", 86400e9),
    ],
    mistakes: &[
        ("m", "could be minutes or metres: write \"min\""),
        ("sec", "is written \"s\""),
        ("msec", "is written \"ms\""),
    ],
};

/// Rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// Creates a rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// Returns the rate in bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// Time that `bytes` take at this rate; [`Duration::MAX`] at a rate of zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // Packets are so short that the faster division suffices.
        if let Some(nanobits) = bytes.checked_mul(8 * 1_000_000_000) {
            return Duration::from_nanos(nanobits / self.0);
        }
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }

    /// Number of whole bytes that fit into `span` at this rate.
    pub fn bytes_in(self, span: Duration) -> u64 {
        let bytes = span.as_nanos() * u128::from(self.0) / 8 / 1_000_000_000;
        bytes.try_into().unwrap_or(u64::MAX)
    }
}

/// Size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// Creates a size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Duration as written in a file. Elsewhere, use [`Duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

impl Span {
    /// Creates a span of the length of `duration`.
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    /// Converts to the standard library's type.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

/// Parses `text` to a whole number of base units. Fails if the number does not fit into a `u64`.
fn parse_whole(table: &Table, text: &str) -> Result<u64, ParseQuantityError> {
    let value = table.parse(text)?.round();
    if value > u64::MAX as f64 {
        return Err(table.error(text, "it is too large".into()));
    }
    Ok(value as u64)
}

impl FromStr for BitRate {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_whole(&RATES, text).map(Self)
    }
}

impl FromStr for ByteSize {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_whole(&SIZES, text).map(Self)
    }
}

impl FromStr for Span {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_whole(&SPANS, text).map(|nanos| Self(Duration::from_nanos(nanos)))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&RATES.format(self.0 as f64, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&SIZES.format(self.0 as f64, &["B", "KiB", "MiB", "GiB"]))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&SPANS.format(self.0.as_nanos() as f64, &["ns", "us", "ms", "s"]))
    }
}

macro_rules! serialize_as_text {
    ($($quantity:ty),*) => {$(
        impl serde::Serialize for $quantity {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $quantity {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serialize_as_text!(BitRate, ByteSize, Span);

/// Whole microseconds of a duration. Durations above about 500,000 years saturate.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_values_parse() {
        assert_eq!("1.89 Mbit/s".parse(), Ok(BitRate::from_bps(1_890_000)));
        assert_eq!("256kbit/s".parse(), Ok(BitRate::from_bps(256_000)));
        assert_eq!("64 KiB".parse(), Ok(ByteSize::from_bytes(65_536)));
        assert_eq!("380.5 ms".parse(), Ok(Span::new(Duration::from_micros(380_500))));
    }

    #[test]
    fn errors_say_what_to_write_instead() {
        let error = "2 MB/s".parse::<BitRate>().unwrap_err().to_string();
        assert!(error.contains("multiply by 8"), "{error}");
        assert!(error.contains("1.89 Mbit/s"), "{error}");
        let error = "380".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("no unit"), "{error}");
        assert!("-3 ms".parse::<Span>().is_err());
        assert!("".parse::<ByteSize>().is_err());
    }

    #[test]
    fn rate_and_time_agree() {
        let rate = BitRate::from_bps(1_890_000);
        assert_eq!(rate.time_for(1500), Duration::from_nanos(6_349_206));
        assert_eq!(rate.bytes_in(Duration::from_secs(8)), 1_890_000);
        assert_eq!(BitRate::from_bps(0).time_for(1), Duration::MAX);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<BitRate>();
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Span>();
        }

        #[test]
        fn displayed_values_round_trip_to_three_decimals(bps in 0u64..10_000_000_000) {
            let read: BitRate = BitRate::from_bps(bps).to_string().parse().unwrap();
            prop_assert!(read.bps().abs_diff(bps) as f64 <= 0.0006 * bps as f64 + 1.0);
        }
    }
}
