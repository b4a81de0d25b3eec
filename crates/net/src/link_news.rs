//! News of network interfaces, their addresses and routes, as soon as the kernel has them.

use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::interception;

/// Changes that a subscription is about.
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// A subscription to the changes of this network's interfaces, addresses and routes. It ends when it is
/// dropped.
pub struct LinkNews {
    news: Arc<Notify>,
    task: AbortHandle,
}

impl LinkNews {
    /// Subscribes. Must be called within a tokio runtime.
    pub fn open() -> io::Result<Self> {
        let (connection, handle, mut messages) = new_multicast_connection(&GROUPS)?;
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

    /// Waits until something has changed since the last call.
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
