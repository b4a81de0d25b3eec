//! Experiments: contenders and workloads on a profile, each in a world of its own.

pub mod attacks;
pub mod browse;
pub mod browser;
pub mod browser_quic;
pub mod cabin_mix;
pub mod call;
pub mod cell;
pub mod choice;
pub mod compare;
pub mod dns;
pub mod gate;
pub mod grid;
pub mod http_cache;
pub mod latency;
pub mod measure;
pub mod pages;
pub mod pages_browser;
pub mod progress;
pub mod replay;
pub mod report;
pub mod rural_paws;
pub mod table;
pub mod transfers;

use crate::contender::ContenderError;
use crate::emu::{EmuError, MeasureError};
use crate::workload::chromium::ChromiumError;
use crate::workload::fetch::FetchError;

/// Reason for which an experiment reports nothing.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The emulator could not be brought up.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link is not the declared one.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// A contender could not be set up.
    #[error("{contender}: {source}")]
    Contender {
        /// The contender.
        contender: &'static str,
        /// Cause.
        source: ContenderError,
    },
    /// No page in a browser.
    #[error(transparent)]
    Chromium(#[from] ChromiumError),
    /// A gateway could not be started in a host of the lab.
    #[error("the {which} gateway: {why}")]
    Gateway {
        /// `air` or `ground`.
        which: &'static str,
        /// Cause.
        why: String,
    },
    /// A passenger's open connection ended early, or brought bytes that nobody had sent: a fault of
    /// the system that carries it.
    #[error("{0}")]
    Passenger(String),
    /// The lab could not do its own part.
    #[error("{0}")]
    Lab(String),
    /// Nothing comes through a contender.
    #[error("{contender}: nothing came through within {seconds} s{why}")]
    Silent {
        /// The contender.
        contender: &'static str,
        /// Time of the attempts.
        seconds: u64,
        /// Last observation.
        why: String,
    },
    /// A contender delivered wrong bytes.
    #[error("{contender}: {source}")]
    Damaged {
        /// The contender.
        contender: &'static str,
        /// Cause.
        source: FetchError,
    },
    /// The emulator itself lost packets.
    #[error(
        "the emulator lost {0} packets that its model let pass: this machine is too busy; run \
         fewer worlds at once"
    )]
    Unmodelled(u64),
    /// A folder for keys and configs could not be made.
    #[error("cannot make a folder for keys and configs: {0}")]
    Folder(#[source] std::io::Error),
}
