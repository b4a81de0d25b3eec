//! A study, and the errors of its file.

use std::io;
use std::path::PathBuf;

use super::{Condition, Grid, Page, Section, Unchecked};

/// Built-in files, by name.
pub(super) const BUILT_IN: [(&str, &str); 5] = [
    ("mile-high", include_str!("../../../../experiments/mile-high.toml")),
    ("aerotcp", include_str!("../../../../experiments/aerotcp.toml")),
    ("rural-paws", include_str!("../../../../experiments/rural-paws.toml")),
    ("spdy", include_str!("../../../../experiments/spdy.toml")),
    ("netforecast", include_str!("../../../../experiments/netforecast.toml")),
];

/// Built-in files of our own experiments in the same form. No published study is behind them.
pub(super) const OWN: [(&str, &str); 1] =
    [("hybrid", include_str!("../../../../experiments/hybrid.toml"))];

/// One published study, and its replication.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Name of its file.
    pub name: String,
    /// Title of the paper.
    pub paper: String,
    /// Authors.
    pub authors: String,
    /// Year, if known.
    pub year: Option<u16>,
    /// Venue, if known.
    pub venue: Option<String>,
    /// Subject.
    pub about: String,
    /// Further remarks.
    pub note: Option<String>,
    /// Pages to load.
    pub pages: Vec<Page>,
    /// Changes of path or hosts.
    pub conditions: Vec<Condition>,
    /// Measurements.
    pub grids: Vec<Grid>,
    /// Sections of the report.
    pub sections: Vec<Section>,
    /// Claims that no run here can judge.
    pub unchecked: Vec<Unchecked>,
    /// Text of its file, from which a digest can be computed.
    pub text: String,
}

/// Reason why a study cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// No experiment of that name is built in.
    #[error("there is no experiment {name:?}: there are {}", names())]
    Unknown {
        /// Requested name.
        name: String,
    },
    /// The file could not be read.
    #[error("cannot read the experiment {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error from the system.
        source: io::Error,
    },
    /// The file is not a study.
    #[error("{place}: {why}")]
    Wrong {
        /// The file, with the line if it is known.
        place: String,
        /// Fault, and what to write instead.
        why: String,
    },
}

fn names() -> String {
    let names: Vec<&str> = BUILT_IN.iter().chain(&OWN).map(|(name, _)| *name).collect();
    names.join(", ")
}
