//! Errors that end a world, and if another may do better.

use bentpipe_lab::browser::BrowserError;
use bentpipe_lab::contender::{self, ContenderError};
use bentpipe_lab::emu::{EmuError, MeasureError};
use bentpipe_lab::experiment::ExperimentError;

use super::SILENCE;
use crate::lateness::TooLate;
use crate::link::SceneError;
use crate::raw::RawError;
use crate::settle::DRAIN;
use crate::workload::WorkError;
use crate::workload::page::SiteError;

/// Reason for which a world gave nothing, or nothing more.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The emulator could not be brought up.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link is not the declared one.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// There is no such contender.
    #[error(transparent)]
    Unknown(#[from] contender::UnknownContender),
    /// A contender could not be set up, or has ended.
    #[error("{name}: {source}{said}")]
    Contender {
        /// The contender.
        name: &'static str,
        /// Cause.
        source: ContenderError,
        /// Its last message.
        said: String,
    },
    /// Nothing comes through a contender.
    #[error("{name}: nothing came through within {} s ({why}){said}", SILENCE.as_secs())]
    Silent {
        /// The contender.
        name: &'static str,
        /// Last observation.
        why: String,
        /// Its last message.
        said: String,
    },
    /// The emulator was late.
    #[error(transparent)]
    Late(#[from] TooLate),
    /// Traffic that a run left behind does not end.
    #[error("{name}: what a run left on the link was still under way {} s later", DRAIN.as_secs())]
    Undrained {
        /// The contender.
        name: &'static str,
    },
    /// The emulator itself lost packets.
    #[error(
        "the emulator lost {0} packets that its model let pass: this machine is too busy; run \
         fewer worlds at once (--jobs)"
    )]
    Unmodelled(u64),
    /// The page cannot be made.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A run gave nothing.
    #[error("{name}: {source}{said}")]
    Work {
        /// The contender.
        name: &'static str,
        /// Cause.
        source: WorkError,
        /// Last message of the contender.
        said: String,
    },
    /// The settings of a cell of Rural-PAWS's policy cannot be used.
    #[error(transparent)]
    Declared(#[from] SceneError),
    /// The policy of Rural-PAWS could not be run.
    #[error(transparent)]
    Policy(#[from] ExperimentError),
    /// A file of the raw results.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// A folder for keys and configs could not be made.
    #[error("cannot make a folder for keys and configs: {0}")]
    Folder(#[from] std::io::Error),
}

impl WorldError {
    /// Returns `true` if another attempt may end otherwise.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Site(_) | Self::Declared(_) | Self::Raw(_) => false,
            Self::Contender { source, .. } => !matches!(
                source,
                ContenderError::Missing { .. }
                    | ContenderError::Setting { .. }
                    | ContenderError::Reserve { .. }
            ),
            Self::Work { source, .. } => match source {
                WorkError::Cannot(_) => false,
                WorkError::Site(error) => {
                    !matches!(error, SiteError::Browser(BrowserError::NotInstalled))
                }
                _ => true,
            },
            _ => true,
        }
    }

    /// Returns `true` if this machine was too busy, which may be over later.
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Unmodelled(_) | Self::Measure(_))
    }

    /// Returns `true` if it concerns the run in progress, and says nothing of others in its world.
    pub fn is_of_run(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Work { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(source: ContenderError) -> WorldError {
        WorldError::Contender { name: "kcptun", source, said: String::new() }
    }

    fn work(source: WorkError) -> WorldError {
        WorldError::Work { name: "bentpipe", source, said: String::new() }
    }

    #[test]
    fn what_is_not_installed_is_not_tried_again() {
        let error = missing(ContenderError::Missing { program: "kcptun-server" });
        assert!(!error.may_pass() && error.to_string().contains("scripts/setup.sh kcptun"));
        let ended = ContenderError::Ended { program: "kcptun-server", said: String::new() };
        assert!(missing(ended).may_pass());
        let error = work(SiteError::Browser(BrowserError::NotInstalled).into());
        assert!(!error.may_pass() && error.to_string().contains("scripts/setup.sh browser"));
        assert!(error.is_of_run());
        let late = WorldError::from(TooLate { mean_ms: 2.0, stalled: 0, delivered: 9 });
        assert!(late.may_pass() && late.is_of_machine() && late.is_of_run());
    }
}
