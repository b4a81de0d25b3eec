//! Loss × burst × link × workload: the distance of the radio transport from the limit in every
//! case.
//!
//! A *cell* is a link with a loss. A *work* is the traffic on it. An outcome is the result of one
//! work in one cell. The limit is RTT + 8·bytes/((1−p)·rate) of the radio link; next to another
//! passenger's bulk it assumes half the rate.
//!
//! In `sim`, a work is divided among several sessions with different seeds, which are warmed up
//! before the measurement ([`sim`]). The complete grid is committed in `docs/grids` ([`golden`]).
//! [`targets`] lists its targets.

pub mod emu;
pub mod golden;
pub mod outcome;
pub mod sim;
pub mod table;
pub mod targets;
pub mod traffic;

use std::fmt;
use std::str::FromStr;

use bentpipe_channel::SpecError;
use bentpipe_units::Ratio;

use crate::profile::{Profile, ProfileError};
use crate::workload::{UnknownWorkload, Workload};
pub use outcome::Outcome;

/// The grid's links.
pub const PROFILES: [&str; 4] = ["da2gc", "mss", "geo-satl", "aero"];
/// The grid's losses, in per cent, in both directions.
pub const LOSSES: [f64; 7] = [0.0, 1.0, 3.3, 6.0, 10.0, 20.0, 40.0];
/// The grid's mean bursts, in packet times; 1 is independent loss.
pub const BURSTS: [f64; 3] = [1.0, 4.0, 20.0];
/// Works carried in every cell.
pub const WORKS: [&str; 4] = ["bulk", "object-10k", "object-100k", "object-1m"];

/// Suffix of a work that shares the link with another passenger's bulk.
const BESIDE_BULK: &str = "-beside-bulk";

/// A link with a given loss instead of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Name of the link's profile.
    pub profile: String,
    /// Loss in each direction.
    pub loss: Ratio,
    /// Mean burst in packet times; 1 is independent loss.
    pub burst: f64,
}

/// Traffic in a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// An object or bulk.
    pub workload: Workload,
    /// `true` if another passenger downloads endlessly at the same time.
    pub beside_bulk: bool,
}

/// No work has this name.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkError {
    /// No workload has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownWorkload),
    /// A page needs a client that parses it, so the grid does not support it.
    #[error(
        "{0:?} is not carried by the grid: write bulk, object-SIZE or file-SIZE, the latter two also with {BESIDE_BULK}"
    )]
    NotCarried(String),
}

/// Selection of runs. An empty list means the grid's own.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Links by name.
    pub profiles: Vec<String>,
    /// Losses.
    pub losses: Vec<Ratio>,
    /// Bursts.
    pub bursts: Vec<f64>,
    /// Works.
    pub works: Vec<Work>,
}

impl Cell {
    /// The radio link alone: the server is next to the ground gateway.
    pub fn link(&self) -> Result<Profile, CellError> {
        let profile = Profile::find(&self.profile)?;
        let error = |source| CellError::Loss { cell: self.to_string(), source };
        let profile = profile.with_loss(self.loss, self.burst).map_err(error)?;
        Ok(Profile { terrestrial: None, ..profile })
    }
}

/// The cell is impossible.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The profile could not be loaded.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The loss is impossible.
    #[error("{cell}: {source}")]
    Loss {
        /// The cell.
        cell: String,
        /// Cause.
        source: SpecError,
    },
    /// The link has no rate, so there is no limit to compare with.
    #[error("{0} has no rate, and the grid is about shares of it")]
    NoRate(String),
}

impl Choice {
    /// The chosen cells and works: all combinations, and those of the targets that the selection
    /// does not exclude. Without loss, bursts have no meaning.
    pub fn all(&self) -> Vec<(Cell, Work)> {
        let or = |chosen: &[String], all: &[&str]| match chosen {
            [] => all.iter().map(|name| (*name).to_owned()).collect(),
            chosen => chosen.to_vec(),
        };
        let losses = match &self.losses[..] {
            [] => LOSSES.iter().map(|loss| percent(*loss)).collect(),
            losses => losses.to_vec(),
        };
        let bursts = if self.bursts.is_empty() { BURSTS.to_vec() } else { self.bursts.clone() };
        let works = if self.works.is_empty() { works() } else { self.works.clone() };
        let mut all = Vec::new();
        for profile in or(&self.profiles, &PROFILES) {
            for loss in &losses {
                let clean = *loss == Ratio::ZERO;
                for burst in if clean { &[1.0][..] } else { &bursts[..] } {
                    let cell = Cell { profile: profile.clone(), loss: *loss, burst: *burst };
                    all.extend(works.iter().map(|work| (cell.clone(), work.clone())));
                }
            }
        }
        for (cell, work) in targets::all().into_iter().map(|target| (target.cell, target.work)) {
            let one = (cell, work);
            if self.allows(&one) && !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    fn allows(&self, (cell, work): &(Cell, Work)) -> bool {
        (self.profiles.is_empty() || self.profiles.contains(&cell.profile))
            && (self.losses.is_empty() || self.losses.contains(&cell.loss))
            && (self.bursts.is_empty() || self.bursts.contains(&cell.burst))
            && (self.works.is_empty() || self.works.contains(work))
    }
}

/// Converts per cent, as in the constants above.
fn percent(value: f64) -> Ratio {
    Ratio::new(value / 100.0).expect("the grid's losses are below 100 %")
}

/// Works of every cell.
fn works() -> Vec<Work> {
    WORKS.iter().map(|name| name.parse().expect("the grid's names parse")).collect()
}

impl FromStr for Work {
    type Err = WorkError;

    fn from_str(text: &str) -> Result<Self, WorkError> {
        let (name, beside_bulk) = match text.strip_suffix(BESIDE_BULK) {
            Some(name) => (name, true),
            None => (text, false),
        };
        let workload: Workload = name.parse()?;
        match workload {
            Workload::Object { .. } => {}
            Workload::Bulk if !beside_bulk => {}
            _ => return Err(WorkError::NotCarried(text.to_owned())),
        }
        Ok(Self { workload, beside_bulk })
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = if self.beside_bulk { BESIDE_BULK } else { "" };
        f.pad(&format!("{}{beside}", self.workload))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.burst {
            1.0 => write!(f, "{}, {}", self.profile, self.loss),
            burst => write!(f, "{}, {} in bursts of {burst}", self.profile, self.loss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_has_every_combination_and_every_target() {
        let all = Choice::default().all();
        let targets = targets::all();
        assert!(targets.iter().all(|t| all.contains(&(t.cell.clone(), t.work.clone()))));
        let product = |name: &str| all.iter().filter(|(_, work)| work.to_string() == name).count();
        // Four links, each with one cell without loss, and six losses with three bursts. A target
        // adds one more.
        assert_eq!([product("bulk"), product("object-1m")], [4 * (1 + 6 * 3), 4 * (1 + 6 * 3) + 1]);
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), "no cell twice");
        assert!(all.iter().all(|(cell, _)| cell.link().is_ok()));
    }

    #[test]
    fn a_choice_leaves_out_what_it_does_not_name() {
        let choice = Choice {
            profiles: vec!["mss".into()],
            losses: vec![percent(6.0)],
            bursts: vec![1.0],
            ..Choice::default()
        };
        let names: Vec<_> = choice.all().iter().map(|(_, work)| work.to_string()).collect();
        let beside = ["object-10k-beside-bulk", "object-100k-beside-bulk"];
        assert_eq!(names, [&WORKS[..], &beside[..]].concat());
        let one = Choice { works: vec!["bulk".parse().unwrap()], ..choice };
        assert_eq!(one.all().len(), 1);
    }

    #[test]
    fn works_read_back() {
        for name in ["bulk", "object-10k", "file-10mib", "object-100k-beside-bulk"] {
            assert_eq!(name.parse::<Work>().unwrap().to_string(), name);
        }
        for name in ["page-25", "bulk-beside-bulk", "object-10k-beside", "video"] {
            let error = name.parse::<Work>().unwrap_err().to_string();
            assert!(error.contains(name.split("-beside").next().unwrap()), "{error}");
        }
    }
}
