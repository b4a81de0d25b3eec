//! What experiments measured, and what is made of it.
//!
//! A [`Measured`] row is one value of one run. A [`Study`] is a published paper as data: its sections,
//! their axes, and the values that the paper gives. A [`Claim`] is a direction that a paper found, in
//! a form that rows can be judged by. A [`Folder`] holds a run's rows, cell by cell, so that a run
//! that was stopped goes on where it was, and shards of one become one again. Nothing here measures.

mod claim;
mod folder;
mod measured;
mod parquet;
pub mod statistics;
mod study;

pub use claim::{Claim, ClaimError, Claims, Verdict};
pub use folder::{Folder, FolderError, Manifest};
pub use measured::{Cell, Measured};
pub use parquet::{TableError, read_table, write_table};
pub use study::{Section, Stated, Study, StudyError};
