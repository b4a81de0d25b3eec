//! One value of one run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Which cell of a section's grid: a value for each of its axes, as the study's file writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cell(pub BTreeMap<String, String>);

/// A measured value with all that says what it is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The study, as its file is called.
    pub study: String,
    /// The section's `id` there.
    pub section: String,
    /// Where in the section's grid.
    pub cell: Cell,
    /// What was measured: `plt`, `utilization`, …
    pub metric: String,
    /// `s`, `bit/s`, `bytes`, `ratio` or `count`.
    pub unit: String,
    /// Which run of the cell, from 0.
    pub run: u32,
    /// Of the link's losses.
    pub seed: u64,
    /// The value; of an unfinished run what was seen before its time was over.
    pub value: f64,
    /// Whether it came to its end: of an unfinished run the true value is larger.
    pub finished: bool,
}

impl Cell {
    /// A cell from pairs of axis and value.
    pub fn of<const N: usize>(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.into_iter().map(|(axis, value)| (axis.into(), value.into())).collect())
    }

    /// Its value on `axis`.
    pub fn on(&self, axis: &str) -> Option<&str> {
        self.0.get(axis).map(String::as_str)
    }

    /// Whether it lies where `part` says, on every axis that `part` names.
    pub fn lies_in(&self, part: &Self) -> bool {
        part.0.iter().all(|(axis, value)| self.on(axis) == Some(value))
    }

    /// What it is on `axes`, in their order; `None` unless it has all of them.
    pub fn key(&self, axes: &[String]) -> Option<Vec<&str>> {
        axes.iter().map(|axis| self.on(axis)).collect()
    }
}

/// As `axis=value`, the axes in alphabetical order: the same for the same cell, always.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (axis, value)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{axis}={value}")?;
        }
        Ok(())
    }
}

impl Measured {
    /// The value for whoever ranks it: what never ended is above everything.
    pub fn ranked(&self) -> f64 {
        if self.finished { self.value } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_lies_in_whatever_it_agrees_with() {
        let cell = Cell::of([("link", "mss"), ("protocol", "http/2")]);
        assert!(cell.lies_in(&Cell::default()));
        assert!(cell.lies_in(&Cell::of([("link", "mss")])));
        assert!(!cell.lies_in(&Cell::of([("link", "da2gc")])));
        assert!(!cell.lies_in(&Cell::of([("page", "1x100k")])));
        assert_eq!(cell.to_string(), "link=mss,protocol=http/2");
        assert_eq!(cell.key(&["protocol".into(), "link".into()]), Some(vec!["http/2", "mss"]));
        assert_eq!(cell.key(&["page".into()]), None);
    }
}
