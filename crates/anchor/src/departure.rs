//! The orderly end of a hub: aircraft that have other hubs move there before it stops.

use std::future::Future;

use bentpipe_transport::FlowStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Carriers through a hub, and the streams of aircraft that wait for the hub's end. Clones share them.
#[derive(Clone, Default)]
pub struct Departure {
    tasks: TaskTracker,
    leaving: CancellationToken,
}

impl Departure {
    /// Runs a task that serves an aircraft's stream.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Finishes `stream` when the hub leaves. Returns once the aircraft has left.
    pub async fn watch(&self, mut stream: Box<dyn FlowStream>) {
        let mut nothing = [0];
        let is_leaving = tokio::select! {
            () = self.leaving.cancelled() => true,
            _ = stream.read(&mut nothing) => false,
        };
        if is_leaving && stream.shutdown().await.is_ok() {
            // The air resets the stream once it has another hub. It sends nothing.
            let _ = stream.read(&mut nothing).await;
        }
    }

    /// Tells all aircraft that wait for it, and waits until their streams have ended.
    pub async fn begin(&self) {
        self.leaving.cancel();
        self.tasks.close();
        let streams = self.tasks.len();
        if streams > 0 {
            tracing::info!(streams, "waiting for aircraft to move to their other hubs");
        }
        self.tasks.wait().await;
    }
}
