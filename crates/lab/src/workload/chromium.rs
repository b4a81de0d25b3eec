//! A page in real Chromium, headless: the load time is the page's own `loadEventStart`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::contender::process::Process;
use crate::emu::Host;

/// What it is called on the systems we know.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// How often its end is looked for; the load time is the page's own and not affected.
const POLL: Duration = Duration::from_millis(100);

/// A browser that has not ended by then is stopped: pages of the lab take half a minute where they take long.
const LONGEST_S: u64 = 240;

/// The attribute that the page's script writes its load time to.
const MARK: &str = "data-plt-ms=\"";

/// Why a page did not load.
#[derive(Debug, thiserror::Error)]
pub enum ChromiumError {
    /// The system knows no Chromium.
    #[error("Chromium is not installed: looked for {} on the PATH", PROGRAMS.join(", "))]
    NotInstalled,
    /// It could not be run.
    #[error("cannot run Chromium: {0}")]
    Run(#[from] io::Error),
    /// It did not end.
    #[error("Chromium did not end within {LONGEST_S} s:\n{0}")]
    Endless(String),
    /// It ended without the page's load time.
    #[error("Chromium showed no load time:\n{0}")]
    NoTime(String),
}

/// Where Chromium is, if it is installed.
pub fn find() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    PROGRAMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Loads the page of `objects` from `origin` in a fresh Chromium on `host`; its profile lies in
/// `folder`, which must be empty. Ends with the load time, or not before it is dropped.
pub async fn load(
    host: &Host,
    origin: SocketAddr,
    objects: usize,
    folder: &Path,
) -> Result<Duration, ChromiumError> {
    let flags = ["--disable-quic".to_owned()];
    visit(host, &flags, &format!("http://{origin}/page/{objects}"), folder).await
}

/// Loads the lab's page at `url` in a fresh Chromium with `flags`, as [`load`] does.
pub async fn visit(
    host: &Host,
    flags: &[String],
    url: &str,
    folder: &Path,
) -> Result<Duration, ChromiumError> {
    let program = find().ok_or(ChromiumError::NotInstalled)?;
    let mut command = host.command(&program.to_string_lossy());
    command
        .args(["--headless", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-extensions", "--disable-dev-shm-usage"])
        // The whole of it runs in a namespace of the lab and sees nothing but the lab's origin;
        // its own sandbox refuses to run as root.
        .arg("--no-sandbox")
        .arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.args(flags).arg("--dump-dom").arg(url);
    std::fs::create_dir(folder)?;
    let mut browser = Process::start(command, &folder.join("dom.html"))?;
    let ended = async {
        while browser.ended().is_none() {
            tokio::time::sleep(POLL).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(LONGEST_S), ended).await.is_err() {
        return Err(ChromiumError::Endless(browser.tail()));
    }
    let dom = browser.output();
    let ms = dom.split_once(MARK).and_then(|(_, rest)| rest.split('"').next()?.parse::<f64>().ok());
    match ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()) {
        Some(took) => Ok(took),
        None => Err(ChromiumError::NoTime(browser.tail())),
    }
}
