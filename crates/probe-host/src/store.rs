//! The store: one SQLite file, written by one process and committed every second.
//!
//! | module | contents |
//! |---|---|
//! | `schema` | tables and pragmas, and records as rows |
//! | `check` | the mark and the version of a file |
//! | `writer` | [`Writer`]: commits, and goes on when the disk does not |
//! | `unsent` | [`Unsent`]: records without a receipt, and receipts |
//! | `reader` | [`read`]: sessions and their records; [`last_public_test`] |
//!
//! WAL with `synchronous=FULL` syncs the log at every commit, so a committed record survives the end of the
//! process and of the power. Between commits a record is at risk for a second.

mod check;
mod error;
mod reader;
mod schema;
mod unsent;
mod writer;

use std::env;
use std::path::PathBuf;

pub use error::StoreError;
pub use reader::{Item, last_public_test, read};
pub use unsent::Unsent;
pub use writer::{Flushed, Writer};

/// Default place: `bentpipe/probe.sqlite` in `$XDG_DATA_HOME`, or in `~/.local/share`. Returns `None` if the
/// environment names neither.
pub fn default_place() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME");
    let data = data.or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("bentpipe").join("probe.sqlite"))
}

#[cfg(test)]
mod tests;
