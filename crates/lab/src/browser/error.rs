//! Failures of a browser.

use std::io;
use std::time::Duration;

/// Maximum time for its start, and for its end. A busy machine takes several seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Reason why a page was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// Chromium was not found.
    #[error("Chromium is not installed: `scripts/setup.sh browser` installs it")]
    NotInstalled,
    /// Chromium could not be started, or ended.
    #[error("Chromium: {0}")]
    Io(#[from] io::Error),
    /// Chromium sent a message that does not match the DevTools protocol.
    #[error("Chromium speaks another DevTools protocol: {0}")]
    Protocol(#[from] serde_json::Error),
    /// Chromium refused a command.
    #[error("Chromium refuses {method}: {why}")]
    Refused {
        /// Method that was called.
        method: String,
        /// Reason for the failure.
        why: String,
    },
    /// Chromium did not start in time.
    #[error("Chromium did not start within {} s:\n{said}", PATIENCE.as_secs())]
    Late {
        /// Its last lines of output.
        said: String,
    },
}
