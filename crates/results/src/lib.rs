//! Experiments as data, their measurements, and the report.
//!
//! - A [`Study`] is a published paper as data: the cells of its grids, their presentation in the
//!   report, and the values from the paper.
//! - A [`Measured`] holds the results of one cell.
//! - A [`Claim`] is a finding of a paper, in a form that measured cells can confirm or refute.
//! - A [`Folder`] stores a run cell by cell, so that a stopped run can continue and the shards of a
//!   run can be merged.
//! - A [`Report`] compares the measurements with the papers.
//! - [`outcome`] has the rows, goals and text of an experiment that is not of a paper.
//!
//! Nothing in this crate measures.

#![forbid(unsafe_code)]

mod claim;
mod folder;
mod measured;
pub mod outcome;
mod parquet;
mod report;
pub mod statistics;
mod study;
mod toml_text;

pub use claim::{
    Bound, Claim, ClaimError, Claims, Compare, Cover, Figure as ClaimFigure, MAX_RUNS, Outcome,
    PaperValue, Take, Verdict,
};
pub use folder::{Folder, FolderError, Host, LinkMeasured, LinkRange, Manifest};
pub use measured::{COLUMNS, Cell, METRICS, Measured, Pattern, Row, number, unit_of};
pub use parquet::{TableError, read_table, write_table};
pub use report::{Files, Report, html, markdown, text};
pub use study::{
    Changes, Condition, Congestion, Content, Figure, FigureKind, Found, Grid, Kind, PROTOCOLS,
    Page, Planned, SYSTEMS, Section, Shard, ShardError, Spread, Stated, StatedValue, Study,
    StudyError, TlsVersion, Unchecked, Workload,
};
