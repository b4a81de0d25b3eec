//! A cell of the grid, and the traffic on it.

use std::fmt;
use std::str::FromStr;

use bentpipe_channel::SpecError;
use bentpipe_units::Ratio;

use crate::profile::{Profile, ProfileError};
use crate::workload::{UnknownWorkload, Workload};

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

/// Converts per cent, as in the constants above.
pub(super) fn percent(value: f64) -> Ratio {
    Ratio::new(value / 100.0).expect("the grid's losses are below 100 %")
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
