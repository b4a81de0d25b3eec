//! Links as they stand in a file, before what their values mean together is checked.

use std::str::FromStr;

use bentpipe_units::{BitRate, ByteSize, ParseQuantityError, Ratio, Span};
use serde::de::{self, Deserialize, Deserializer};

use crate::demand::DemandSpec;
use crate::jitter::JitterSpec;
use crate::loss::WrittenLoss;
use crate::outage::OutageSpec;
use crate::scalar::{ScalarOr, SeriesTable};
use crate::series::Series;

/// Both directions of a link as written; [`WrittenLink::check`] makes them a [`crate::LinkSpec`].
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WrittenLink {
    #[serde(default)]
    pub(crate) forward: WrittenDirection,
    #[serde(default, rename = "return")]
    pub(crate) return_: WrittenDirection,
}

/// One direction as written; [`WrittenDirection::check`] makes it a [`crate::DirectionSpec`].
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WrittenDirection {
    pub(crate) rate: Option<ScalarOr<BitRate, RateTable>>,
    pub(crate) delay: Option<ScalarOr<Span, SeriesTable<Span>>>,
    pub(crate) jitter: Option<JitterSpec>,
    pub(crate) order: Order,
    pub(crate) queue: Option<Queue>,
    pub(crate) ecn_threshold: Option<Queue>,
    pub(crate) loss: Option<WrittenLoss>,
    pub(crate) ber: Option<ScalarOr<Ratio, SeriesTable<Ratio>>>,
    /// Bytes, IP header included.
    pub(crate) mtu: Option<u32>,
    pub(crate) outages: Option<OutageSpec>,
    pub(crate) demand: Option<DemandSpec>,
}

/// Ordering of packets whose delays differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    #[default]
    Kept,
    Free,
}

/// The tables a rate may be.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RateTable {
    Series(Series<BitRate>),
    /// The trace's file name.
    Mahimahi(String),
}

/// Maximum length of the queue: in bytes, in time at the rate, or in bandwidth-delay products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Queue {
    Bytes(ByteSize),
    Time(Span),
    Bdp(f64),
}

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || {
            format!(
                "{text:?} is not the length of a queue: write bytes like \"650 kB\", time at \
                 the rate like \"250 ms\", or bandwidth-delay products like \"1 BDP\""
            )
        };
        if let Some(number) = text.trim().strip_suffix("BDP") {
            let factor: f64 = number.trim().parse().map_err(|_| error())?;
            let sane = factor.is_finite() && factor > 0.0;
            return if sane { Ok(Self::Bdp(factor)) } else { Err(error()) };
        }
        let size = text.parse().map(Self::Bytes);
        size.or_else(|_: ParseQuantityError| text.parse().map(Self::Time)).map_err(|_| error())
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_bytes_or_time_or_products() {
        assert_eq!("650 kB".parse(), Ok(Queue::Bytes(ByteSize::from_bytes(650_000))));
        assert_eq!("1.5 BDP".parse(), Ok(Queue::Bdp(1.5)));
        assert!(matches!("250 ms".parse(), Ok(Queue::Time(_))));
        for wrong in ["1", "BDP", "-1 BDP", "inf BDP", "0 BDP", "250"] {
            assert!(wrong.parse::<Queue>().unwrap_err().contains("\"1 BDP\""), "{wrong}");
        }
    }
}
