//! A page in real Chromium: the load time is the page's own `loadEventStart`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::browser::Browser;
use crate::emu::Host;
use anyhow::bail;

/// Maximum duration of a load, which is then cut off. Slow pages of the lab take half a minute.
const LONGEST: Duration = Duration::from_secs(240);

/// Loads the page of `objects` from `origin` in a fresh Chromium on `host`. Its profile is in
/// `folder`, which must not contain another one.
pub async fn load(
    host: &Host,
    origin: SocketAddr,
    objects: usize,
    folder: &Path,
) -> anyhow::Result<Duration> {
    let flags = ["--disable-quic".to_owned()];
    visit(host, &flags, &format!("http://{origin}/page/{objects}"), folder).await
}

/// Loads the page at `url` in a fresh Chromium with `flags`, like [`load`].
pub async fn visit(
    host: &Host,
    flags: &[String],
    url: &str,
    folder: &Path,
) -> anyhow::Result<Duration> {
    let visit = Browser::view(host.command("sh"), flags, folder, url, LONGEST).await?;
    match (visit.failed, visit.loaded) {
        (Some(why), _) => bail!("Chromium cannot load {url}: {why}"),
        (None, None) => {
            bail!("{url} was not loaded in Chromium within {} s", LONGEST.as_secs())
        }
        (None, Some(took)) => Ok(took),
    }
}
