//! Measurements of one cell of a grid.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Columns that a cell may have, in the order of the report.
pub const COLUMNS: [&str; 10] = [
    "engine",
    "loader",
    "contender",
    "protocol",
    "link",
    "page",
    "condition",
    "class",
    "direction",
    "x",
];

/// Metrics of a run, with their units.
pub const METRICS: [(&str, &str); 31] = [
    ("plt", "s"),
    ("lcp", "s"),
    ("repeat-plt", "s"),
    ("repeat-lcp", "s"),
    ("response-time", "s"),
    ("goodput", "bit/s"),
    ("utilization", "ratio"),
    ("ceiling", "ratio"),
    ("rate", "bit/s"),
    ("rate-fill", "ratio"),
    ("jain", "ratio"),
    ("connections", "count"),
    ("connections-dropped", "count"),
    ("packets-small", "ratio"),
    ("packets-large", "ratio"),
    ("block", "s"),
    ("wait", "s"),
    ("receive", "s"),
    ("failed", "ratio"),
    ("epb", "ratio"),
    ("epb-received", "ratio"),
    ("epb-fair", "ratio"),
    ("below-window", "ratio"),
    ("extra-traffic", "ratio"),
    ("extra-budget", "ratio"),
    ("resets", "count"),
    ("call-delay", "s"),
    ("call-loss", "ratio"),
    ("link-rate", "bit/s"),
    ("link-rtt", "s"),
    ("link-loss", "ratio"),
];

/// Fractions of a whole, which cannot exceed 1. Three metrics are not in the list. `rate-fill` may
/// exceed 1, because a class may get more than its rate. `epb-fair` may, because a connection may
/// take more than its fair share. `epb-received` may, because a proxy may hold much data when the
/// first byte arrives.
const PARTS: [&str; 10] = [
    "utilization",
    "ceiling",
    "jain",
    "packets-small",
    "packets-large",
    "failed",
    "epb",
    "below-window",
    "call-loss",
    "link-loss",
];

/// Largest rounding error of a fraction.
const ROUNDING: f64 = 1e-6;

/// Smallest possible value of a metric. Extra traffic may be negative, because payload can cross
/// the link with fewer headers than in full TCP packets.
pub(crate) fn least_of(metric: &str) -> f64 {
    if metric == "extra-traffic" { -1.0 } else { 0.0 }
}

/// Largest possible value of a metric.
pub(crate) fn most_of(metric: &str) -> f64 {
    if PARTS.contains(&metric) { 1.0 } else { f64::INFINITY }
}

/// Unit of a metric. `None` if the metric is unknown.
pub fn unit_of(metric: &str) -> Option<&'static str> {
    METRICS.iter().find(|(name, _)| *name == metric).map(|(_, unit)| *unit)
}

/// Text of a number in a column: `1e-6`, `0.000001` and `1.0e-6` all become `0.000001`.
pub fn number(value: f64) -> String {
    format!("{value}")
}

/// A cell, one configuration of a grid: a value for each of its columns, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cell(BTreeMap<String, String>);

/// Allowed values of columns, which one cell or many match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Pattern(BTreeMap<String, Texts>);

/// Measurements of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Name of the experiment's file.
    pub paper: String,
    /// The grid's `id` in the experiment.
    pub grid: String,
    /// Cell of the grid.
    pub cell: Cell,
    /// All values of all runs.
    pub rows: Vec<Row>,
}

/// One value of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Metric, one of [`METRICS`].
    pub metric: String,
    /// The metric's unit.
    pub unit: String,
    /// Object or connection of the run. Empty if the run has only one value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub series: String,
    /// Position of the value in its series, a time in seconds, if the cell has no column `x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Number of the run in the cell, from 0.
    pub run: u32,
    /// Seed of the link's losses.
    pub seed: u64,
    /// Value, which is finite. For a run that was cut off, the value reached until then.
    pub value: f64,
    /// `true` if the run was not cut off.
    pub finished: bool,
}

impl Cell {
    /// Makes a cell from pairs of column and value.
    pub fn of<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(pairs.into_iter().map(|(column, value)| (column.into(), value.into())).collect())
    }

    /// Value in `column`.
    pub fn on(&self, column: &str) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    /// Columns with their values, in the order of [`COLUMNS`].
    pub fn columns(&self) -> impl Iterator<Item = (&str, &str)> {
        COLUMNS.into_iter().filter_map(|column| Some((column, self.on(column)?)))
    }

    /// The same cell with another value in `column`.
    pub fn with(&self, column: &str, value: &str) -> Self {
        let mut columns = self.0.clone();
        columns.insert(column.into(), value.into());
        Self(columns)
    }

    /// The same cell without `column`.
    pub fn without(&self, column: &str) -> Self {
        let mut columns = self.0.clone();
        columns.remove(column);
        Self(columns)
    }

    /// Values in `columns`, in their order. `None` if a column is missing.
    pub fn key(&self, columns: &[String]) -> Option<Vec<&str>> {
        columns.iter().map(|column| self.on(column)).collect()
    }
}

/// Formats the cell as `column=value`, with the columns in alphabetical order, so that equal cells
/// have equal texts.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (column, value)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{column}={value}")?;
        }
        Ok(())
    }
}

impl Pattern {
    /// Makes a pattern from pairs of a column and its allowed values.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a [&'a str])>) -> Self {
        let texts = |values: &[&str]| Texts(values.iter().map(|&value| value.into()).collect());
        Self(pairs.into_iter().map(|(column, values)| (column.into(), texts(values))).collect())
    }

    /// Returns `true` if `cell` has one of the pattern's values in every column that the pattern
    /// names.
    pub fn matches(&self, cell: &Cell) -> bool {
        self.0.iter().all(|(column, values)| {
            cell.on(column).is_some_and(|value| values.0.iter().any(|one| one == value))
        })
    }

    /// Allowed values for `column`, if the pattern names it.
    pub fn on(&self, column: &str) -> Option<&[String]> {
        self.0.get(column).map(|values| values.0.as_slice())
    }

    /// Columns of the pattern, with their allowed values.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(column, values)| (column.as_str(), values.0.as_slice()))
    }

    /// Both patterns combined. If both name a column, that of `self` applies.
    pub fn or(&self, other: &Self) -> Self {
        let mut columns = other.0.clone();
        columns.extend(self.0.clone());
        Self(columns)
    }

    /// Copy of `cell` with the values of all columns for which the pattern has a single value.
    pub fn moved(&self, cell: &Cell) -> Cell {
        self.columns().fold(cell.clone(), |cell, (column, values)| match values {
            [value] => cell.with(column, value),
            _ => cell,
        })
    }
}

impl Measured {
    /// Values of a metric over all runs, each as it [ranks](Row::ranked), without
    /// [impossible](Row::is_possible) ones.
    pub fn values(&self, metric: &str) -> Vec<f64> {
        self.of(metric).filter(|row| row.is_possible()).map(Row::ranked).collect()
    }

    /// Number of [impossible](Row::is_possible) values of a metric.
    pub fn set_aside(&self, metric: &str) -> usize {
        self.of(metric).filter(|row| !row.is_possible()).count()
    }

    /// All rows of a metric.
    pub fn of<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.metric == metric)
    }
}

impl Row {
    /// A run's only value of a metric. The caller sets the run and its seed.
    pub fn of(metric: &str, value: f64, finished: bool) -> Self {
        let unit = unit_of(metric).unwrap_or_default().into();
        let (metric, series) = (metric.into(), String::new());
        Self { metric, unit, series, x: None, run: 0, seed: 0, value, finished }
    }

    /// The same row for one object or connection of the run.
    pub fn in_series(self, series: impl Into<String>) -> Self {
        Self { series: series.into(), ..self }
    }

    /// The same row at a position of its series.
    pub fn at(self, x: f64) -> Self {
        Self { x: Some(x), ..self }
    }

    /// Returns `true` if the value is possible: no part exceeds its whole, and no time or rate is
    /// negative. Any other value is a measurement error. It is reported as such, and excluded from
    /// all figures and verdicts.
    pub fn is_possible(&self) -> bool {
        let (least, most) = (least_of(&self.metric), most_of(&self.metric));
        (least - ROUNDING..=most + ROUNDING).contains(&self.value)
    }

    /// Value for ranking. A time that did not finish counts as infinite; rates and fractions count
    /// unchanged.
    pub fn ranked(&self) -> f64 {
        if self.unit == "s" && !self.finished { f64::INFINITY } else { self.value }
    }
}

/// One or several values of a column, text or numbers, stored as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Texts(pub Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.into()]))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Texts, E> {
                Ok(Texts(vec![value.to_string()]))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Texts, E> {
                Ok(Texts(vec![number(value)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut all = Vec::new();
                while let Some(Texts(one)) = list.next_element()? {
                    match <[String; 1]>::try_from(one) {
                        Ok([one]) => all.push(one),
                        Err(_) => return Err(de::Error::custom("a list within a list: write one")),
                    }
                }
                if all.is_empty() {
                    return Err(de::Error::custom(
                        "an empty list stands for no cell: name a value",
                    ));
                }
                Ok(Texts(all))
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_any_of_its_values() {
        let cell = Cell::of([("link", "mss"), ("protocol", "http/2")]);
        assert!(Pattern::default().matches(&cell));
        let links = Pattern::of([("link", &["da2gc", "mss"][..])]);
        assert!(links.matches(&cell));
        assert!(!Pattern::of([("link", &["da2gc"][..])]).matches(&cell));
        assert!(!Pattern::of([("page", &["1x100k"][..])]).matches(&cell));
        assert_eq!(cell.to_string(), "link=mss,protocol=http/2");
        assert_eq!(cell.key(&["protocol".into(), "link".into()]), Some(vec!["http/2", "mss"]));
        assert_eq!(cell.key(&["page".into()]), None);
        let other = Pattern::of([("link", &["aero"][..])]);
        assert!(!other.or(&links).matches(&cell) && links.or(&other).matches(&cell));
        assert_eq!(other.moved(&cell).to_string(), "link=aero,protocol=http/2");
    }

    #[test]
    fn numbers_are_written_one_way() {
        let pattern: Pattern = toml::from_str("x = [1e-6, 1.0e-6, 0.000001]\npage = 'p'").unwrap();
        assert_eq!(pattern.on("x").unwrap(), ["0.000001", "0.000001", "0.000001"]);
        let pattern: Pattern = toml::from_str("x = [30, 30.0, 0]").unwrap();
        assert_eq!(pattern.on("x").unwrap(), ["30", "30", "0"]);
        for wrong in ["x = []", "x = [[1, 2]]", "x = true", "x = {}"] {
            assert!(toml::from_str::<Pattern>(wrong).is_err(), "{wrong}");
        }
    }

    fn row(metric: &str, value: f64) -> Row {
        Row {
            metric: metric.into(),
            unit: unit_of(metric).unwrap().into(),
            series: String::new(),
            x: None,
            run: 0,
            seed: 1,
            value,
            finished: true,
        }
    }

    #[test]
    fn only_a_time_that_did_not_finish_is_infinite() {
        let cut = |metric: &str| Row { finished: false, ..row(metric, 0.5) };
        assert_eq!(cut("plt").ranked(), f64::INFINITY);
        assert_eq!(row("plt", 0.5).ranked(), 0.5);
        assert_eq!(cut("utilization").ranked(), 0.5);
    }

    #[test]
    fn impossible_values_are_in_no_figure() {
        let possible = |metric: &str, value| row(metric, value).is_possible();
        for metric in PARTS {
            assert!(possible(metric, 0.0) && possible(metric, 1.0 + 1e-9), "{metric}");
            assert!(!possible(metric, 1.001) && !possible(metric, -0.001), "{metric}");
        }
        assert!(possible("epb-fair", 1.8) && possible("rate-fill", 1.1) && possible("plt", 90.0));
        assert!(!possible("epb-fair", -0.1) && !possible("plt", -0.1));
        assert!(possible("extra-traffic", -0.04) && possible("extra-traffic", 3.0));
        assert!(!possible("extra-traffic", -1.1));
        let rows = vec![row("utilization", 0.9), row("utilization", 1.8), row("utilization", 0.7)];
        let (paper, grid, cell) = ("p".into(), "g".into(), Cell::default());
        let measured = Measured { paper, grid, cell, rows };
        assert_eq!(measured.values("utilization"), [0.9, 0.7]);
        assert_eq!((measured.set_aside("utilization"), measured.set_aside("plt")), (1, 0));
    }
}
