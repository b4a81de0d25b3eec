//! Current traffic of a gateway, written to a file every few seconds; see docs/status.md.
//!
//! | module | contents |
//! |---|---|
//! | this page | the reporter, which writes the file |
//! | `document`, `experience` | the file's contents |
//! | `ground_entry` | other gateways on the ground |
//! | `file` | the place of the file |
//! | `server` | HTTP at an address of this host: the next two |
//! | `exposition` | the same for Prometheus |
//! | `history`, `view` | the last day, and the operator's page |
//! | `command` | a command for a running gateway, and the answer |
//! | [`notify`] | notifications to the service manager |

#![forbid(unsafe_code)]

mod command;
mod document;
mod experience;
mod exposition;
mod file;
mod ground_entry;
mod history;
pub mod notify;
mod server;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_link::SnapshotLimits;
use bentpipe_units::micros;
use history::History;
use parking_lot::Mutex;
use server::Newest;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

pub use command::{Asked, Command, Outcome};
pub use document::{
    ClassEntry, Document, FlowEntry, Gateway, LinkEntry, Moved, Names, PassengerEntry, PathEntry,
    RateEntry, SCHEMA, Session,
};
pub use experience::ExperienceEntry;
pub use file::{Place, ReadError, read};
pub use ground_entry::{EgressEntry, GroundEntry, Others};

use bentpipe_config as config;
use bentpipe_metering::counters;
use bentpipe_net::atomic_file;

use crate::config::{Detail, StatusConfig};
use crate::counters::Counters;

/// Maximum number of passengers, and of flows, in the file for one session: the busiest ones.
pub const MAX_OF_A_SESSION: usize = 64;

/// Maximum number of passengers, and of flows, in the file for all sessions, divided equally; each
/// session gets at least one. With 256 busy aircraft the file has about 2.5 MB.
pub const MAX_OF_ALL: usize = 1024;

/// Additional counters, by name.
type More = Box<dyn Fn() -> Vec<(String, u64)> + Send + Sync>;

/// Other gateways on the ground.
type LookAtOthers = Box<dyn Fn() -> Others + Send + Sync>;

/// Writes the file periodically, and removes it when dropped.
pub struct Reporter {
    config: StatusConfig,
    place: Place,
    gateway: Gateway,
    counters: Arc<Counters>,
    more: Vec<More>,
    others: LookAtOthers,
    began: Instant,
    /// Returns the maximum number of sessions.
    sessions: Box<dyn Fn() -> usize + Send + Sync>,
    failing: bool,
    /// The last document, for [`server`].
    last: watch::Sender<Arc<Document>>,
    history: Arc<Mutex<History>>,
}

impl Reporter {
    /// Creates a reporter for a gateway with at most as many sessions as `sessions` returns.
    pub fn new(
        config: &StatusConfig,
        gateway: Gateway,
        counters: Arc<Counters>,
        sessions: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        let (place, began) = (Place::new(&config.file), Instant::now());
        let (config, more) = (config.clone(), Vec::new());
        let others: LookAtOthers = Box::new(Others::default);
        let last = watch::Sender::new(Arc::new(Document::empty(gateway)));
        let (history, failing) = Default::default();
        let sessions = Box::new(sessions);
        Self {
            config,
            place,
            gateway,
            counters,
            more,
            others,
            began,
            sessions,
            failing,
            last,
            history,
        }
    }

    /// Adds the counters that `more` returns to the file.
    #[must_use]
    pub fn with(mut self, more: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static) -> Self {
        self.more.push(Box::new(more));
        self
    }

    /// Adds the gateways that `others` returns to the file.
    #[must_use]
    pub fn with_others(mut self, others: impl Fn() -> Others + Send + Sync + 'static) -> Self {
        self.others = Box::new(others);
        self
    }

    /// Writes the sessions that `look` returns, periodically and forever. Logs a write failure
    /// once, and keeps trying.
    pub async fn keep(mut self, look: impl Fn(SnapshotLimits) -> Vec<Session>) {
        let (document, history) = (self.last.subscribe(), self.history.clone());
        let newest = Newest { document, history, token: self.config.token.clone() };
        let _serving = self.config.listen.map(|listen| server::serve(listen, newest));
        let mut ticks = tokio::time::interval(self.config.interval.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.write(&look).await;
        }
    }

    /// Writes the sessions that `look` returns, once.
    pub async fn write(&mut self, look: &impl Fn(SnapshotLimits) -> Vec<Session>) {
        let document = Arc::new(self.document(look(self.most())));
        self.history.lock().note(&document);
        self.last.send_replace(document.clone());
        let place = self.place.clone();
        let writing = move || place.replace(&document.to_json());
        let written = match tokio::task::spawn_blocking(writing).await {
            Ok(written) => written,
            Err(error) => Err(error.into()),
        };
        let failed = written.is_err();
        if let Err(error) = written
            && !self.failing
        {
            let file = self.config.file.display();
            tracing::warn!(%error, %file, "the status cannot be written; trying again quietly");
        }
        self.failing = failed;
    }

    fn most(&self) -> SnapshotLimits {
        let each = (MAX_OF_ALL / (self.sessions)().max(1)).clamp(1, MAX_OF_A_SESSION);
        match self.config.detail {
            Detail::Classes => SnapshotLimits { passengers: 0, flows: 0 },
            Detail::Passengers => SnapshotLimits { passengers: each, flows: 0 },
            Detail::Flows => SnapshotLimits { passengers: each, flows: each },
        }
    }

    fn document(&self, sessions: Vec<Session>) -> Document {
        // A clock before 1970 has not been set.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut counters = self.counters.all();
        counters.extend(self.more.iter().flat_map(|more| more()));
        let Others { grounds, egresses } = (self.others)();
        Document {
            written_unix_ms: millis(now),
            interval_ms: millis(self.config.interval.into()),
            uptime_us: micros(self.began.elapsed()),
            detail: self.config.detail,
            counters: counters.into_iter().map(|(name, n)| (name.replace('-', "_"), n)).collect(),
            experience: self.counters.experience.all().iter().map(ExperienceEntry::of).collect(),
            sessions,
            grounds,
            egresses,
            ..Document::empty(self.gateway)
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // Also stops writes in progress or queued, because the gateway is no longer running.
        self.place.remove();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Names in a ground gateway, which knows passengers only by number: none.
pub fn nameless() -> Names {
    HashMap::new()
}

#[cfg(test)]
mod tests;
