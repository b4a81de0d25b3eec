//! Systems under test that carry a client's traffic across the link: the kernel's own TCP, a relay,
//! a tunnel, the gateways.
//!
//! Clients open ordinary connections to the server's addresses. A system under test intercepts the
//! traffic at its air host (nftables' TPROXY) or leaves it untouched. The registry is [`all`].
//! Systems that need only one definition are in `known`, built from `routed`, `relay` and
//! `gateways`.

pub mod aerotcp;
mod definition;
mod gateways;
mod intercept;
pub mod kcptun;
mod known;
mod mptcp;
pub mod pair;
mod pair_error;
mod pep_fixed;
pub mod process;
mod relay;
mod routed;

use std::cmp::Ordering;
use std::fmt;

pub use definition::{Running, Spread, Stage, SystemError, SystemUnderTest};
pub use gateways::roomy;
pub use kcptun::KCPTUN;
pub use known::{
    BENTPIPE, BENTPIPE_AEROTCP, BENTPIPE_MASQUE, BENTPIPE_PLAIN, BENTPIPE_SERVICES, E2E_BBR,
    E2E_CUBIC, E2E_CUBIC_64K, E2E_RENO, PEP_HTTP, SPLIT_BBR, SPLIT_CUBIC, SPLIT_MPTCP,
    SPLIT_MPTCP_BBR, SPLIT_RENO,
};
pub use pep_fixed::PEP_FIXED;

/// No system under test has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no system {0:?}: there are {names}", names = names())]
pub struct UnknownSystem(String);

/// The kernel's TCP first, then split TCP and proxies, then the gateways.
static ALL: &[&dyn SystemUnderTest] = &[
    &E2E_RENO,
    &E2E_CUBIC,
    &E2E_BBR,
    &E2E_CUBIC_64K,
    &SPLIT_RENO,
    &SPLIT_CUBIC,
    &SPLIT_BBR,
    &SPLIT_MPTCP,
    &SPLIT_MPTCP_BBR,
    &PEP_FIXED,
    &PEP_HTTP,
    &KCPTUN,
    &BENTPIPE,
    &BENTPIPE_PLAIN,
    &BENTPIPE_MASQUE,
    &BENTPIPE_AEROTCP,
    &BENTPIPE_SERVICES,
];

/// All systems under test.
pub fn all() -> &'static [&'static dyn SystemUnderTest] {
    ALL
}

/// Baselines that use all radio links of a testbed.
pub fn bundling() -> [&'static dyn SystemUnderTest; 2] {
    [&SPLIT_MPTCP, &SPLIT_MPTCP_BBR]
}

/// The systems of the demo.
pub fn demo() -> Vec<&'static dyn SystemUnderTest> {
    vec![&E2E_CUBIC, &E2E_BBR, &SPLIT_BBR, &BENTPIPE]
}

/// The system called `name`.
pub fn named(name: &str) -> Result<&'static dyn SystemUnderTest, UnknownSystem> {
    let known = all().iter().find(|system| system.name() == name);
    known.copied().ok_or_else(|| UnknownSystem(name.into()))
}

fn names() -> String {
    all().iter().map(|system| system.name()).collect::<Vec<_>>().join(", ")
}

// The name identifies a system under test.

impl PartialEq for dyn SystemUnderTest + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn SystemUnderTest + '_ {}

impl PartialOrd for dyn SystemUnderTest + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn SystemUnderTest + '_ {
    /// Compares by the order of [`all`].
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |name| all().iter().position(|system| system.name() == name);
        place(self.name()).cmp(&place(other.name())).then(self.name().cmp(other.name()))
    }
}

impl fmt::Display for dyn SystemUnderTest + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_an_unknown_one_lists_all() {
        for system in all() {
            assert_eq!(named(system.name()).unwrap(), *system);
            assert!(system.about().ends_with('.'), "{system}");
        }
        let error = named("pepsal").unwrap_err().to_string();
        for system in all() {
            assert!(error.contains(system.name()), "{error}");
        }
    }
}
