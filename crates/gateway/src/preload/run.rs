//! One night's work.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_link::ResetCode;
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Ahead, Budget, Cache, Clock, Failure, Key, Moment, NotAhead};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::item::{Item, is_lasting, shown};
use super::manifest::key_of;
use super::report::request_file;
use super::spent::Spent;
use super::{Manifest, Outcome, Report, Settings, Sources, State};
use crate::counters::Counters;
use crate::quiet::Quiet;
use crate::status::replace;

/// Polling interval for the time, for requests, and for the ground's return.
const LOOK: Duration = Duration::from_secs(5);

/// Pause after a round with failures; each further pause is twice as long, up to the second value.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(1800);

/// Maximum duration of a requested run.
const MOST_ASKED: Duration = Duration::from_secs(6 * 3600);

/// Pause before an unusable manifest is read again, while the window is open: 36 times in three
/// hours.
const MANIFEST_AGAIN: Duration = Duration::from_secs(300);

/// Interval of reports while there is news.
const TELL: Duration = Duration::from_secs(5);

/// Interval of writes of the spent budget while something comes. Bytes of this time, at 8 Mbit/s 1
/// MB, may come once more after a power cut. Nothing is fetched during the write.
const COUNT: Duration = Duration::from_secs(1);

/// Fetches the portal's content.
pub struct Preloader {
    settings: Settings,
    cache: Cache,
    sources: Arc<dyn Sources>,
    clock: Clock,
    counters: Arc<Counters>,
    quiet: Quiet,
    told_at: Latest,
    spent_at: Latest,
}

/// Time at which the content of a file was made: a write that was broken off must not undo the
/// next.
type Latest = Arc<Mutex<Option<Instant>>>;

/// A time in which it is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// Beginning: objects that came or were confirmed since then are done.
    began: Moment,
    ends: Moment,
    /// `true` if somebody requested it.
    is_asked: bool,
}

/// The turns of either kind that are over. Neither makes the other one over.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    night: Option<Moment>,
    asked: Option<Moment>,
}

/// End of a turn's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// There is nothing more to be done.
    Done,
    /// Somebody asks for a run at once; this one goes on after it.
    Interrupted,
}

/// Spent budget of a run, as it is written.
struct Ledger {
    spent: Spent,
    /// Budget spent before it began, or began again.
    before: u64,
    written: u64,
    at: Instant,
}

/// A run, and how it stands.
struct Run {
    turn: Turn,
    items: Vec<Item>,
    report: Report,
    budget: Budget,
    ledger: Ledger,
    told_at: Instant,
    /// `true` if nothing has happened since.
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
        let (quiet, told_at, spent_at) = Default::default();
        Self { settings, cache, sources, clock, counters, quiet, told_at, spent_at }
    }

    /// Does it whenever it is time; for ever.
    pub async fn keep(self) {
        self.cache.settle().await;
        let mut done = Done::default();
        loop {
            if let Some(turn) = self.due(&done).await
                && self.run(turn, &done).await == Ended::Done
            {
                let kind = if turn.is_asked { &mut done.asked } else { &mut done.night };
                *kind = Some(turn.began);
            }
            sleep(LOOK).await;
        }
    }

    /// The turn that it is, unless it is `done`.
    async fn due(&self, done: &Done) -> Option<Turn> {
        if let Some(began) = self.asked(done).await {
            return Some(Turn { began, ends: began + MOST_ASKED, is_asked: true });
        }
        let (began, ends) = self.settings.window?.open_at((self.clock)())?;
        (done.night != Some(began)).then_some(Turn { began, ends, is_asked: false })
    }

    /// Time of a request for a run that is not `done`.
    async fn asked(&self, done: &Done) -> Option<Moment> {
        self.asked_at((self.clock)()).await.filter(|began| done.asked != Some(*began))
    }

    /// Time of a request for a run that is not over. The file has that in milliseconds, which we
    /// write into it if it has no moment of the past, so a run goes on after a restart. A file that
    /// cannot be written requests nothing, because it would do so again and again.
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

    /// Does what there is to do in `turn`, until it is done, time is over, or somebody wants another run
    /// first.
    async fn run(&self, turn: Turn, done: &Done) -> Ended {
        let report = self.settings.report.clone();
        let Ok(spent) = spawn_blocking(move || Spent::read(&report)).await else {
            return Ended::Done;
        };
        let mut run = self.begin(turn, spent);
        let left = turn.ends.saturating_sub((self.clock)());
        let ended = timeout(left, self.work(&mut run, done)).await;
        self.count(run.turn, &mut run.ledger, &mut run.report, &run.budget).await;
        if ended == Ok(Ended::Interrupted) {
            return Ended::Interrupted;
        }
        run.report.state = if ended.is_ok() { State::Complete } else { State::OutOfTime };
        self.conclude(&mut run).await;
        Ended::Done
    }

    fn begin(&self, turn: Turn, spent: Spent) -> Run {
        let began = turn.began.as_millis() as u64;
        let before = spent.of(turn.is_asked, began);
        let budget = Budget::new(self.settings.run_bytes.saturating_sub(before));
        let mut report = Report::new(began, &Manifest::default());
        report.bytes = before;
        let (items, now) = (Vec::new(), Instant::now());
        let ledger = Ledger { spent, before, written: before, at: now };
        Run { turn, items, report, budget, ledger, told_at: now, is_told: false }
    }

    /// Reads the manifest, again while it cannot be used, and does what it says.
    async fn work(&self, run: &mut Run, done: &Done) -> Ended {
        loop {
            let (file, sites) = (self.settings.manifest.clone(), self.settings.sites.clone());
            // The runtime ends with the gateway alone.
            let Ok(read) = spawn_blocking(move || Manifest::read(&file, &sites)).await else {
                return Ended::Done;
            };
            let error = match read {
                Ok(manifest) => {
                    self.unpin_others(&manifest);
                    self.take_up(run, &manifest);
                    return self.rounds(run, done).await;
                }
                Err(error) => error.to_string(),
            };
            // Of one that stays so all night, once.
            if run.report.error.as_ref() != Some(&error) {
                tracing::error!(error, "nothing is preloaded, and what is here stays");
            }
            run.report.error = Some(error);
            if run.turn.is_asked {
                // Whoever asked reads why, and asks again.
                return Ended::Done;
            }
            self.tell(run).await;
            if self.pause(MANIFEST_AGAIN, run.turn, done).await == Ended::Interrupted {
                return Ended::Interrupted;
            }
        }
    }

    /// Takes up the work for `run` from `manifest`.
    fn take_up(&self, run: &mut Run, manifest: &Manifest) {
        let mut report = Report::new(run.report.began_unix_ms, manifest);
        report.bytes = run.report.bytes;
        let addresses = manifest.addresses.iter().enumerate();
        let item = |(number, address): (usize, &Address)| Item::new(number, address);
        let mut items: Vec<Item> = addresses.filter_map(item).collect();
        items.retain(|item| {
            let object = &mut report.objects[item.number];
            object.here = self.cache.holds(&item.key, item.request.headers());
            let is_done = self.cache.is_ahead(&item.key, item.request.headers(), run.turn.began);
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
        (run.items, run.report) = (items, report);
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
    async fn rounds(&self, run: &mut Run, done: &Done) -> Ended {
        let mut pause = FIRST_PAUSE;
        self.tell(run).await;
        loop {
            self.round(run).await;
            run.items.retain(|item| run.report.objects[item.number].state == Outcome::Failed);
            if run.items.is_empty() {
                return Ended::Done;
            }
            self.tell(run).await;
            if self.pause(pause, run.turn, done).await == Ended::Interrupted {
                return Ended::Interrupted;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits before something is tried again, unless somebody wants it all at once.
    async fn pause(&self, pause: Duration, turn: Turn, done: &Done) -> Ended {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            sleep(LOOK).await;
            if !turn.is_asked && self.asked(done).await.is_some() {
                return Ended::Interrupted;
            }
        }
        Ended::Done
    }

    async fn round(&self, run: &mut Run) {
        let Run { turn, items, report, budget, ledger, told_at, is_told } = run;
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
                () = sleep_until(ledger.at + COUNT) => {
                    *is_told &= !self.count(*turn, ledger, report, budget).await;
                }
                () = news => {
                    (*told_at, *is_told) = (Instant::now(), true);
                    self.write(report).await;
                }
                fetched = fetching.next() => {
                    let Some((item, outcome)) = fetched else { return };
                    self.note(report, item, outcome);
                    report.bytes = ledger.before.saturating_add(budget.came());
                    *is_told = false;
                }
            }
        }
    }

    /// Writes what was spent, unless it stands there; gives whether it has.
    async fn count(
        &self,
        turn: Turn,
        ledger: &mut Ledger,
        report: &mut Report,
        budget: &Budget,
    ) -> bool {
        ledger.at = Instant::now();
        report.bytes = ledger.before.saturating_add(budget.came());
        if ledger.written == report.bytes {
            return false;
        }
        ledger.written = report.bytes;
        ledger.spent.set(turn.is_asked, report.began_unix_ms, report.bytes);
        let (spent, file) = (ledger.spent, self.settings.report.clone());
        let written = in_turn(&self.spent_at, move || spent.write(&file)).await;
        if let Err(error) = written {
            self.quiet.warn("what the preload has fetched would be forgotten in a restart", &error);
        }
        true
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
        if let Err(error) = in_turn(&self.told_at, move || report.write(&file)).await {
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

/// Writes on a thread that may block, unless something newer has been written.
async fn in_turn(
    last: &Latest,
    write: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (last, made) = (last.clone(), Instant::now());
    let writing = move || {
        // Nothing panics while it is held.
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last > made) {
            return Ok(());
        }
        *last = Some(made);
        write()
    };
    // The runtime ends with the gateway alone.
    spawn_blocking(writing).await.unwrap_or(Ok(()))
}

/// Beginning of the run that `file` requests, at `now` or before.
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

/// Beginning of the run that goes on at `now`, by the text of the file that requests it.
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
