//! Errors when loading a site, and the files that a load produces.

use std::path::Path;

use bentpipe_lab::browser::{BrowserError, NotInBrowsers};
use bentpipe_lab::loader::UnknownProtocol;
use bentpipe_lab::site::{AuthorityError, TooShort};

use super::Scope;
use crate::raw::{self, RawError};

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
    #[error("{0:?} is no page of objects and no site")]
    NoPage(String),
    /// A file of the raw data could not be written.
    #[error(transparent)]
    Raw(#[from] RawError),
}

/// Writes a HAR file of the run's `which` view to the raw data.
pub(super) fn keep(raw: &Path, scope: &Scope<'_>, which: &str, har: &str) -> Result<(), RawError> {
    let what = format!("{which}.har");
    raw::make(raw, scope.job, scope.run, &what, |path| std::fs::write(path, har))
}
