//! Length of a queue as written.

use std::str::FromStr;
use std::time::Duration;

use bentpipe_units::{BitRate, ByteSize, ParseQuantityError, Span};
use serde::de::{self, Deserialize, Deserializer};

/// Maximum queue length: in bytes, in time at the rate, or in bandwidth-delay products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Queue {
    Bytes(ByteSize),
    Time(Span),
    Bdp(f64),
}

impl Queue {
    /// Length in bytes at `rate`, on a link with the round trip `rtt`.
    pub fn bytes(self, rate: BitRate, rtt: Duration) -> u64 {
        match self {
            Self::Bytes(size) => size.bytes(),
            Self::Time(span) => rate.bytes_in(span.duration()),
            Self::Bdp(factor) => (rate.bytes_in(rtt) as f64 * factor) as u64,
        }
    }
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
    fn a_queue_is_bytes_or_time_or_bandwidth_delay_products() {
        assert_eq!("650 kB".parse(), Ok(Queue::Bytes(ByteSize::from_bytes(650_000))));
        assert_eq!("1.5 BDP".parse(), Ok(Queue::Bdp(1.5)));
        assert!(matches!("250 ms".parse(), Ok(Queue::Time(_))));
        for wrong in ["1", "BDP", "-1 BDP", "inf BDP", "0 BDP", "250"] {
            assert!(wrong.parse::<Queue>().unwrap_err().contains("\"1 BDP\""), "{wrong}");
        }
    }
}
