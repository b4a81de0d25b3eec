//! Capacity of the gateways and their code on this machine.

mod cpu;
pub mod download;
pub mod hub;
pub mod idle;
pub mod link;
mod quic;
pub mod relay;
pub mod shards;

use crate::emu::EmuError;
use crate::profile::ProfileError;
use crate::system::pair::PairError;

/// Reason why a benchmark has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The emulator could not be brought up.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link's profile could not be loaded.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The gateways did not start.
    #[error(transparent)]
    Gateways(#[from] PairError),
    /// A transfer failed.
    #[error("cannot {doing}: {why}")]
    Transfer {
        /// Action that failed.
        doing: &'static str,
        /// Cause.
        why: String,
    },
}

/// Converts an error for `map_err`: `doing` failed.
fn failed<E: std::fmt::Display>(doing: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Transfer { doing, why: error.to_string() }
}
