//! Flows that hubs forward over a transport without fields.

use std::collections::HashSet;

use bentpipe_flow::{Host, ResetCode, Service};
use bentpipe_transport::{Carried, Incoming};
use tokio::sync::{Mutex, mpsc};

use crate::statement::stated;

/// Maximum number of flows whose statement is known and that wait to be accepted. The transport's limit
/// of flows bounds those before.
const MAX_WAITING: usize = 1024;

/// Keys of hubs, and their flows.
pub struct FromHubs {
    keys: HashSet<[u8; 32]>,
    stated: mpsc::Sender<Incoming>,
    waiting: Mutex<mpsc::Receiver<Incoming>>,
}

impl FromHubs {
    /// The peers with these keys are hubs.
    pub fn new(keys: HashSet<[u8; 32]>) -> Self {
        let (stated, waiting) = mpsc::channel(MAX_WAITING);
        Self { keys, stated, waiting: Mutex::new(waiting) }
    }

    /// Returns `incoming` if it is an aircraft's. The flow of a hub is [next](Self::next) once it has
    /// stated its aircraft, or itself.
    pub fn take(&self, mut incoming: Incoming) -> Option<Incoming> {
        if incoming.is_forwarded || !self.keys.contains(&incoming.aircraft) {
            return Some(incoming);
        }
        let is_forwarded = match (&incoming.carries, &incoming.target.host) {
            (Carried::Stream(_), host) => *host == Host::Service(Service::Anchor),
            (Carried::Datagrams { .. }, host) => !matches!(host, Host::Service(_)),
        };
        if !is_forwarded {
            incoming.carries.reset(ResetCode::Forbidden);
            return None;
        }
        let to = self.stated.clone();
        tokio::spawn(async move {
            let Some(incoming) = stated(incoming).await else { return };
            // Fails only if the gateway ends. Dropping the flow resets it.
            let _ = to.send(incoming).await;
        });
        None
    }

    /// Waits for the next flow of a hub.
    pub async fn next(&self) -> Option<Incoming> {
        self.waiting.lock().await.recv().await
    }
}
