//! Values written as a scalar or as a table: `"6 %"` or `{ series = … }`.

use std::fmt;
use std::marker::PhantomData;

use bentpipe_units::Span;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, Deserialize, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, Visitor,
};

use crate::series::{Series, Varying};

/// Table form of a value that changes over time.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[serde(bound(deserialize = "T: Copy + Deserialize<'de>"))]
pub(crate) enum SeriesTable<T> {
    Series(Series<T>),
}

/// Scalar (`"6 %"`) or table with one key (`{ series = … }`).
#[derive(Debug, Clone)]
pub(crate) enum ScalarOr<S, T> {
    Scalar(S),
    Table(T),
}

impl<T> From<ScalarOr<T, SeriesTable<T>>> for Varying<T> {
    fn from(raw: ScalarOr<T, SeriesTable<T>>) -> Self {
        match raw {
            ScalarOr::Scalar(value) => Self::Constant(value),
            ScalarOr::Table(SeriesTable::Series(series)) => Self::Series(series),
        }
    }
}

/// Series as written; [`Series::new`] checks it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawSeries<T> {
    steps: Vec<(Span, T)>,
    repeat: Option<Span>,
}

impl<'de, T: Copy + Deserialize<'de>> Deserialize<'de> for Series<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = RawSeries::<T>::deserialize(from)?;
        let steps = raw.steps.into_iter().map(|(at, value)| (at.duration(), value)).collect();
        Self::new(steps, raw.repeat.map(Span::duration)).map_err(de::Error::custom)
    }
}

impl<'de, S: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for ScalarOr<S, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarOrVisitor(PhantomData))
    }
}

struct ScalarOrVisitor<S, T>(PhantomData<(S, T)>);

impl<'de, S: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for ScalarOrVisitor<S, T> {
    type Value = ScalarOr<S, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity like \"20 ms\", or a table like { series = { steps = [[…]] } }")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        S::deserialize(text.into_deserializer()).map(ScalarOr::Scalar)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        S::deserialize(value.into_deserializer()).map(ScalarOr::Scalar)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        S::deserialize(value.into_deserializer()).map(ScalarOr::Scalar)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let table = T::deserialize(MapAccessDeserializer::new(&mut map))?;
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Err(de::Error::custom(
                "only one of these keys can be given: remove the others",
            ));
        }
        Ok(ScalarOr::Table(table))
    }
}
