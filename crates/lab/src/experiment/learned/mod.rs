//! Sessions whose rate nobody typed: how much of a path they find, how fast, and what they leave to
//! others.
//!
//! [`cells`] lists the cells with their bounds. [`play`] runs them with the rate typed, without a
//! rate, or learned ([`Lease`]): all in virtual time, and those that real hosts can play also between
//! real kernels ([`Cell::is_emulated`]).

pub mod cells;
mod chart;
mod emulated;
mod experiment;
pub mod figure;
pub mod links;
mod plan;
pub mod play;
mod stage;
mod traces;
mod traffic;

use std::fmt;
use std::str::FromStr;

use bentpipe_link::{Control, LeaseMode, Settings};
use bentpipe_units::BitRate;

pub use cells::Cell;
pub use experiment::LearnedRate;
pub use figure::{Figure, Found, Target};
pub use play::Outcome;

/// Cap of a session without a typed rate. No link of the cells is as fast.
pub const CAP: BitRate = BitRate::from_bps(1_000_000_000);

/// Origin of the rate of the session under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// No rate: CUBIC.
    None,
    /// The rate of the link, typed at both ends.
    Static,
    /// The session finds the rate.
    Learned,
}

/// The session cannot run with this lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// No lease has this name.
    #[error("there is no lease {0:?}: write none, static or learned")]
    Unknown(String),
}

impl Lease {
    /// Settings of one end that sends over a link of `rate`.
    pub fn settings(self, rate: Option<BitRate>) -> Result<Settings, LeaseError> {
        let typed = Settings { rate: rate.unwrap_or(CAP), ..Settings::default() };
        match self {
            Self::None => Ok(Settings { rate: CAP, control: Control::Congestion, ..typed }),
            Self::Static => Ok(typed),
            Self::Learned => Ok(Settings { rate: CAP, lease: LeaseMode::Learned, ..typed }),
        }
    }
}

impl FromStr for Lease {
    type Err = LeaseError;

    fn from_str(text: &str) -> Result<Self, LeaseError> {
        match text {
            "none" => Ok(Self::None),
            "static" => Ok(Self::Static),
            "learned" => Ok(Self::Learned),
            _ => Err(LeaseError::Unknown(text.into())),
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Static => "static",
            Self::Learned => "learned",
        })
    }
}
