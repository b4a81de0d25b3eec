//! Values that know their position in the file, so that a later check can point at them.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::ConfigError;
use super::source::Source;

/// A value and its position in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "toml::Spanned<T>", bound = "T: Deserialize<'de>")]
pub struct Placed<T> {
    value: T,
    pub(super) place: Range<usize>,
}

impl<T> Placed<T> {
    /// A default, which stands in no file.
    pub(super) const fn nowhere(value: T) -> Self {
        Self { value, place: 0..0 }
    }

    pub(super) fn into_inner(self) -> T {
        self.value
    }

    /// The result of `map`, at the same position.
    pub(super) fn try_map<U, E>(self, map: impl FnOnce(T) -> Result<U, E>) -> Result<Placed<U>, E> {
        Ok(Placed { value: map(self.value)?, place: self.place })
    }

    /// Rejects the value: `why` is the problem, `help` the correction.
    pub(super) fn error(
        &self,
        source: &Source<'_>,
        why: impl Into<String>,
        help: impl Into<String>,
    ) -> ConfigError {
        ConfigError::at(source, Some(self.place.clone()), why, help)
    }
}

/// Text that parses into `T`, and its position.
pub(super) fn placed_text<'de, D, T>(from: D) -> Result<Placed<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    let text = Placed::<String>::deserialize(from)?;
    text.try_map(|text| text.parse().map_err(serde::de::Error::custom))
}

/// The position does not count.
impl<T: PartialEq> PartialEq for Placed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> From<toml::Spanned<T>> for Placed<T> {
    fn from(spanned: toml::Spanned<T>) -> Self {
        Self { place: spanned.span(), value: spanned.into_inner() }
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Serialize> Serialize for Placed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(to)
    }
}

impl<T: JsonSchema> JsonSchema for Placed<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}
