//! Systems under test that carry a client's traffic across the link: the kernel's own TCP, a relay,
//! a tunnel, the gateways.
//!
//! Clients open ordinary connections to the server's addresses; a contender takes what crosses its
//! air host (nftables' TPROXY) or leaves it be. One contender is one small file and its line in
//! [`all`]; what several share is in `routed`, `relay` and `gateways`.

pub mod aerotcp;
mod bentpipe;
mod bentpipe_aerotcp;
mod bentpipe_masque;
mod bentpipe_plain;
mod bentpipe_services;
mod e2e_bbr;
mod e2e_cubic;
mod e2e_cubic_64k;
mod e2e_reno;
mod gateways;
mod intercept;
pub mod kcptun;
pub mod pair;
mod pep_fixed;
mod pep_http;
pub mod process;
mod relay;
mod routed;
mod split_bbr;
mod split_cubic;
mod split_reno;

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use crate::emu::{EmuError, World};
use crate::profile::Profile;
use crate::workload::origin::Congestion;
use crate::workload::service::NotReady;
pub use bentpipe::BENTPIPE;
pub use bentpipe_aerotcp::BENTPIPE_AEROTCP;
pub use bentpipe_masque::BENTPIPE_MASQUE;
pub use bentpipe_plain::BENTPIPE_PLAIN;
pub use bentpipe_services::BENTPIPE_SERVICES;
pub use e2e_bbr::E2E_BBR;
pub use e2e_cubic::E2E_CUBIC;
pub use e2e_cubic_64k::E2E_CUBIC_64K;
pub use e2e_reno::E2E_RENO;
pub use gateways::roomy;
pub use kcptun::KCPTUN;
use pair::PairError;
pub use pep_fixed::PEP_FIXED;
pub use pep_http::PEP_HTTP;
pub use split_bbr::SPLIT_BBR;
pub use split_cubic::SPLIT_CUBIC;
pub use split_reno::SPLIT_RENO;

/// A way of getting bytes across the link.
pub trait Contender: Sync + fmt::Debug {
    /// Name in tables and options.
    fn name(&self) -> &'static str;

    /// Description, in a sentence or two.
    fn about(&self) -> &'static str;

    /// Congestion control of TCP at client and server.
    fn ends(&self) -> Congestion {
        Congestion::Cubic
    }

    /// Limit of the receive windows of client and server, in bytes, if any.
    fn receive_window(&self) -> Option<u32> {
        None
    }

    /// Returns `true` if TCP of the air and the ground host carries its flows across the link. An
    /// experiment's settings for the start of connections and for pauses then apply there too.
    fn has_tcp_on_link(&self) -> bool {
        false
    }

    /// Returns `true` if it carries UDP between client and server across the link; otherwise UDP is
    /// routed as it is, or refused.
    fn carries_udp(&self) -> bool;

    /// Returns `true` if its first flow waits for a handshake or a start that later ones do not
    /// need.
    fn starts_cold(&self) -> bool;

    /// Spread of its transfers, which decides the number of runs.
    fn spread(&self) -> Spread;

    /// Sets it up on `stage`.
    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, ContenderError>;
}

/// Spread of the times of transfers over a lossy link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Hardly: only the tail wants many runs.
    Narrow,
    /// Loss does not slow it down, but each loss costs time.
    Wide,
    /// Loss slows it down: runs take long and differ much.
    Slow,
}

impl From<Congestion> for Spread {
    /// Spread of its transfers across the link: CUBIC and Reno take loss for congestion.
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Reno | Congestion::Cubic => Self::Slow,
            Congestion::Bbr => Self::Wide,
        }
    }
}

/// A contender at work, until it is dropped.
pub trait Running: Send {
    /// Checks that its programs still run.
    fn check(&mut self) -> Result<(), ContenderError> {
        Ok(())
    }

    /// The last lines of its programs, each behind a line break.
    fn said(&self) -> String {
        String::new()
    }

    /// Connections that it reset for want of room.
    fn resets(&self) -> u64 {
        0
    }
}

/// Place in which a contender is set up.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// The hosts and the link between them.
    pub world: &'a World,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// An empty folder of its own.
    pub folder: &'a Path,
    /// The `bentpipe` program, where the gateways come from.
    pub program: &'a Path,
    /// Names of the server's addresses, for who resolves them on the ground.
    pub hosts: &'a [(String, IpAddr)],
    /// Settings of the experiment for contenders, each key beginning with its contender's kind
    /// (`pep-buffer-bytes`); other keys are ignored here.
    pub settings: &'a toml::Table,
}

/// The name is not a contender's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no contender {0:?}: there are {names}", names = names())]
pub struct UnknownContender(String);

/// Reason for which a contender could not be set up, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ContenderError {
    /// A host of the lab refused.
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
    /// The kernel would not have it.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// Action that failed.
        doing: &'static str,
        /// Error of the system.
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
    /// Sources would be told to stop before anything has come.
    #[error(
        "pep-reserve-bytes = {reserve} leaves nothing of pep-buffer-bytes = {buffer}: make it smaller"
    )]
    Reserve {
        /// Size that must stay free.
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
    /// A program ended.
    #[error("{program} ended:\n{said}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its last words.
        said: String,
    },
}

impl Stage<'_> {
    /// The setting `key`, a number of bytes above 0.
    fn bytes(&self, key: &'static str, default: usize) -> Result<usize, ContenderError> {
        let Some(value) = self.settings.get(key) else { return Ok(default) };
        let bytes = value.as_integer().and_then(|bytes| usize::try_from(bytes).ok());
        let (value, example) = (value.to_string(), "4_000_000");
        let wrong = || ContenderError::Setting { key, value, example };
        bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)
    }
}

/// First the kernel's own, then what splits, then the gateways.
static ALL: &[&dyn Contender] = &[
    &E2E_RENO,
    &E2E_CUBIC,
    &E2E_BBR,
    &E2E_CUBIC_64K,
    &SPLIT_RENO,
    &SPLIT_CUBIC,
    &SPLIT_BBR,
    &PEP_FIXED,
    &PEP_HTTP,
    &KCPTUN,
    &BENTPIPE,
    &BENTPIPE_PLAIN,
    &BENTPIPE_MASQUE,
    &BENTPIPE_AEROTCP,
    &BENTPIPE_SERVICES,
];

/// All there are.
pub fn all() -> &'static [&'static dyn Contender] {
    ALL
}

/// Those of the demo.
pub fn demo() -> Vec<&'static dyn Contender> {
    vec![&E2E_CUBIC, &E2E_BBR, &SPLIT_BBR, &BENTPIPE]
}

/// The one that is called `name`.
pub fn named(name: &str) -> Result<&'static dyn Contender, UnknownContender> {
    let known = all().iter().find(|contender| contender.name() == name);
    known.copied().ok_or_else(|| UnknownContender(name.into()))
}

fn names() -> String {
    all().iter().map(|contender| contender.name()).collect::<Vec<_>>().join(", ")
}

// A contender is known by its name.

impl PartialEq for dyn Contender + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Contender + '_ {}

impl PartialOrd for dyn Contender + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Contender + '_ {
    /// In the order of [`all`].
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |name| all().iter().position(|contender| contender.name() == name);
        place(self.name()).cmp(&place(other.name())).then(self.name().cmp(other.name()))
    }
}

impl fmt::Display for dyn Contender + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_an_unknown_one_lists_all() {
        for contender in all() {
            assert_eq!(named(contender.name()).unwrap(), *contender);
            assert!(contender.about().ends_with('.'), "{contender}");
        }
        let error = named("pepsal").unwrap_err().to_string();
        for contender in all() {
            assert!(error.contains(contender.name()), "{error}");
        }
    }
}
