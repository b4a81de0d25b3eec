//! Outcome of an experiment: rows for programs, goals with their bounds, and a text for people.

mod compare;
mod goal;
mod report;
mod row;
pub mod table;

pub use compare::{APART, engines};
pub use goal::{Bound, Goal};
pub use report::Report;
pub use row::{Percentile, Row, Sample, Samples, write_json};
