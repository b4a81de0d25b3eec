//! A published study as data: `experiments/PAPER.toml`, whose schema is in `experiments/README.md`.

mod check;
mod condition;
mod content;
mod grid;
mod names;
mod parse;
mod pool;
mod section;
mod stated;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use check::once;
pub use condition::{Changes, Condition, Congestion, TlsVersion};
pub use content::{Content, Page};
pub use grid::{Grid, Planned, Shard, ShardError, Workload};
pub use names::{CONTENDERS, PROTOCOLS};
pub(crate) use pool::common;
pub use section::{Figure, FigureKind, Section, Unchecked};
pub use stated::{Found, Kind, Stated, StatedValue};

/// Built-in files, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("mile-high", include_str!("../../../experiments/mile-high.toml")),
    ("aerotcp", include_str!("../../../experiments/aerotcp.toml")),
    ("rural-paws", include_str!("../../../experiments/rural-paws.toml")),
    ("spdy", include_str!("../../../experiments/spdy.toml")),
    ("netforecast", include_str!("../../../experiments/netforecast.toml")),
];

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
    /// No study of that name is built in.
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
    Study::names().collect::<Vec<_>>().join(", ")
}

impl Study {
    /// Names of the built-in studies.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// All built-in studies.
    pub fn all() -> Result<Vec<Self>, StudyError> {
        BUILT_IN
            .iter()
            .map(|(name, text)| Self::parse(name, &format!("experiments/{name}.toml"), text))
            .collect()
    }

    /// Built-in study with this name.
    pub fn named(name: &str) -> Result<Self, StudyError> {
        let unknown = || StudyError::Unknown { name: name.into() };
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        Self::parse(name, &format!("experiments/{name}.toml"), text)
    }

    /// Reads one file, whose name becomes the study's.
    pub fn load(path: &Path) -> Result<Self, StudyError> {
        let read = |source| StudyError::Read { path: path.into(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &path.display().to_string(), &text)
    }

    /// Reads every experiment of a folder, sorted by name: every file that ends in `.toml`, except
    /// `claims.toml`.
    pub fn load_folder(folder: &Path) -> Result<Vec<Self>, StudyError> {
        let read = |source| StudyError::Read { path: folder.into(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let claims = path.file_name().is_some_and(|name| name == "claims.toml");
            if path.extension().is_some_and(|extension| extension == "toml") && !claims {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::load(path)).collect()
    }

    /// Parses the text of a study's file. Errors refer to it as `place`.
    pub fn parse(name: &str, place: &str, text: &str) -> Result<Self, StudyError> {
        let study = parse::parse(name, place, text)?;
        let wrong = |why| StudyError::Wrong { place: place.into(), why };
        check::check(&study).map_err(wrong)?;
        Ok(study)
    }

    /// The grid with this `id`.
    pub fn grid(&self, id: &str) -> Option<&Grid> {
        self.grids.iter().find(|grid| grid.id == id)
    }

    /// The section with this `id`.
    pub fn section(&self, id: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.id == id)
    }

    /// The page with this `id`.
    pub fn page(&self, id: &str) -> Option<&Page> {
        self.pages.iter().find(|page| page.id == id)
    }

    /// The condition with this `id`.
    pub fn condition(&self, id: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.id == id)
    }

    /// Everything to run, always in the same order: the grids in the order of the file, each with
    /// its cells in the order of [`Grid::cells`].
    pub fn plan(&self, quick: bool) -> impl Iterator<Item = (&Grid, &Planned)> {
        self.grids.iter().flat_map(move |grid| {
            let cells = if quick { &grid.quick } else { &grid.cells };
            cells.iter().map(move |planned| (grid, planned))
        })
    }
}
