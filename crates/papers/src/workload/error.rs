//! Failures of a run.

use bentpipe_lab::browser::{BrowserError, NotInBrowsers};
use bentpipe_lab::emu::EmuError;
use bentpipe_lab::loader::UnknownProtocol;
use bentpipe_lab::site::{AuthorityError, TooShort};
use bentpipe_lab::workload::client::HttpError;

use crate::link::SceneError;
use crate::raw::RawError;

/// Reason why a run gave no results.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A host of the lab failed.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The grid's settings are wrong.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// A page cannot be served or loaded.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The workload does not support the cell.
    #[error("cannot {0}")]
    Cannot(String),
}

impl WorkError {
    pub(super) fn cannot(what: &str) -> Self {
        Self::Cannot(what.into())
    }
}

/// First failure by damaged bytes, or else the first failure of any kind, as text.
pub(super) fn reason(broke: &[HttpError]) -> Option<String> {
    let damage = broke.iter().find(|error| error.is_damage());
    damage.or(broke.first()).map(HttpError::to_string)
}

/// Reason why a site cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The cell's protocol is unknown.
    #[error(transparent)]
    Protocol(#[from] UnknownProtocol),
    /// The site's figures are inconsistent.
    #[error(transparent)]
    Model(#[from] TooShort),
    /// The certificate authority could not be created.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A second visit did not resume sessions.
    #[error(
        "over {protocol} a second visit resumes the first one's sessions, but {anew} of {connections} \
         connections began new ones: the servers took no ticket"
    )]
    Anew {
        /// Name of the protocol.
        protocol: &'static str,
        /// Number of connections with a full handshake, or without 0-RTT.
        anew: u32,
        /// Number of all connections established.
        connections: u32,
    },
    /// Browsers cannot be configured for this.
    #[error(transparent)]
    NotInBrowsers(NotInBrowsers),
    /// Chromium failed to follow a command.
    #[error(transparent)]
    Browser(#[from] BrowserError),
    /// The browser's profile folder could not be created.
    #[error("cannot make a folder for a browser's profile: {0}")]
    Folder(#[source] std::io::Error),
    /// The page has another kind of content.
    #[error("{0:?} is neither a page of objects nor a site")]
    NoPage(String),
    /// A file of the raw data could not be written.
    #[error(transparent)]
    Raw(#[from] RawError),
}
