//! One fetch for all who ask for the same at the same time (collapsed forwarding).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use tokio::sync::watch;

use crate::fill::Fill;
use crate::head::Head;
use crate::key::Key;
use crate::origin::{Failure, ForOthers};
use crate::store::Entry;

/// Progress of a fetch.
#[derive(Clone)]
pub enum Progress {
    /// Nothing has come.
    Waiting,
    /// The answer is on its way.
    Flowing(Flowing),
    /// The stored answer still holds, or is as good as anything that can be had.
    Stored(Arc<Entry>, Held),
    /// The answer is for one only: everybody has to ask for oneself.
    Alone,
    /// There is no answer.
    Failed(Failure),
}

/// An answer on its way.
#[derive(Clone)]
pub struct Flowing {
    pub head: Arc<Head>,
    pub fill: Arc<Fill>,
    /// Length, if the origin announced it.
    pub length: Option<u64>,
    /// `true` if it comes from the ground unasked.
    pub pushed: bool,
}

/// Reason for which a stored answer is used after the origin was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It said 304.
    Confirmed,
    /// It failed, with this status if it said anything.
    Error(Option<StatusCode>),
    /// It could not be reached.
    Offline,
}

/// The fetches under way.
#[derive(Default)]
pub struct Flights(Mutex<ByKey>);

/// Fetches in progress: each with its number, and the channel to those who wait.
type ByKey = HashMap<Key, (u64, Arc<watch::Sender<Progress>>)>;

/// The right to fetch; others wait for what its holder says.
pub struct Lead {
    flights: Arc<Flights>,
    key: Key,
    number: u64,
    progress: Arc<watch::Sender<Progress>>,
}

/// Role of a client in a fetch.
pub enum Role {
    /// The one who fetches.
    Leads(Lead),
    /// One who waits for another.
    Follows(watch::Receiver<Progress>),
}

impl Flights {
    fn map(&self) -> MutexGuard<'_, ByKey> {
        // Nothing panics while it is held, so what it guards is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the fetch for `key`, or begins it.
    pub fn join(self: &Arc<Self>, key: &Key, numbers: impl FnOnce() -> u64) -> Role {
        let mut map = self.map();
        if let Some((_, progress)) = map.get(key) {
            return Role::Follows(progress.subscribe());
        }
        let (number, progress) = (numbers(), Arc::new(watch::Sender::new(Progress::Waiting)));
        map.insert(key.clone(), (number, progress.clone()));
        Role::Leads(Lead { flights: self.clone(), key: key.clone(), number, progress })
    }

    /// Progress of the fetch for `key`, if there is one.
    pub fn look(&self, key: &Key) -> Option<Progress> {
        self.map().get(key).map(|(_, progress)| progress.borrow().clone())
    }
}

impl Lead {
    /// Tells those who wait; nothing more once they have been let go.
    pub fn tell(&self, progress: Progress) {
        self.progress.send_if_modified(|told| {
            let waits = !matches!(told, Progress::Alone);
            if waits {
                *told = progress;
            }
            waits
        });
    }

    /// Guard by which the fetching client lets the waiting ones go.
    pub fn others(&self) -> ForOthers {
        ForOthers(Arc::downgrade(&self.progress))
    }

    /// One who waits.
    pub fn follow(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Done when nobody waits any more.
    pub async fn unwanted(&self) {
        self.progress.closed().await;
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut map = self.flights.map();
        if map.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            map.remove(&self.key);
        }
        drop(map);
        // Whoever still waits has been left.
        self.progress.send_if_modified(|progress| {
            let waits = matches!(progress, Progress::Waiting);
            if waits {
                *progress = Progress::Alone;
            }
            waits
        });
    }
}
