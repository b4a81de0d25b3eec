//! Collapsed forwarding: fetches in progress, and the clients that wait for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::error::OriginError;
use crate::fill::Fill;
use crate::head::Head;
use crate::key::Key;
use crate::store::Entry;

/// Progress of a fetch.
#[derive(Clone)]
pub enum Progress {
    /// No response has arrived.
    Waiting,
    /// The response is arriving.
    Receiving(Transfer),
    /// The stored response is used.
    Stored(Arc<Entry>, ReuseReason),
    /// The response is for the fetching client alone: all others send their own requests.
    NotShared,
    /// The fetch failed.
    Failed(OriginError),
}

/// A response whose body is arriving.
#[derive(Clone)]
pub struct Transfer {
    pub head: Arc<Head>,
    pub fill: Arc<Fill>,
    /// Content-Length, if the origin announced it.
    pub length: Option<u64>,
    /// `true` if the ground gateway pushed it.
    pub pushed: bool,
}

/// Reason why a stored response is used after a request to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReuseReason {
    /// The origin confirmed it with 304.
    Validated,
    /// The origin failed, with this status if it responded at all.
    Error(Option<StatusCode>),
    /// The origin could not be reached.
    Offline,
}

/// Fetches in progress.
#[derive(Default)]
pub struct Flights(Mutex<ByKey>);

/// Number and progress channel of each fetch.
type ByKey = HashMap<Key, (u64, Arc<watch::Sender<Progress>>)>;

/// The right to fetch for all clients that request the same key. Clients wait for its progress.
pub struct Leader {
    flights: Arc<Flights>,
    key: Key,
    number: u64,
    progress: Arc<watch::Sender<Progress>>,
}

/// Role of a client in a fetch.
pub enum Role {
    /// Sends the request.
    Leader(Leader),
    /// Waits for another client's response.
    Follower(watch::Receiver<Progress>),
}

/// Clients that wait for the response to another client's request.
///
/// This is a weak reference, because a request may outlive its response.
#[derive(Clone)]
pub struct Waiters(Weak<watch::Sender<Progress>>);

impl Waiters {
    /// Releases the waiting clients, because the response will be for one client only. Each of them
    /// then sends its own request.
    pub fn release(&self) {
        if let Some(progress) = self.0.upgrade() {
            progress.send_replace(Progress::NotShared);
        }
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiters")
    }
}

impl Flights {
    fn map(&self) -> MutexGuard<'_, ByKey> {
        self.0.lock()
    }

    /// Joins the fetch of `key`, or starts one.
    pub fn join(self: &Arc<Self>, key: &Key, next_number: impl FnOnce() -> u64) -> Role {
        let mut map = self.map();
        if let Some((_, progress)) = map.get(key) {
            return Role::Follower(progress.subscribe());
        }
        let (number, progress) = (next_number(), Arc::new(watch::Sender::new(Progress::Waiting)));
        map.insert(key.clone(), (number, progress.clone()));
        Role::Leader(Leader { flights: self.clone(), key: key.clone(), number, progress })
    }

    /// Progress of the fetch of `key`, if there is one.
    pub fn progress(&self, key: &Key) -> Option<Progress> {
        self.map().get(key).map(|(_, progress)| progress.borrow().clone())
    }
}

impl Leader {
    /// Publishes the progress. Has no effect after the waiting clients were released.
    pub fn publish(&self, next: Progress) {
        self.progress.send_if_modified(|progress| {
            let is_shared = !matches!(progress, Progress::NotShared);
            if is_shared {
                *progress = next;
            }
            is_shared
        });
    }

    /// Handle by which the origin can release the waiting clients.
    pub fn waiters(&self) -> Waiters {
        Waiters(Arc::downgrade(&self.progress))
    }

    /// Adds a waiting client.
    pub fn subscribe(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Resolves when no client waits any more.
    pub async fn abandoned(&self) {
        self.progress.closed().await;
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let mut map = self.flights.map();
        if map.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            map.remove(&self.key);
        }
        drop(map);
        // The fetch ended without a result: clients that still wait send their own requests.
        self.progress.send_if_modified(|progress| {
            let is_waiting = matches!(progress, Progress::Waiting);
            if is_waiting {
                *progress = Progress::NotShared;
            }
            is_waiting
        });
    }
}
