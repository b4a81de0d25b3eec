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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::IpAddr;
    use std::process::Command;
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::interface_index;
    use crate::path::Paths;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn sh(commands: &str) {
        let output = Command::new("sh").args(["-ec", commands]).output().expect("sh runs");
        assert!(output.status.success(), "{commands}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Two interfaces, of which the other one has a route to everywhere all the time.
    async fn follows() {
        sh("for radio in sat0 lte0; do
                ip link add $radio type veth peer name modem-$radio
                ip link set $radio up; ip link set modem-$radio up
            done
            ip addr add 10.1.0.2/24 dev sat0; ip route add default via 10.1.0.1 dev sat0");
        let (news, paths) = (LinkNews::open().unwrap(), Paths::default());
        let lte = interface_index("lte0").unwrap();
        let to: [IpAddr; 2] = ["198.51.100.1", "2001:db8::1"].map(|to| to.parse().unwrap());
        for (commands, from) in [
            ("true", [None, None]),
            ("ip addr add 10.2.0.2/24 dev lte0", [None, None]),
            ("ip route add default via 10.2.0.1 dev lte0 metric 9", [Some("10.2.0.2"), None]),
            ("ip addr flush dev lte0", [None, None]),
            (
                "ip addr add fd02::2/64 dev lte0 nodad; ip -6 route add default dev lte0",
                [None, Some("fd02::2")],
            ),
        ] {
            sh(commands);
            let from = from.map(|from| from.map(|from| from.parse::<IpAddr>().unwrap()));
            let followed = async {
                while to.map(|to| paths.source_by(lte, to).ok().flatten()) != from {
                    news.changed().await;
                }
            };
            tokio::time::timeout(PATIENCE, followed).await.expect(commands);
        }
    }

    #[test]
    fn the_kernel_tells_from_which_address_an_interface_sends() {
        // The namespace ends with its thread.
        let in_namespace = || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() || Command::new("ip").output().is_err() {
                // Not by a macro, whose output the test harness captures.
                return writeln!(std::io::stderr(), "SKIPPED: no network namespaces").unwrap();
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(follows());
        };
        std::thread::spawn(in_namespace).join().expect("the kernel tells");
    }
}
