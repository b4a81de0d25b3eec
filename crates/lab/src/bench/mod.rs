//! Capacity of the gateways and their code on this machine.

pub mod coding;
mod cpu;
pub mod hub;
pub mod idle;
pub mod link;
mod quic;
pub mod relay;
pub mod schedule;

use crate::contender::pair::PairError;
use crate::emu::EmuError;
use crate::profile::ProfileError;

/// Reason for which a bench found nothing.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The emulator could not be brought up.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link could not be had.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The gateways did not start.
    #[error(transparent)]
    Gateways(#[from] PairError),
    /// A transfer did not work.
    #[error("cannot {doing}: {why}")]
    Transfer {
        /// Action that failed.
        doing: &'static str,
        /// Cause.
        why: String,
    },
}

/// For `map_err`: `doing` did not work.
fn failed<E: std::fmt::Display>(doing: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Transfer { doing, why: error.to_string() }
}
