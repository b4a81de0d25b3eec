//! Real Chromium, headless, controlled by a thin client of its DevTools protocol. It loads pages as
//! a passenger's browser does and reports each of their requests.

mod error;
mod event;
mod flags;
mod har;
mod pipe;
mod record;
mod session;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::site::Site;
use crate::system::process::Process;
pub use error::BrowserError;
use error::PATIENCE;
use event::Event;
pub use flags::{NotInBrowsers, flags};
use pipe::Pipe;
pub use record::{Phases, Record, Request};
use session::Session;

/// Names of Chromium's program on the supported systems.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Maximum duration of [`Browser::load_time`]. Slow pages of the lab take half a minute.
pub const MAX_LOAD: Duration = Duration::from_secs(240);

/// Time for requests that a page makes after it has loaded, such as the site's icon.
const SETTLE: Duration = Duration::from_secs(2);

/// Maximum console messages kept for a page.
const MAX_COMPLAINTS: usize = 100;

/// Interval between checks whether the browser has ended.
const POLL: Duration = Duration::from_millis(20);

/// Script that returns the page's own times in ms since the request: when `load` fired, and when
/// its largest part was last painted. A time is null if the event did not occur.
const TIMES: &str = "new Promise(done => { \
    let painted = null; \
    new PerformanceObserver(list => { for (const one of list.getEntries()) painted = one.startTime; }) \
        .observe({ type: 'largest-contentful-paint', buffered: true }); \
    setTimeout(() => done([performance.getEntriesByType('navigation')[0].loadEventStart, painted]), 200); \
})";

/// Path of Chromium, if it is installed.
pub fn find() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    PROGRAMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// A running browser with one tab. Dropping it kills it.
#[derive(Debug)]
pub struct Browser {
    session: Session,
    process: Process,
}

/// One visit to a page.
#[derive(Debug, Default)]
pub struct Visit {
    /// Time from the request of the page to its `load` event. `None` if the visit was cut off
    /// before that.
    pub loaded: Option<Duration>,
    /// Time from the request of the page to the last paint of its largest part, if it was painted.
    pub painted: Option<Duration>,
    /// Requests made during the visit.
    pub record: Record,
    /// Reason why the page itself could not be loaded.
    pub failed: Option<String>,
    /// Errors of its scripts, and console messages of the level error.
    pub complaints: Vec<String>,
}

impl Visit {
    /// Requests for the resources of `site`. The browser's own requests, such as the site's icon,
    /// are left out.
    pub fn requests_of(&self, site: &Site, scheme: &str) -> Vec<&Request> {
        let urls: Vec<String> = (0..site.resources.len()).map(|n| site.url(scheme, n)).collect();
        self.record.requests().iter().filter(|request| urls.contains(&request.url)).collect()
    }

    /// Reason why the view failed, or the failure of the first of `requests` that failed.
    pub fn fault(&self, requests: &[&Request]) -> Option<String> {
        let of = || requests.iter().find_map(|request| request.failed.clone());
        self.failed.clone().or_else(of)
    }

    fn hear(&mut self, event: &Event) -> Result<(), BrowserError> {
        let params = &event.params;
        let complaint = match event.method.as_str() {
            "Runtime.exceptionThrown" => {
                let details = &params["exceptionDetails"];
                let thrown = details["exception"]["description"].as_str();
                thrown.or(details["text"].as_str())
            }
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                let said = &params["args"][0];
                said["description"].as_str().or(said["value"].as_str()).or(Some("console.error"))
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                params["entry"]["text"].as_str()
            }
            _ => None,
        };
        if let Some(complaint) = complaint.filter(|_| self.complaints.len() < MAX_COMPLAINTS) {
            self.complaints.push(complaint.to_owned());
        }
        Ok(self.record.hear(event)?)
    }
}

impl Browser {
    /// Starts a browser through `shell`, a command that runs `sh` on the browser's host. `folder`
    /// keeps its profile. To make a repeat view, start with a folder in which an earlier browser
    /// left its cache.
    pub async fn start(
        shell: Command,
        flags: &[String],
        folder: &Path,
    ) -> Result<Self, BrowserError> {
        let program = find().ok_or(BrowserError::NotInstalled)?;
        std::fs::create_dir_all(folder)?;
        let said = folder.join("chromium.log");
        let mut command = pipe::through(shell, &said, &program);
        command
            .args(["--remote-debugging-pipe", "--headless", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-extensions", "--disable-dev-shm-usage"])
            // The browser sees only the lab's servers, and its own sandbox refuses to run as root.
            .arg("--no-sandbox")
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .args(flags)
            .arg("about:blank");
        let mut process = Process::start_piped(command, &folder.join("shell.log"))?;
        let open = async {
            let mut session = Session::open(Pipe::of(&mut process)?).await?;
            session.call("Network.enable", json!({})).await?;
            session.call("Page.enable", json!({})).await?;
            session.call("Runtime.enable", json!({})).await?;
            session.call("Log.enable", json!({})).await?;
            Ok::<_, BrowserError>(session)
        };
        match tokio::time::timeout(PATIENCE, open).await {
            Ok(session) => Ok(Self { session: session?, process }),
            Err(_) => {
                Err(BrowserError::Late { said: std::fs::read_to_string(said).unwrap_or_default() })
            }
        }
    }

    /// Loads the page at `url` in a new browser, and cuts the load off at `deadline`.
    pub async fn view(
        shell: Command,
        flags: &[String],
        folder: &Path,
        url: &str,
        deadline: Duration,
    ) -> Result<Visit, BrowserError> {
        let mut browser = Self::start(shell, flags, folder).await?;
        let visit = browser.visit(url, deadline).await;
        browser.close().await?;
        visit
    }

    /// Load time of the page at `url` in a new browser: its own `loadEventStart`. A load that takes
    /// longer than [`MAX_LOAD`] is an error.
    pub async fn load_time(
        shell: Command,
        flags: &[String],
        folder: &Path,
        url: &str,
    ) -> anyhow::Result<Duration> {
        let visit = Self::view(shell, flags, folder, url, MAX_LOAD).await?;
        match (visit.failed, visit.loaded) {
            (Some(why), _) => bail!("Chromium cannot load {url}: {why}"),
            (None, None) => {
                bail!("{url} was not loaded in Chromium within {} s", MAX_LOAD.as_secs())
            }
            (None, Some(took)) => Ok(took),
        }
    }

    /// Loads the page at `url`, and cuts the load off at `deadline`.
    pub async fn visit(&mut self, url: &str, deadline: Duration) -> Result<Visit, BrowserError> {
        let deadline = Instant::now() + deadline;
        let mut visit = Visit::default();
        // The answer may arrive after the page's first events, which are queued until then.
        let navigate = self.session.call("Page.navigate", json!({ "url": url }));
        match timeout_at(deadline, navigate).await {
            Err(_) => return Ok(visit),
            Ok(answer) => visit.failed = answer?["errorText"].as_str().map(str::to_owned),
        }
        let is_there = visit.failed.is_none()
            && self.hear(&mut visit, deadline, Some("Page.loadEventFired")).await?;
        if is_there {
            let settled = deadline.min(Instant::now() + SETTLE);
            self.hear(&mut visit, settled, None).await?;
            let times = self.evaluate(TIMES).await?;
            let ms = |place: usize| {
                let ms = times[place].as_f64()?;
                Duration::try_from_secs_f64(ms / 1e3).ok()
            };
            (visit.loaded, visit.painted) = (ms(0), ms(1));
        }
        Ok(visit)
    }

    /// Adds to `visit` the events in the page since the last call: requests and error messages.
    pub async fn catch_up(&mut self, visit: &mut Visit) -> Result<(), BrowserError> {
        // Events arrive in order, and before the answer to a later command.
        self.evaluate("0").await?;
        while let Some(event) = self.session.kept() {
            visit.hear(&event)?;
        }
        Ok(())
    }

    /// Value of a JavaScript expression in the page. If the value is a promise, its result.
    pub async fn evaluate(&mut self, expression: &str) -> Result<Value, BrowserError> {
        let evaluate =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", evaluate).await?;
        if let Some(why) = answer["exceptionDetails"]["exception"]["description"].as_str() {
            return Err(BrowserError::Refused { method: expression.into(), why: why.into() });
        }
        Ok(answer["result"]["value"].take())
    }

    /// Calls a `method` of the DevTools protocol in the tab, and returns its answer.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, BrowserError> {
        self.session.call(method, params).await
    }

    /// Ends the browser in an orderly way, so that its cache is written to disk.
    pub async fn close(mut self) -> Result<(), BrowserError> {
        let ended = async {
            // The browser may end before it answers.
            let _: Result<Value, _> = self.session.call("Browser.close", json!({})).await;
            while self.process.ended().is_none() {
                tokio::time::sleep(POLL).await;
            }
        };
        // Dropping a browser that has not ended kills it.
        let _ = tokio::time::timeout(PATIENCE, ended).await;
        Ok(())
    }

    /// Processes events until `end` occurs, or without `end` until no request is in progress.
    /// Returns `true` if that was before `until`.
    async fn hear(
        &mut self,
        visit: &mut Visit,
        until: Instant,
        end: Option<&str>,
    ) -> Result<bool, BrowserError> {
        while end.is_some() || !visit.record.is_quiet() {
            let Ok(event) = timeout_at(until, self.session.event()).await else {
                return Ok(false);
            };
            let event = event?;
            visit.hear(&event)?;
            if end == Some(event.method.as_str()) {
                break;
            }
        }
        Ok(true)
    }
}
