//! The tasks of a gateway's flows, and their end.

mod grip;

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::net::ip;
pub use grip::Grip;

/// Kind of flows, counted and bounded apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP connections.
    Streams,
    /// Flows of UDP's datagrams.
    Datagrams,
    /// ICMP echo and protocols other than TCP and UDP.
    Ip,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 3;

    /// Kind of datagrams of the IP protocol `protocol`.
    pub fn of_protocol(protocol: u8) -> Self {
        if protocol == ip::UDP { Self::Datagrams } else { Self::Ip }
    }
}

/// Every task that serves a client or a flow.
#[derive(Clone, Default)]
pub struct Flows {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Flows {
    /// Runs `task` until it ends or the drain's deadline drops it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }

    /// Lets the tasks finish for as long as `deadline`, then drops what is left:
    /// those connections are reset.
    pub async fn drain(&self, deadline: Duration) {
        self.tasks.close();
        let open = self.tasks.len();
        if open > 0 {
            tracing::info!(open, ?deadline, "waiting for open flows to finish");
        }
        if tokio::time::timeout(deadline, self.tasks.wait()).await.is_err() {
            tracing::warn!(open = self.tasks.len(), "breaking off the flows still open");
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }
}
