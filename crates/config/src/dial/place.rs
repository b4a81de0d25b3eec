//! Source addresses and the places that a geofeed (RFC 8805) claims for them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};

use crate::from_text;

/// Maximum length of a city's name.
const MAX_CITY_BYTES: usize = 64;

/// Code of a country (ISO 3166-1 alpha-2), as in `FR`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Country([u8; 2]);

/// Source address, with its place if that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Place that the geofeed claims.
    pub place: Option<GeofeedPlace>,
}

/// Place of an address, in the columns of RFC 8805, section 2.1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeofeedPlace {
    /// Country.
    pub country: Country,
    /// Region (ISO 3166-2), as in `FR-IDF`; empty if it is not written.
    pub region: String,
    /// City; empty if it is not written.
    pub city: String,
}

/// An entry of `sources`, for the schema.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it is only described")]
pub(super) enum SourceEntry {
    /// An address.
    Address(IpAddr),
    /// An address with its place.
    Placed(PlacedSource),
}

/// A source address with its place.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PlacedSource {
    /// The address.
    address: IpAddr,
    /// Country (ISO 3166-1), as in `"FR"`.
    #[schemars(with = "String")]
    country: Country,
    /// Region (ISO 3166-2), as in `"FR-IDF"`.
    #[serde(default)]
    region: String,
    /// City.
    #[serde(default)]
    city: String,
}

impl PlacedSource {
    fn check(self) -> Result<SourceAddress, String> {
        let Self { address: ip, country, region, city } = self;
        let is_of_country = region.strip_prefix(&country.to_string()).is_some_and(|rest| {
            let rest = rest.strip_prefix('-').unwrap_or_default();
            (1..=3).contains(&rest.len()) && rest.bytes().all(|it| it.is_ascii_alphanumeric())
        });
        if !(region.is_empty() || is_of_country) {
            return Err(format!(
                "{region:?} is not a region of {country}: write it like \"FR-IDF\" (ISO 3166-2)"
            ));
        }
        let is_bad = |it: char| it == ',' || it == '"' || it.is_control();
        if city.len() > MAX_CITY_BYTES || city.contains(is_bad) {
            return Err(format!("{city:?} is not the name of a city without commas and quotes"));
        }
        Ok(SourceAddress { ip, place: Some(GeofeedPlace { country, region, city }) })
    }
}

impl FromStr for Country {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let code = text.as_bytes().try_into().ok();
        let code = code.filter(|code: &[u8; 2]| code.iter().all(u8::is_ascii_uppercase));
        let wrong = || format!("{text:?} is not a country: write two letters, as in \"FR\"");
        code.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<'de> Deserialize<'de> for Country {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from_text(from)
    }
}

impl<'de> Deserialize<'de> for SourceAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = SourceAddress;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, or { address = \"198.51.100.7\", country = \"FR\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SourceAddress, E> {
                let wrong = || E::custom(format!("{text:?} is not an address"));
                let ip = text.parse().map_err(|_| wrong())?;
                Ok(SourceAddress { ip, place: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SourceAddress, A::Error> {
                let table = PlacedSource::deserialize(MapAccessDeserializer::new(map))?;
                table.check().map_err(A::Error::custom)
            }
        }

        from.deserialize_any(Either)
    }
}

impl SourceAddress {
    /// Line of the geofeed (RFC 8805, section 2.1); `None` without a place.
    pub fn geofeed_line(&self) -> Option<String> {
        let GeofeedPlace { country, region, city } = self.place.as_ref()?;
        let bits = if self.ip.is_ipv4() { 32 } else { 128 };
        // The last column, postal codes, is deprecated.
        Some(format!("{}/{bits},{country},{region},{city},", self.ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Sources {
        sources: Vec<SourceAddress>,
    }

    fn lines(text: &str) -> Result<Vec<Option<String>>, String> {
        let sources: Sources = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        Ok(sources.sources.iter().map(SourceAddress::geofeed_line).collect())
    }

    #[test]
    fn places_become_lines_of_the_feed() {
        let text = "sources = [\"192.0.2.1\", { address = \"192.0.2.2\", country = \"FR\" }, \
                    { address = \"2001:db8::7\", country = \"US\", region = \"US-CA\", city = \"San José\" }]";
        let expected = ["192.0.2.2/32,FR,,,", "2001:db8::7/128,US,US-CA,San José,"];
        let expected = expected.map(|line| Some(line.to_owned()));
        assert_eq!(lines(text).unwrap(), [&[None], &expected[..]].concat());
    }

    #[test]
    fn bad_places_are_explained() {
        let of = |more: &str| {
            lines(&format!("sources = [{{ address = \"192.0.2.2\", {more} }}]")).unwrap_err()
        };
        assert!(of("country = \"fr\"").contains("\"fr\" is not a country: write two letters"));
        assert!(of("country = \"FR\", region = \"DE-BE\"").contains("is not a region of FR"));
        assert!(of("country = \"FR\", city = \"a,b\"").contains("is not the name of a city"));
        assert!(lines("sources = [\"here\"]").unwrap_err().contains("\"here\" is not an address"));
        assert!(lines("sources = [7]").unwrap_err().contains("country = \"FR\""));
    }
}
