//! Traffic of a cell.

use std::time::Duration;

/// Traffic of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Play {
    /// An endless download.
    Bulk {
        /// Beginning of the download. The session is up at least as long before.
        start: Duration,
        /// End of the run.
        end: Duration,
        /// Other senders, and the beginning of each.
        rivals: Vec<(Other, Duration)>,
    },
    /// Objects, one after another.
    Objects {
        /// Size of an object.
        bytes: u64,
        /// Knowledge of the session before the first object.
        warmth: Warmth,
        /// Idle time before each object.
        idle: Duration,
    },
    /// Endless downloads of several aircraft through one hub.
    Hub {
        /// Number of aircraft.
        aircraft: usize,
        /// Beginning of all downloads.
        start: Duration,
        /// End of the run.
        end: Duration,
    },
    /// Nothing but the session itself.
    Idle {
        /// End of the run.
        end: Duration,
    },
}

/// Other senders on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// Bulk with CUBIC.
    Cubic,
    /// Bulk with BBR.
    Bbr,
    /// Bulk of another session with the same settings.
    Session,
    /// A call.
    Call,
}

/// Knowledge that a session has of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warmth {
    /// Nothing: the object is the first data of a session that just came up.
    Cold,
    /// That which it measures by itself in 30 s.
    Attached,
    /// That which a few objects of this size have shown.
    Warm(u64),
}
