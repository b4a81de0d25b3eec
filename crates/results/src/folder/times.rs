//! When a run was made.

use serde::Deserialize;

/// What of a line of the log tells of time.
#[derive(Deserialize)]
struct Line {
    /// When its cell was over, in seconds since 1970.
    at: u64,
}

/// When the first and the last of a log's cells were over, in seconds since 1970; `None` where it has none.
pub(super) fn ends(log: &str) -> Option<[u64; 2]> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| line.at).fold(None, |ends, at| match ends {
        Some([first, last]) => Some([at.min(first), at.max(last)]),
        None => Some([at; 2]),
    })
}
