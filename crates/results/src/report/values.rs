//! The paper's numbers, each next to ours, in words.

use super::format::{name, show, stated, unit};
use super::section::{Shown, fewer, is_greatest};
use crate::measured::Pattern;
use crate::study::{Found, Kind, Section, Stated, StatedValue};

/// A number from a paper, and ours.
pub(super) struct Given {
    /// Label of the value.
    pub what: String,
    /// Value in the paper.
    pub paper: String,
    /// Value measured with the baseline, or `–`.
    pub today: String,
    /// Value measured with Bentpipe, or `–`.
    pub with: String,
    /// `true` if Bentpipe's value comes from fewer cells than the baseline's.
    pub is_of_fewer: bool,
    /// Reason why ours differs, if it differs much.
    pub differs: Option<String>,
}

/// The paper's numbers for a section, without those that are missing in our copy of its text.
pub(super) fn given(shown: &Shown<'_>) -> Vec<Given> {
    let section = shown.section;
    let given: Vec<&Stated> =
        section.paper.iter().filter(|one| one.value != StatedValue::Lost).collect();
    given.iter().map(|one| beside(shown, one, &given)).collect()
}

fn beside<'a>(shown: &Shown<'a>, one: &'a Stated, given: &[&Stated]) -> Given {
    let (today, with) = shown.found(one);
    let quotient = one.against.is_some();
    let unit = unit(&one.metric, quotient);
    let number = |found: &Option<Found<'_>>| {
        found.as_ref().map_or_else(|| "–".into(), |found| show(found.value, unit))
    };
    let few = [&today, &with].into_iter().flatten().any(|found| is_greatest(one, found));
    let paper_unit = if quotient && one.unit == "ratio" { "×" } else { &one.unit };
    Given {
        what: label(one, given, shown.section, few),
        paper: stated(one.value, paper_unit),
        today: number(&today),
        with: number(&with),
        is_of_fewer: fewer(today.as_ref(), with.as_ref()).is_some(),
        differs: one.differs.clone(),
    }
}

/// Label of a value: its metric, its distinction from the section's other values, and its system if
/// that is not the baseline. With `few` values, a 95th percentile is labelled as the largest value.
fn label(one: &Stated, given: &[&Stated], section: &Section, few: bool) -> String {
    let today = section.today.as_ref().map(std::slice::from_ref);
    let differs = |column: &str| {
        let is_divided = one.against.as_ref().is_some_and(|against| against.on(column).is_some());
        is_divided
            || given.len() == 1
            || given.iter().any(|other| other.cells.on(column) != one.cells.on(column))
    };
    let words = |pattern: &Pattern| {
        let columns = pattern.columns().filter(|(column, values)| match *column {
            "loader" | "engine" => false,
            "contender" => Some(*values) != today,
            column => differs(column),
        });
        columns.map(|(_, values)| values.join(", ")).collect::<Vec<_>>().join(" ")
    };
    let kind = match one.kind {
        Kind::Median => String::new(),
        Kind::P95 if few => "max for p95, ".into(),
        kind => format!("{kind:?} ").to_lowercase(),
    };
    let against = one.against.as_ref().map(|against| {
        let columns = against.columns().map(|(_, values)| values.join(", "));
        format!(" ÷ {}", columns.collect::<Vec<_>>().join(" "))
    });
    format!("{kind}{} {}{}", name(&one.metric), words(&one.cells), against.unwrap_or_default())
}
