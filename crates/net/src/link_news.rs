//! News of network interfaces, as soon as the kernel has them.

use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::interception;

/// A subscription to the changes of this network's interfaces. It ends when it is dropped.
pub struct LinkNews {
    news: Arc<Notify>,
    task: AbortHandle,
}

impl LinkNews {
    /// Subscribes. Must be called within a tokio runtime.
    pub fn open() -> io::Result<Self> {
        let (connection, handle, mut messages) = new_multicast_connection(&[MulticastGroup::Link])?;
        let news = Arc::new(Notify::new());
        let teller = news.clone();
        let task = tokio::spawn(async move {
            let told = async {
                while messages.next().await.is_some() {
                    teller.notify_one();
                }
            };
            tokio::join!(connection, told);
            drop(handle);
        });
        Ok(Self { news, task: task.abort_handle() })
    }

    /// Waits until an interface has come, gone or changed since the last call.
    pub async fn changed(&self) {
        self.news.notified().await;
    }
}

impl Drop for LinkNews {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns `false` if the interface `name` exists and nothing is connected to it.
pub fn has_carrier(name: &str) -> bool {
    let links = interception::links().unwrap_or_default();
    links.iter().find(|link| link.name == name).is_none_or(|link| link.has_carrier)
}
