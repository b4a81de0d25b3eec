//! Tasks of a gateway's flows, and their shutdown.

mod activity;
mod grip;
mod pool;

use std::future::Future;
use std::time::Duration;

use bentpipe_net::handover::LeftFlow;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use activity::{Activity, record_activity};
pub use grip::Grip;

use crate::handover::Handover;

pub use crate::transport::Kind;
pub use pool::{Full, Pool, PoolLimits};

/// All tasks that serve a client or a flow.
#[derive(Clone, Default)]
pub struct Flows {
    tasks: TaskTracker,
    stop: CancellationToken,
    handover: Handover,
}

impl Flows {
    /// Runs `task` until it ends or the drain deadline drops it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }

    /// The request to relays to stop for the next process.
    pub fn handover(&self) -> &Handover {
        &self.handover
    }

    /// Stops all tasks at once. Returns what relays leave for the next process; the connections of all
    /// other tasks are reset.
    pub async fn hand_over(&self) -> Vec<LeftFlow> {
        self.tasks.close();
        let mut left = self.handover.collect().await;
        self.stop.cancel();
        self.tasks.wait().await;
        // Some may have been late.
        left.extend(self.handover.take());
        left
    }

    /// Waits up to `deadline` for the tasks to finish, then drops the rest. The connections of
    /// dropped tasks are reset.
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
