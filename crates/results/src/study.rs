//! A published study as data: `experiments/PAPER.toml`, whose schema is in `experiments/README.md`.

mod check;
mod condition;
mod content;
mod definition;
mod grid;
mod names;
mod parse;
mod pool;
mod section;
mod stated;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

pub(crate) use check::once;
pub use condition::{Changes, Condition, Congestion, TlsVersion};
pub use content::{Content, Page};
use definition::{BUILT_IN, OWN};
pub use definition::{Study, StudyError};
pub use grid::{Grid, Planned, Shard, ShardError, Workload};
pub use names::{PROTOCOLS, SYSTEMS};
pub(crate) use pool::common;
pub use section::{Figure, FigureKind, Section, Spread, Unchecked};
pub use stated::{Found, Kind, Stated, StatedValue};

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

    /// Our own experiments in the same form, which repeat no published study.
    pub fn own() -> Result<Vec<Self>, StudyError> {
        OWN.iter().map(|(name, _)| Self::named(name)).collect()
    }

    /// Built-in study, or experiment of our own, with this name.
    pub fn named(name: &str) -> Result<Self, StudyError> {
        let unknown = || StudyError::Unknown { name: name.into() };
        let mut all = BUILT_IN.iter().chain(&OWN);
        let (name, text) = all.find(|(known, _)| *known == name).ok_or_else(unknown)?;
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
