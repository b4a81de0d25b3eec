//! Experiments as data, their measurements, and the report.
//!
//! A [`Study`] is a published paper as data: the cells of its grids, how the report shows them, and
//! the values that the paper gives. A [`Measured`] is what one cell gave. A [`Claim`] is a direction
//! that a paper found, in a form that measured cells can be held to. A [`Folder`] keeps a run cell by
//! cell, so that a run that was stopped goes on where it was, and shards of one become one again.
//! A [`Report`] puts what was measured beside what the papers say. Nothing here measures.

#![forbid(unsafe_code)]

mod claim;
mod folder;
mod measured;
mod parquet;
mod report;
pub mod statistics;
mod study;

pub use claim::{
    Bound, Claim, ClaimError, Claims, Compare, Cover, Figure as ClaimFigure, Held, PaperValue,
    Take, Verdict,
};
pub use folder::{Folder, FolderError, Host, LinkMeasured, LinkRange, Manifest};
pub use measured::{COLUMNS, Cell, METRICS, Measured, Pattern, Row, number, unit_of};
pub use parquet::{TableError, read_table, write_table};
pub use report::{Files, Report, html, markdown, text};
pub use study::{
    CONTENDERS, Changes, Condition, Congestion, Content, Figure, FigureKind, Found, Grid, Kind,
    PROTOCOLS, Page, Planned, Section, Shard, ShardError, Stated, StatedValue, Study, StudyError,
    TlsVersion, Unchecked, Workload,
};

/// Reads TOML; an error is the line, from 1, and what is wrong there.
fn parse_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        (before.matches('\n').count() + 1, error.message().into())
    })
}
