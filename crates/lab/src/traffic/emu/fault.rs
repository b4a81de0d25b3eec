//! Faults of passengers' traffic, with their origin.

use std::fmt::Display;
use std::io;

/// A fault. Its origin decides if the run is valid: a fault of the system under test is a result, a
/// fault of the lab makes the run invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A passenger's open connection or flow broke, or delivered bytes that nobody had sent.
    #[error("{what}: {why}")]
    Passenger {
        /// Connection or flow.
        what: String,
        /// Fault.
        why: String,
    },
    /// The lab failed to do its own part.
    #[error("the lab failed: {what}: {why}")]
    Lab {
        /// Action that failed.
        what: String,
        /// Cause.
        why: String,
    },
}

impl Fault {
    /// Fault of a passenger's connection or flow.
    pub fn passenger(what: impl Display, why: impl Display) -> Self {
        Self::Passenger { what: what.to_string(), why: why.to_string() }
    }

    /// Fault of the lab.
    pub fn lab(what: impl Display, why: impl Display) -> Self {
        Self::Lab { what: what.to_string(), why: why.to_string() }
    }

    /// Fault of connecting, reading or writing, which crosses the gateways. It is the passenger's,
    /// unless this host's kernel ran out of ports, descriptors or memory.
    pub fn crossing(what: impl Display, error: &io::Error) -> Self {
        if is_of_this_host(error) { Self::lab(what, error) } else { Self::passenger(what, error) }
    }

    /// Returns `true` if the fault makes the run invalid.
    pub fn is_of_lab(&self) -> bool {
        matches!(self, Self::Lab { .. })
    }
}

/// Returns `true` if this host's kernel ran out of ports, descriptors or memory.
pub fn is_of_this_host(error: &io::Error) -> bool {
    const LOCAL: [i32; 5] =
        [libc::EADDRNOTAVAIL, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| LOCAL.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_that_this_host_lacks_are_the_labs_fault() {
        let of = |code| Fault::crossing("stream 1", &io::Error::from_raw_os_error(code));
        for code in [libc::ECONNRESET, libc::ECONNREFUSED, libc::ETIMEDOUT, libc::EHOSTUNREACH] {
            assert!(!of(code).is_of_lab(), "{code}");
        }
        for code in [libc::EADDRNOTAVAIL, libc::EMFILE, libc::ENOBUFS] {
            assert!(of(code).is_of_lab(), "{code}");
        }
        let early = Fault::crossing("stream 1", &io::ErrorKind::UnexpectedEof.into());
        assert!(!early.is_of_lab(), "{early}");
    }
}
