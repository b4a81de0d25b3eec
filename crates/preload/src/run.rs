//! One run through the manifest.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_webcache::{Budget, Cache, Key, OriginError, PreloadError, Preloaded};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::item::{Item, is_lasting, shown};
use super::manifest::key_of;
use super::{Event, Manifest, Outcome, Settings, Sources, Summary};
use crate::counters::Counters;
use crate::request_error::RequestError;

/// Pause after a request that the link did not carry.
const OFFLINE_PAUSE: Duration = Duration::from_secs(5);

/// Pauses before further attempts at the addresses that failed.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(240),
    Duration::from_secs(480),
    Duration::from_secs(960),
];

/// Fetches the portal's content into the cache.
pub struct Preloader {
    settings: Settings,
    pub(super) cache: Cache,
    sources: Arc<dyn Sources>,
    counters: Arc<Counters>,
}

/// The receiver of the events is gone.
struct Gone;

/// A run in progress.
struct Run<'a> {
    budget: Budget,
    summary: Summary,
    events: &'a mpsc::Sender<Event>,
}

impl Run<'_> {
    async fn send(&self, event: Event) -> Result<(), Gone> {
        self.events.send(event).await.map_err(|_| Gone)
    }
}

impl Preloader {
    /// Creates a preloader that puts objects of `sources` into `cache`.
    pub fn new(
        settings: Settings,
        cache: Cache,
        sources: Arc<dyn Sources>,
        counters: Arc<Counters>,
    ) -> Self {
        Self { settings, cache, sources, counters }
    }

    /// Goes through the manifest once, and sends an event for each attempt. Ends early if nobody
    /// receives the events any more. Dropping the future stops the run; objects in progress are lost.
    pub async fn run(&self, events: mpsc::Sender<Event>) {
        let (file, sites) = (self.settings.manifest.clone(), self.settings.sites.clone());
        // Joining fails only if the runtime ends, and this task with it.
        let Ok(read) = spawn_blocking(move || Manifest::read(&file, &sites)).await else { return };
        match read {
            Ok(manifest) => {
                let budget = Budget::new(self.settings.max_bytes_per_run);
                let mut run = Run { budget, summary: Summary::default(), events: &events };
                if let Err(Gone) = self.work(&manifest, &mut run).await {
                    tracing::info!("the preload was stopped; the next run continues");
                }
            }
            Err(error) => {
                tracing::error!(%error, "nothing is preloaded, and stored objects stay");
                let why = error.to_string();
                // If nobody receives it, the log has it.
                let _ = events.send(Event::Refused { why }).await;
            }
        }
    }

    async fn work(&self, manifest: &Manifest, run: &mut Run<'_>) -> Result<(), Gone> {
        self.unpin_others(manifest);
        for wrong in &manifest.wrong {
            let (line, why) = (wrong.line, wrong.why.to_string());
            tracing::warn!(line, "a line of the manifest is left out: {why}");
            run.send(Event::WrongLine { line, why }).await?;
        }
        let mut items: Vec<Item> = manifest.addresses.iter().filter_map(Item::new).collect();
        tracing::info!(addresses = items.len(), "preloading");
        // Missing objects come first: the budget may not suffice for all.
        items.sort_by_key(|item| self.cache.holds(&item.key, item.request.headers()));
        for pause in PAUSES {
            items = self.round(items, run).await?;
            if items.is_empty() {
                break;
            }
            sleep(pause).await;
        }
        run.summary.failed = match items.is_empty() {
            true => 0,
            false => self.round(items, run).await?.len() as u64,
        };
        self.conclude(run).await
    }

    /// Unpins objects that the manifest does not name.
    fn unpin_others(&self, manifest: &Manifest) {
        let wanted: HashSet<Key> = manifest.addresses.iter().filter_map(key_of).collect();
        for key in self.cache.pinned() {
            if !wanted.contains(&key) {
                self.cache.unpin(&key);
            }
        }
    }

    /// Makes one attempt at each of `items`. Returns those for which another attempt may succeed.
    async fn round(&self, items: Vec<Item>, run: &mut Run<'_>) -> Result<Vec<Item>, Gone> {
        let mut waiting = items.into_iter();
        let mut again = Vec::new();
        let mut fetching = FuturesUnordered::new();
        loop {
            while fetching.len() < self.settings.concurrency
                && let Some(item) = waiting.next()
            {
                fetching.push(self.fetch(item, &run.budget));
            }
            let Some((item, result)) = fetching.next().await else { break };
            let event = self.note(&item, result, &mut run.summary);
            if matches!(event, Event::Object { outcome: Outcome::Failed, .. }) {
                again.push(item);
            }
            run.events.send(event).await.map_err(|_| Gone)?;
        }
        Ok(again)
    }

    /// Fetches one object. While the ground cannot be reached, it waits.
    async fn fetch(&self, item: Item, budget: &Budget) -> (Item, Result<Preloaded, PreloadError>) {
        loop {
            self.sources.reachable().await;
            let Some(origin) = self.sources.origin(&item.address) else {
                let error = RequestError::Flow(ResetCode::NameNotFound);
                return (item, Err(PreloadError::Failed(error.into())));
            };
            let result = self.cache.preload(&item.key, &item.request, &origin, budget).await;
            if !matches!(&result, Err(PreloadError::Failed(OriginError::Offline))) {
                return (item, result);
            }
            sleep(OFFLINE_PAUSE).await;
        }
    }

    /// Counts a result, and makes the event of it.
    fn note(
        &self,
        item: &Item,
        result: Result<Preloaded, PreloadError>,
        summary: &mut Summary,
    ) -> Event {
        let (outcome, bytes, why) = match result {
            Ok(Preloaded::Stored { bytes }) => {
                summary.stored += 1;
                self.counters.preload_stored.add(1);
                self.counters.preload_bytes.add(bytes);
                (Outcome::Stored, bytes, None)
            }
            Ok(Preloaded::Confirmed) => {
                summary.confirmed += 1;
                self.counters.preload_confirmed.add(1);
                (Outcome::Confirmed, 0, None)
            }
            Err(error) if is_lasting(&error) => {
                summary.refused += 1;
                (Outcome::Refused, 0, Some(shown(&error)))
            }
            Err(error) => (Outcome::Failed, 0, Some(shown(&error))),
        };
        Event::Object { url: item.address.to_string(), outcome, bytes, why }
    }

    async fn conclude(&self, run: &mut Run<'_>) -> Result<(), Gone> {
        run.summary.bytes = run.budget.received();
        let Summary { stored, confirmed, failed, refused, bytes } = run.summary;
        self.counters.preload_failed.add(failed + refused);
        tracing::info!(stored, confirmed, failed, refused, bytes, "preloaded");
        run.send(Event::Ended(run.summary)).await
    }
}
