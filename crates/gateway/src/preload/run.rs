//! One night's work.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_link::ResetCode;
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Ahead, Budget, Cache, Clock, Failure, Key, Moment, NotAhead, STALLED};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, HeaderValue, Request, header};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::manifest::key_of;
use super::report::request_file;
use super::{Manifest, Outcome, Report, Settings, Sources, State};
use crate::air::http::head::add_via;
use crate::counters::Counters;
use crate::quiet::Quiet;
use crate::status::replace;

/// How often it is looked whether it is time, whether somebody asks, and whether the ground is back.
const LOOK: Duration = Duration::from_secs(5);

/// How long after a round with failures the next one begins; each time twice as long, up to the second.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(1800);

/// How long a run may take that somebody asked for.
const MOST_ASKED: Duration = Duration::from_secs(6 * 3600);

/// How often a report is written while there is news.
const TELL: Duration = Duration::from_secs(5);

/// What browsers accept in clear, and over TLS: what varies by it has to fit what they will ask.
const ENCODINGS: &str = "gzip, deflate";
const ENCODINGS_TLS: &str = "gzip, deflate, br, zstd";

/// Fetches the portal's content.
pub struct Preloader {
    settings: Settings,
    cache: Cache,
    sources: Arc<dyn Sources>,
    clock: Clock,
    counters: Arc<Counters>,
    quiet: Quiet,
    /// When what lies in the file was made: one that was broken off must not undo the next.
    written: Arc<Mutex<Option<Instant>>>,
}

/// A time in which it is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// What came or was confirmed since then is done.
    began: Moment,
    ends: Moment,
    /// Whether somebody asked for it.
    is_asked: bool,
}

/// An address, and what is asked for it.
struct Item {
    /// Its place in the report.
    number: usize,
    address: Address,
    key: Key,
    request: Request<()>,
}

/// A run, and how it stands.
struct Run {
    turn: Turn,
    items: Vec<Item>,
    report: Report,
    budget: Budget,
    told_at: Instant,
    /// Whether nothing has happened since.
    is_told: bool,
}

impl Preloader {
    /// One that puts what `sources` have into `cache`; `clock` is the cache's.
    pub fn new(
        settings: Settings,
        cache: Cache,
        sources: Arc<dyn Sources>,
        clock: Clock,
        counters: Arc<Counters>,
    ) -> Self {
        let (quiet, written) = Default::default();
        Self { settings, cache, sources, clock, counters, quiet, written }
    }

    /// Does it whenever it is time; for ever.
    pub async fn keep(self) {
        self.cache.settle().await;
        let mut done = None;
        loop {
            if let Some(turn) = self.due(done).await {
                self.run(turn).await;
                done = Some(turn.began);
            }
            sleep(LOOK).await;
        }
    }

    /// The turn that it is, unless it began at `done`.
    async fn due(&self, done: Option<Moment>) -> Option<Turn> {
        let now = (self.clock)();
        if let Some(began) = self.asked_at(now).await.filter(|began| done != Some(*began)) {
            return Some(Turn { began, ends: began + MOST_ASKED, is_asked: true });
        }
        let (began, ends) = self.settings.window?.open_at(now)?;
        (done != Some(began)).then_some(Turn { began, ends, is_asked: false })
    }

    /// When somebody asked for a run that is not over. The file has that in milliseconds, which we
    /// write into it where it has no moment of the past: so a run goes on after a restart. A file that
    /// cannot be written asks for nothing, for it would do so again and again.
    async fn asked_at(&self, now: Moment) -> Option<Moment> {
        let file = request_file(&self.settings.report);
        let look = move || requested(&file, now);
        match spawn_blocking(look).await.unwrap_or(Ok(None)) {
            Ok(asked) => asked,
            Err(error) => {
                self.quiet.warn("the request to preload at once cannot be used", &error);
                None
            }
        }
    }

    /// Does what there is to do in `turn`, until it is done or time is over.
    async fn run(&self, turn: Turn) {
        let report_file = self.settings.report.clone();
        let read = {
            let (file, sites) = (self.settings.manifest.clone(), self.settings.sites.clone());
            spawn_blocking(move || (Manifest::read(&file, &sites), Report::read(&report_file).ok()))
        };
        let Ok((manifest, before)) = read.await else { return };
        let mut run = match manifest {
            Ok(manifest) => {
                self.unpin_others(&manifest);
                self.begin(turn, &manifest, before)
            }
            Err(error) => {
                tracing::error!(%error, "nothing is preloaded, and what is here stays");
                let mut run = self.begin(turn, &Manifest::default(), None);
                run.report.error = Some(error.to_string());
                run
            }
        };
        let left = turn.ends.saturating_sub((self.clock)());
        let in_time = timeout(left, self.rounds(&mut run)).await.is_ok();
        run.report.state = if in_time { State::Complete } else { State::OutOfTime };
        self.conclude(&mut run).await;
    }

    fn begin(&self, turn: Turn, manifest: &Manifest, before: Option<Report>) -> Run {
        let began = turn.began.as_millis() as u64;
        let mut report = Report::new(began, manifest);
        // Of a run that goes on: what it has fetched counts.
        report.bytes = before.filter(|it| it.began_unix_ms == began).map_or(0, |it| it.bytes);
        let budget = Budget::new(self.settings.run_bytes.saturating_sub(report.bytes));
        let addresses = manifest.addresses.iter().enumerate();
        let item = |(number, address): (usize, &Address)| Item::new(number, address);
        let mut items: Vec<Item> = addresses.filter_map(item).collect();
        items.retain(|item| {
            let object = &mut report.objects[item.number];
            object.here = self.cache.holds(&item.key, item.request.headers());
            let is_done = self.cache.is_ahead(&item.key, item.request.headers(), turn.began);
            if is_done {
                object.state = Outcome::Confirmed;
            }
            !is_done
        });
        // What is not here at all comes first: the budget may not reach for everything.
        items.sort_by_key(|item| report.objects[item.number].here);
        for wrong in &report.wrong_lines {
            tracing::warn!(
                line = wrong.line,
                "the manifest has a line that is left out: {}",
                wrong.why
            );
        }
        tracing::info!(addresses = report.objects.len(), to_do = items.len(), "preloading");
        Run { turn, items, report, budget, told_at: Instant::now(), is_told: false }
    }

    /// Lets go of what is pinned and not in the manifest any more.
    fn unpin_others(&self, manifest: &Manifest) {
        let wanted: std::collections::HashSet<Key> =
            manifest.addresses.iter().filter_map(key_of).collect();
        for key in self.cache.pinned() {
            if !wanted.contains(&key) {
                self.cache.unpin(&key);
            }
        }
    }

    /// Goes through what is to be done, and through what failed again, until nothing is left.
    async fn rounds(&self, run: &mut Run) {
        let mut pause = FIRST_PAUSE;
        self.tell(run).await;
        loop {
            self.round(run).await;
            run.items.retain(|item| run.report.objects[item.number].state == Outcome::Failed);
            if run.items.is_empty() {
                return;
            }
            self.tell(run).await;
            let until = Instant::now() + pause;
            while Instant::now() < until {
                sleep(LOOK).await;
                // Somebody wants it from the beginning.
                if !run.turn.is_asked && self.asked_at((self.clock)()).await.is_some() {
                    return;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn round(&self, run: &mut Run) {
        let Run { items, report, budget, told_at, is_told, .. } = run;
        let mut waiting = items.iter();
        let mut fetching = FuturesUnordered::new();
        loop {
            while fetching.len() < self.settings.at_once
                && let Some(item) = waiting.next()
            {
                fetching.push(self.fetch(item, budget));
            }
            let news = async {
                match *is_told {
                    true => std::future::pending().await,
                    false => sleep_until(*told_at + TELL).await,
                }
            };
            tokio::select! {
                biased;
                () = news => {
                    (*told_at, *is_told) = (Instant::now(), true);
                    self.write(report).await;
                }
                fetched = fetching.next() => {
                    let Some((item, outcome)) = fetched else { return };
                    self.note(report, item, outcome);
                    report.bytes = self.settings.run_bytes - budget.left();
                    *is_told = false;
                }
            }
        }
    }

    /// Fetches one object, however long the ground cannot be reached meanwhile.
    async fn fetch<'a>(
        &self,
        item: &'a Item,
        budget: &Budget,
    ) -> (&'a Item, Result<Ahead, NotAhead>) {
        loop {
            while !self.sources.is_reachable() {
                sleep(LOOK).await;
            }
            let Some(origin) = self.sources.origin(&item.address) else {
                let code = ResetCode::NameNotFound.to_u8();
                return (item, Err(NotAhead::Failed(Failure { offline: false, code })));
            };
            let asked = self.cache.ahead(&item.key, &item.request, &origin, budget).await;
            if !matches!(&asked, Err(NotAhead::Failed(failure)) if failure.offline) {
                return (item, asked);
            }
            sleep(LOOK).await;
        }
    }

    fn note(&self, report: &mut Report, item: &Item, outcome: Result<Ahead, NotAhead>) {
        let object = &mut report.objects[item.number];
        object.here = self.cache.holds(&item.key, item.request.headers());
        let before = object.why.take();
        match outcome {
            Ok(Ahead::Stored { bytes }) => {
                self.counters.preload_stored.add(1);
                self.counters.preload_bytes.add(bytes);
                (object.state, object.bytes) = (Outcome::Stored, bytes);
            }
            Ok(Ahead::Confirmed) => {
                self.counters.preload_confirmed.add(1);
                object.state = Outcome::Confirmed;
            }
            Err(error) => {
                let why = shown(&error);
                object.state = if is_lasting(&error) { Outcome::Refused } else { Outcome::Failed };
                // Of one that fails in each round, once.
                if before.as_ref() != Some(&why) {
                    tracing::warn!(url = %item.address, "not preloaded: {why}");
                }
                object.why = Some(why);
            }
        }
    }

    async fn tell(&self, run: &mut Run) {
        (run.told_at, run.is_told) = (Instant::now(), true);
        self.write(&mut run.report).await;
    }

    async fn write(&self, report: &mut Report) {
        report.written_unix_ms = (self.clock)().as_millis() as u64;
        let (file, report) = (self.settings.report.clone(), report.clone());
        let (last, made) = (self.written.clone(), Instant::now());
        let writing = move || {
            // Nothing panics while it is held.
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last > made) {
                return Ok(());
            }
            *last = Some(made);
            report.write(&file)
        };
        if let Ok(Err(error)) = spawn_blocking(writing).await {
            self.quiet.warn("the report of the preload cannot be written", &error);
        }
    }

    async fn conclude(&self, run: &mut Run) {
        let report = &run.report;
        let [waiting, stored, confirmed, failed, refused] =
            Outcome::ALL.map(|outcome| report.count(outcome) as u64);
        self.counters.preload_failed.add(waiting + failed + refused);
        let bytes = report.bytes;
        tracing::info!(stored, confirmed, failed, refused, waiting, bytes, "preloaded");
        self.tell(run).await;
        if run.turn.is_asked {
            remove(&request_file(&self.settings.report)).await;
        }
    }
}

/// When the run that `file` asks for began, at `now` or before.
fn requested(file: &Path, now: Moment) -> io::Result<Option<Moment>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    if let Some(began) = asked_in(&text, now) {
        return Ok(Some(began));
    }
    // Whole milliseconds, as they are written, so that it is the same each time.
    let now = now.as_millis() as u64;
    replace(file, format!("{now}\n").as_bytes())?;
    Ok(Some(Duration::from_millis(now)))
}

/// When the run that goes on at `now` began, by the text of the file that asks for it.
pub(crate) fn asked_in(text: &str, now: Moment) -> Option<Moment> {
    let written = text.trim().parse().ok().map(Duration::from_millis);
    written.filter(|began| *began <= now && *began + MOST_ASKED > now)
}

/// Removes the request: what it asked for is done.
async fn remove(file: &Path) {
    let file = file.to_owned();
    let removed = spawn_blocking(move || (std::fs::remove_file(&file), file)).await;
    if let Ok((Err(error), file)) = removed {
        // Else it would be done again and again without a word.
        tracing::warn!(%error, file = %file.display(), "the request to preload cannot be removed");
    }
}

/// Whether trying again tonight would change nothing.
fn is_lasting(error: &NotAhead) -> bool {
    match error {
        NotAhead::Failed(_) | NotAhead::Busy => false,
        NotAhead::Status { status, .. } => {
            !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429))
        }
        _ => true,
    }
}

fn shown(error: &NotAhead) -> String {
    match error {
        NotAhead::Failed(failure) if failure.code == STALLED => {
            "the origin stopped in the middle of its answer".to_owned()
        }
        NotAhead::Failed(failure) => {
            format!("the origin gave no answer: {}", ResetCode::from_u8(failure.code))
        }
        error => error.to_string(),
    }
}

impl Item {
    fn new(number: usize, address: &Address) -> Option<Self> {
        let key = key_of(address)?;
        let encodings = if address.is_secure() { ENCODINGS_TLS } else { ENCODINGS };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(address.authority()).ok()?);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encodings));
        let agent = concat!("bentpipe/", env!("CARGO_PKG_VERSION"), " (preload)");
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        // Whatever stands between the ground and the origin shall not answer for it.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
        add_via(&mut headers, http::Version::HTTP_11);
        let mut request = Request::get(address.path_and_query()).body(()).ok()?;
        *request.headers_mut() = headers;
        Some(Self { number, address: address.clone(), key, request })
    }
}
