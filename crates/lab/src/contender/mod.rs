//! Who carries a client's traffic across the link: the kernel's own TCP, a relay, the gateways.

mod bentpipe;
mod direct;
pub mod pair;
pub mod process;
mod split;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::emu::{EmuError, World};
use crate::profile::Profile;
use crate::workload::fetch::Client;
use crate::workload::origin::{Congestion, Origin};
use crate::workload::service::Service;
use pair::{Pair, PairError, Transport};

/// A contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contender {
    /// The kernel's CUBIC from server to client.
    E2eCubic,
    /// The kernel's BBR from server to client.
    E2eBbr,
    /// TCP ended on both sides of the link, BBR between.
    SplitBbr,
    /// The gateways over the radio transport.
    Bentpipe,
    /// The gateways over HTTP/3.
    BentpipeMasque,
    /// The gateways over AeroTCP.
    BentpipeAeroTcp,
}

/// The name is not a contender's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no contender {0:?}: there are {names}", names = Contender::names())]
pub struct UnknownContender(String);

/// Why a contender could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ContenderError {
    /// A host of the lab refused.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The gateways did not start.
    #[error(transparent)]
    Gateways(#[from] PairError),
}

/// Where a contender is set up.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The hosts and the link between them.
    pub world: &'a World,
    /// What the link is.
    pub profile: &'a Profile,
    /// The server's origin.
    pub origin: &'a Origin,
    /// An empty folder of its own.
    pub folder: &'a Path,
    /// The `bentpipe` program, where the gateways come from.
    pub program: &'a Path,
}

/// A contender at work, until it is dropped.
pub struct Running {
    /// How the client reaches the origin through it.
    pub client: Client,
    parts: Parts,
}

/// What has to live as long as the contender.
enum Parts {
    Nothing,
    Relays { _air: Service, _ground: Service },
    Gateways(Pair),
}

impl Running {
    /// Whether its programs still run.
    pub fn check(&mut self) -> Result<(), ContenderError> {
        match &mut self.parts {
            Parts::Gateways(pair) => Ok(pair.check()?),
            Parts::Nothing | Parts::Relays { .. } => Ok(()),
        }
    }

    /// The last lines of its programs, each behind a line break.
    pub fn said(&self) -> String {
        match &self.parts {
            Parts::Gateways(pair) => format!(
                "\nthe air gateway's last lines:\n{}\nthe ground gateway's:\n{}",
                pair.air.tail(),
                pair.ground.tail()
            ),
            Parts::Nothing | Parts::Relays { .. } => String::new(),
        }
    }
}

impl Contender {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::E2eCubic,
        Self::E2eBbr,
        Self::SplitBbr,
        Self::Bentpipe,
        Self::BentpipeMasque,
        Self::BentpipeAeroTcp,
    ];

    /// Those of the demo.
    pub const DEMO: [Self; 4] = [Self::E2eCubic, Self::E2eBbr, Self::SplitBbr, Self::Bentpipe];

    /// What tables and options call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::E2eCubic => "e2e-cubic",
            Self::E2eBbr => "e2e-bbr",
            Self::SplitBbr => "split-bbr",
            Self::Bentpipe => "bentpipe",
            Self::BentpipeMasque => "bentpipe-masque",
            Self::BentpipeAeroTcp => "bentpipe-aerotcp",
        }
    }

    /// Whether it is a pair of our gateways.
    pub fn is_gateways(self) -> bool {
        matches!(self, Self::Bentpipe | Self::BentpipeMasque | Self::BentpipeAeroTcp)
    }

    /// Sets it up on `stage`.
    pub fn start(self, stage: &Stage<'_>) -> Result<Running, ContenderError> {
        match self {
            Self::E2eCubic => Ok(direct::start(stage, Congestion::Cubic)),
            Self::E2eBbr => Ok(direct::start(stage, Congestion::Bbr)),
            Self::SplitBbr => split::start(stage),
            Self::Bentpipe => bentpipe::start(stage, Transport::Link),
            Self::BentpipeMasque => bentpipe::start(stage, Transport::Masque),
            Self::BentpipeAeroTcp => bentpipe::start(stage, Transport::AeroTcp),
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contender {
    type Err = UnknownContender;

    fn from_str(text: &str) -> Result<Self, UnknownContender> {
        let known = Self::ALL.into_iter().find(|contender| contender.name() == text);
        known.ok_or_else(|| UnknownContender(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_an_unknown_one_lists_all() {
        for contender in Contender::ALL {
            assert_eq!(contender.name().parse(), Ok(contender));
        }
        let error = "pepsal".parse::<Contender>().unwrap_err().to_string();
        assert!(error.contains("\"pepsal\"") && error.contains("split-bbr, bentpipe"), "{error}");
    }
}
