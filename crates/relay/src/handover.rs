//! The request to relays to stop for the next process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_net::handover::LeftFlow;
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Maximum wait for all relays to stop. Each needs one turn of its task.
const PATIENCE: Duration = Duration::from_millis(500);

/// Gives a descriptor to the service manager, for the next process.
pub type Store = Arc<dyn Fn(OwnedFd) -> io::Result<()> + Send + Sync>;

/// Leaves flows and the `gateway`'s state with the service manager by `store`.
pub fn leave(gateway: Vec<u8>, flows: Vec<LeftFlow>, store: &Store) {
    let handover = bentpipe_net::Handover { gateway, flows };
    match handover.pack().and_then(|(packed, flows)| store(packed).map(|()| flows)) {
        Ok(flows) => tracing::info!(flows, "left for the next process"),
        Err(error) => tracing::error!(%error, "nothing is left for the next process"),
    }
}

/// A request to all relays of a gateway to stop, and what they leave for the next process.
#[derive(Clone, Default)]
pub struct Handover {
    relays: TaskTracker,
    requested: CancellationToken,
    left: Arc<Mutex<Vec<LeftFlow>>>,
}

impl Handover {
    /// Stops all relays whose flows can go on in the next process. Returns their sockets, each with
    /// its state. The other relays go on.
    pub async fn collect(&self) -> Vec<LeftFlow> {
        self.requested.cancel();
        self.relays.close();
        if timeout(PATIENCE, self.relays.wait()).await.is_err() {
            tracing::warn!(relays = self.relays.len(), "some flows do not stop and are reset");
        }
        self.take()
    }

    /// Takes what relays have left until now.
    pub(crate) fn take(&self) -> Vec<LeftFlow> {
        std::mem::take(&mut *self.left.lock())
    }

    /// Registers a relay until the token is dropped.
    pub(crate) fn running(&self) -> TaskTrackerToken {
        self.relays.token()
    }

    /// Waits until relays have to stop.
    pub(crate) async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Keeps what a relay leaves.
    pub(crate) fn keep(&self, left: LeftFlow) {
        self.left.lock().push(left);
    }
}
