//! The interface of a system under test, and the environment in which it is set up.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use super::pair_error::PairError;
use crate::emu::{Congestion, EmuError, NotReady, Testbed};
use crate::profile::Profile;

/// A way of getting bytes across the link.
pub trait SystemUnderTest: Sync + fmt::Debug {
    /// Name in tables and options.
    fn name(&self) -> &'static str;

    /// Description in one or two sentences.
    fn about(&self) -> &'static str;

    /// Congestion control of TCP at client and server.
    fn ends(&self) -> Congestion {
        Congestion::Cubic
    }

    /// Maximum receive window of client and server in bytes, if limited.
    fn receive_window(&self) -> Option<u32> {
        None
    }

    /// Returns `true` if TCP connections of the air and the ground host carry the flows across the
    /// link. An experiment's settings for connection start and idle periods then apply there too.
    fn has_tcp_on_link(&self) -> bool {
        false
    }

    /// Returns `true` if it sends at a granted rate, whatever the losses.
    fn is_granted(&self) -> bool {
        false
    }

    /// Returns `true` if it carries UDP between client and server across the link. Otherwise UDP is
    /// routed unchanged or refused.
    fn carries_udp(&self) -> bool;

    /// Returns `true` if its first flow waits for a handshake or a start-up that later flows skip.
    fn starts_cold(&self) -> bool;

    /// Spread of its transfer times, which decides the number of runs.
    fn spread(&self) -> Spread;

    /// Sets it up on `stage`.
    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, SystemError>;
}

/// Spread of the times of transfers over a lossy link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Small spread: only tail percentiles need many runs.
    Narrow,
    /// Loss does not lower the rate, but each loss costs time.
    Wide,
    /// Loss lowers the rate: runs take long and differ widely.
    Slow,
}

impl From<Congestion> for Spread {
    /// Spread of transfers with this congestion control. CUBIC and Reno treat loss as congestion.
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Reno | Congestion::Cubic => Self::Slow,
            Congestion::Bbr => Self::Wide,
        }
    }
}

/// A running system under test. It runs until dropped.
pub trait Running: Send {
    /// Checks that its programs still run.
    fn check(&mut self) -> Result<(), SystemError> {
        Ok(())
    }

    /// Last lines of output of its programs, each after a line break.
    fn said(&self) -> String {
        String::new()
    }

    /// Number of connections that it reset because it ran out of memory.
    fn resets(&self) -> u64 {
        0
    }
}

/// Environment in which a system under test is set up.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// The hosts and the link between them.
    pub testbed: &'a Testbed,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// Profiles of further links, which a session uses together with that one.
    pub beside: &'a [Profile],
    /// An empty folder for its files.
    pub folder: &'a Path,
    /// The `bentpipe` program, which contains the gateways.
    pub program: &'a Path,
    /// Names of the server's addresses, for a system that resolves them on the ground.
    pub hosts: &'a [(String, IpAddr)],
    /// The experiment's settings for systems under test. Each key begins with the kind of its
    /// system (`pep-buffer-bytes`); other keys are ignored here.
    pub settings: &'a toml::Table,
}

/// Reason why a system under test could not be set up, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The emulator reported an error.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The gateways did not start.
    #[error(transparent)]
    Gateways(#[from] PairError),
    /// One of its halves did not start.
    #[error("the {half} half did not start: {why}")]
    Half {
        /// `air` or `ground`.
        half: &'static str,
        /// Its own message.
        why: NotReady,
    },
    /// The kernel refused an operation.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// Action that failed.
        doing: &'static str,
        /// Error from the system.
        source: std::io::Error,
    },
    /// A setting of the experiment cannot be used.
    #[error("the setting {key} = {value} cannot be used: write it like {key} = {example}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// A valid value.
        example: &'static str,
    },
    /// The reserve is as large as the buffer, so sources would stop before any data arrives.
    #[error(
        "pep-reserve-bytes = {reserve} leaves nothing of pep-buffer-bytes = {buffer}: make it smaller"
    )]
    Reserve {
        /// Size that must remain free.
        reserve: usize,
        /// Size of the buffer.
        buffer: usize,
    },
    /// A program is not installed.
    #[error("{program} is not installed: `scripts/setup.sh kcptun` installs it")]
    Missing {
        /// The program.
        program: &'static str,
    },
    /// The kernel has no MPTCP.
    #[error(
        "the kernel lacks MPTCP ({0}): it needs CONFIG_MPTCP (Linux 5.6), and \
         `sysctl net.mptcp.enabled` has to be 1"
    )]
    NoMptcp(#[source] std::io::Error),
    /// A program ended.
    #[error("{program} ended:\n{said}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its last lines of output.
        said: String,
    },
}

impl Stage<'_> {
    /// Value of the setting `key`, a number of bytes above 0.
    pub(super) fn bytes(&self, key: &'static str, default: usize) -> Result<usize, SystemError> {
        let Some(value) = self.settings.get(key) else { return Ok(default) };
        let bytes = value.as_integer().and_then(|bytes| usize::try_from(bytes).ok());
        let (value, example) = (value.to_string(), "4_000_000");
        let wrong = || SystemError::Setting { key, value, example };
        bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
    }
}
