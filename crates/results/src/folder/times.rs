//! Times of a run.

use serde::Deserialize;

/// The field of a log line that concerns time.
#[derive(Deserialize)]
struct Line {
    /// End time of its cell, in seconds since 1970.
    at: u64,
}

/// End times of a log's first and last cells, in seconds since 1970; `None` if it has none.
pub(super) fn ends(log: &str) -> Option<[u64; 2]> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| line.at).fold(None, |ends, at| match ends {
        Some([first, last]) => Some([at.min(first), at.max(last)]),
        None => Some([at; 2]),
    })
}
