//! Events of a run, one JSON object a line on the socket.

use serde::{Deserialize, Serialize};

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A line of the manifest that is left out.
    WrongLine {
        /// Line number, counted from one.
        line: usize,
        /// Reason.
        why: String,
    },
    /// Result of an attempt at one address. A failed address may get further attempts.
    Object {
        /// The address.
        url: String,
        /// Result.
        outcome: Outcome,
        /// Length of the fetched body.
        bytes: u64,
        /// Reason, unless the object is stored as its origin has it now.
        why: Option<String>,
    },
    /// The run is complete.
    Ended(Summary),
    /// There is no run: another one is in progress, or the manifest cannot be used.
    Refused {
        /// Reason.
        why: String,
    },
}

/// Result of an attempt at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The object was fetched.
    Stored,
    /// The origin confirmed the stored object.
    Confirmed,
    /// The attempt failed; another one may succeed.
    Failed,
    /// Another attempt would change nothing.
    Refused,
}

/// Numbers of a complete run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Objects that were fetched.
    pub stored: u64,
    /// Stored objects that their origins confirmed.
    pub confirmed: u64,
    /// Addresses of which every attempt failed.
    pub failed: u64,
    /// Addresses that cannot be preloaded.
    pub refused: u64,
    /// Bytes of bodies that crossed the link, those of failed attempts included.
    pub bytes: u64,
}

impl Summary {
    /// Returns `true` if every address of the manifest is stored as its origin has it now.
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.refused == 0
    }
}
