//! Probabilities and shares.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};

use crate::ParseQuantityError;

const EXAMPLE: &str = "6 %";

/// Share between 0 and 1, written `"6 %"` or as the number `0.06`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// Share of zero.
    pub const ZERO: Self = Self(0.0);

    /// Creates a share. Returns `None` outside 0..=1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// Returns the share as a number between 0 and 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

fn error(written: &str, why: &str) -> ParseQuantityError {
    ParseQuantityError {
        written: written.to_owned(),
        what: "a share",
        why: why.to_owned(),
        example: EXAMPLE,
    }
}

impl FromStr for Ratio {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return Err(error(text, "it has no % sign"));
        };
        let percent: f64 =
            number.trim().parse().map_err(|_| error(text, "it does not begin with a number"))?;
        Self::new(percent / 100.0).ok_or_else(|| error(text, "it is outside 0 % to 100 %"))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.4}", self.0 * 100.0);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        f.pad(&format!("{text} %"))
    }
}

impl serde::Serialize for Ratio {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Ratio {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextOrNumber)
    }
}

struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = Ratio;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a share like {EXAMPLE:?} or 0.06")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Ratio, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Ratio, E> {
        Ratio::new(value)
            .ok_or_else(|| E::custom(error(&value.to_string(), "it is outside 0 to 1")))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Ratio, E> {
        self.visit_f64(value as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_are_equivalent() {
        #[derive(serde::Deserialize)]
        struct Loss {
            text: Ratio,
            number: Ratio,
        }
        let loss: Loss = toml::from_str("text = \"6 %\"\nnumber = 0.06").unwrap();
        assert_eq!(loss.text, loss.number);
        assert_eq!(loss.text.to_string(), "6 %");
    }

    #[test]
    fn out_of_range_is_refused() {
        assert!("6".parse::<Ratio>().is_err());
        assert!("101 %".parse::<Ratio>().is_err());
        assert!("NaN %".parse::<Ratio>().is_err());
        assert_eq!(Ratio::new(f64::NAN), None);
    }
}
