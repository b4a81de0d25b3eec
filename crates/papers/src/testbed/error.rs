//! Errors that end a testbed, and whether another one may succeed.

use bentpipe_lab::browser::BrowserError;
use bentpipe_lab::emu::{EmuError, MeasureError, TooLate};
use bentpipe_lab::experiment::stand::StandError;
use bentpipe_lab::system::{self, SystemError};

use crate::link::SceneError;
use crate::raw::RawError;
use crate::settle::DRAIN;
use crate::workload::{SiteError, WorkError};

/// Reason why a testbed gave no results, or no further ones.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The emulator could not be started.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link does not match its specification.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The system under test is unknown.
    #[error(transparent)]
    Unknown(#[from] system::UnknownSystem),
    /// The testbed could not be set up, or its system under test has ended or passes no data.
    #[error(transparent)]
    Stand(#[from] StandError),
    /// The emulator was late.
    #[error(transparent)]
    Late(#[from] TooLate),
    /// Traffic left by a run does not end.
    #[error("{name}: what a run left on the link was still under way {} s later", DRAIN.as_secs())]
    Undrained {
        /// Name of the system.
        name: &'static str,
    },
    /// The emulator itself lost packets.
    #[error(
        "the emulator lost {0} packets that its model let pass: this machine is too busy; run \
         fewer testbeds at once (--jobs)"
    )]
    Unmodelled(u64),
    /// The page cannot be served.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A run gave no results.
    #[error("{name}: {source}{said}")]
    Work {
        /// Name of the system.
        name: &'static str,
        /// Cause.
        source: WorkError,
        /// Last message of the system.
        said: String,
    },
    /// The settings of a cell of the Rural-PAWS policy are invalid.
    #[error(transparent)]
    Declared(#[from] SceneError),
    /// The Rural-PAWS policy could not be run.
    #[error("{0}")]
    Policy(anyhow::Error),
    /// A file of the raw data could not be written.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// A folder for keys and configurations could not be created.
    #[error("cannot make a folder for keys and configs: {0}")]
    Folder(#[from] std::io::Error),
}

impl TestbedError {
    /// Returns `true` if another attempt may succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Site(_) | Self::Declared(_) | Self::Raw(_) => false,
            Self::Stand(StandError::SystemUnderTest { source, .. }) => !matches!(
                source,
                SystemError::Missing { .. }
                    | SystemError::Setting { .. }
                    | SystemError::Reserve { .. }
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

    /// Returns `true` if this machine was too busy, which may change.
    pub fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::Late(_)
                | Self::Unmodelled(_)
                | Self::Measure(_)
                | Self::Stand(StandError::Measure(_))
        )
    }

    /// Returns `true` if the error concerns only the run in progress, and not others in its
    /// testbed.
    pub fn is_of_run(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Work { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(source: SystemError) -> TestbedError {
        StandError::SystemUnderTest { name: "kcptun", source, said: String::new() }.into()
    }

    fn work(source: WorkError) -> TestbedError {
        TestbedError::Work { name: "bentpipe", source, said: String::new() }
    }

    #[test]
    fn a_missing_program_is_not_retried() {
        let error = missing(SystemError::Missing { program: "kcptun-server" });
        assert!(!error.may_pass() && error.to_string().contains("scripts/setup.sh kcptun"));
        let ended = SystemError::Ended { program: "kcptun-server", said: String::new() };
        assert!(missing(ended).may_pass());
        let error = work(SiteError::Browser(BrowserError::NotInstalled).into());
        assert!(!error.may_pass() && error.to_string().contains("scripts/setup.sh browser"));
        assert!(error.is_of_run());
        let late = TestbedError::from(TooLate { mean_ms: 2.0, stalled: 0, delivered: 9 });
        assert!(late.may_pass() && late.is_of_machine() && late.is_of_run());
    }
}
