//! TCP connections of the ground gateway, to destinations that the policy permits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bentpipe_net as net;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::eyeballs::{Connect, Slot};
use super::policy::Policy;

/// Connector for the kernel's TCP that enforces the policy.
pub struct Tcp<'a> {
    policy: &'a Policy,
    /// Source addresses: IPv4, then IPv6.
    from: [Option<IpAddr>; 2],
    /// Slots for attempts during another attempt of the same flow.
    slots: Arc<Semaphore>,
    lacked_descriptors: AtomicBool,
}

impl<'a> Tcp<'a> {
    /// Creates a connector with source addresses `from`: IPv4, then IPv6. `slots` limits the attempts
    /// during other attempts.
    pub fn of(policy: &'a Policy, from: [Option<IpAddr>; 2], slots: &Arc<Semaphore>) -> Self {
        Self { policy, from, slots: slots.clone(), lacked_descriptors: AtomicBool::new(false) }
    }

    /// Returns `true` if an attempt failed because no descriptor was left.
    pub fn lacked_descriptors(&self) -> bool {
        self.lacked_descriptors.load(Relaxed)
    }

    async fn open(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        match self.from[usize::from(address.is_ipv6())] {
            None => TcpStream::connect(address).await,
            Some(from) => net::bound(from)?.connect(address).await,
        }
    }
}

impl Connect for Tcp<'_> {
    type Stream = TcpStream;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<TcpStream>> {
        Box::pin(async move {
            self.policy.path(address)?;
            let tcp = self.open(address).await.inspect_err(|error| {
                if net::descriptors::is_shortage(error) {
                    self.lacked_descriptors.store(true, Relaxed);
                }
            })?;
            net::tune(&tcp)?;
            Ok(tcp)
        })
    }

    fn slot(&self) -> Option<Slot> {
        self.slots.clone().try_acquire_owned().ok().map(|slot| Slot(Some(slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eyeballs;
    use crate::udp::Routes;
    use bentpipe_flow::ResetCode;

    /// Policy for this machine's own addresses. [`Policy::permit`] does not cover it, because such
    /// an address may be global.
    #[tokio::test]
    async fn loopback_is_dialled_only_if_allowed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let codes = async |policy: Policy| {
            let tcp =
                Tcp::of(&policy, [None; 2], &Arc::new(Semaphore::new(0))).connect(here).await.err();
            let route = Routes(&policy).connect(here).await.err();
            [tcp, route].map(|error| error.map(|error| eyeballs::code_of(&error)))
        };
        assert_eq!(codes(Policy::default()).await, [Some(ResetCode::Forbidden); 2]);
        let allow = toml::from_str("allow = [\"127.0.0.1/32\"]").unwrap();
        let allow = Policy::new(&allow);
        assert_eq!(codes(allow).await, [None; 2]);
    }

    #[tokio::test]
    async fn connections_leave_from_the_address_that_is_configured() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let policy = Policy::new(&toml::from_str("allow = [\"127.0.0.0/8\"]").unwrap());
        let from = [Some("127.0.0.9".parse().unwrap()), None];
        let tcp = Tcp::of(&policy, from, &Arc::new(Semaphore::new(0)));
        let _tcp = tcp.connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, seen) = listener.accept().await.unwrap();
        assert_eq!(seen.ip(), IpAddr::from([127, 0, 0, 9]));
    }
}
