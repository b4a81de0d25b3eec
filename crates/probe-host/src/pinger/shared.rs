//! Sockets and types that all targets share.

use std::time::Duration;

use bentpipe_probe::record::Measurement;
use bentpipe_probe::target::Family;

use crate::icmp::Icmp;

/// Maximum number of messages read from a socket before the schedule is looked at again: a flood must not delay pings.
pub(crate) const MAX_READS: usize = 64;

/// A measurement that ended: sent at, duration, value.
pub(crate) type Ended = (Duration, Duration, Measurement);

/// Sockets that all targets share.
#[derive(Debug)]
pub(crate) struct Shared {
    v4: Option<Icmp>,
    v6: Option<Icmp>,
}

impl Shared {
    /// Opens the sockets that are allowed.
    pub fn open() -> Self {
        Self { v4: Icmp::open(Family::V4).ok(), v6: Icmp::open(Family::V6).ok() }
    }

    /// The socket of a family.
    pub fn icmp(&self, family: Family) -> Option<&Icmp> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }
}
