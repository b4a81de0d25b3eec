//! A page in real Chromium: the load time is the page's own `loadEventStart`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::browser::{Browser, BrowserError};
use crate::emu::Host;

/// Time at which a load is cut off: slow pages of the lab take half a minute.
const LONGEST: Duration = Duration::from_secs(240);

/// Reason for which a page did not load.
#[derive(Debug, thiserror::Error)]
pub enum ChromiumError {
    /// The browser.
    #[error(transparent)]
    Browser(#[from] BrowserError),
    /// The page could not be had.
    #[error("Chromium cannot load {url}: {why}")]
    Failed {
        /// The page.
        url: String,
        /// Error of the browser.
        why: String,
    },
    /// It did not come to its end.
    #[error("{url} was not loaded in Chromium within {} s", LONGEST.as_secs())]
    Endless {
        /// The page.
        url: String,
    },
}

/// Loads the page of `objects` from `origin` in a fresh Chromium on `host`; its profile lies in
/// `folder`, where no browser had one before.
pub async fn load(
    host: &Host,
    origin: SocketAddr,
    objects: usize,
    folder: &Path,
) -> Result<Duration, ChromiumError> {
    let flags = ["--disable-quic".to_owned()];
    visit(host, &flags, &format!("http://{origin}/page/{objects}"), folder).await
}

/// Loads the page at `url` in a fresh Chromium with `flags`, as [`load`] does.
pub async fn visit(
    host: &Host,
    flags: &[String],
    url: &str,
    folder: &Path,
) -> Result<Duration, ChromiumError> {
    let mut browser = Browser::start(host.command("sh"), flags, folder).await?;
    let visit = browser.visit(url, LONGEST).await;
    browser.close().await?;
    let visit = visit?;
    let url = url.to_owned();
    match (visit.failed, visit.loaded) {
        (Some(why), _) => Err(ChromiumError::Failed { url, why }),
        (None, None) => Err(ChromiumError::Endless { url }),
        (None, Some(took)) => Ok(took),
    }
}
