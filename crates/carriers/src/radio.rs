//! A socket for each radio of a session, bound to its interface or its address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bentpipe_config::RadioPath;
use bentpipe_link::io::{LateSocket, PathSockets, Place, Socket};
use bentpipe_net as net;

/// Place of a radio's socket.
struct Radio {
    name: String,
    interface: Option<String>,
    address: SocketAddr,
    /// `None` if the kernel does not tell.
    news: Option<net::LinkNews>,
}

impl Place for Radio {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> Option<u32> {
        match &self.interface {
            Some(name) => net::interface_index(name),
            None => Some(0),
        }
    }

    fn is_connected(&self) -> bool {
        self.interface.as_deref().is_none_or(net::has_carrier)
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            match &self.news {
                Some(news) => news.changed().await,
                None => std::future::pending().await,
            }
        })
    }

    fn open(&self) -> io::Result<std::net::UdpSocket> {
        net::bind_udp_at(self.interface.as_deref(), self.address)
    }
}

/// Sockets of `paths`, which come when their interfaces do. `any` is the local address of a socket
/// that reaches the ground.
pub fn sockets(paths: &[RadioPath], any: SocketAddr, marks: bool) -> PathSockets {
    let socket = |path: &RadioPath| -> Arc<dyn Socket> {
        if let Some(interface) = path.interface.as_deref().filter(|it| net::filters_strictly(it)) {
            tracing::warn!(
                radio = path.name,
                "the kernel drops answers that come in by {interface} if another interface has the \
                 better route to the ground: write net.ipv4.conf.{interface}.rp_filter = 2 (and \
                 not 1 for `all`) in /etc/sysctl.d, or a rule for its source address"
            );
        }
        let address = match path.local_address {
            Some(address) => seen_from(any, SocketAddr::new(address, 0)),
            None => any,
        };
        let (name, interface) = (path.name.clone(), path.interface.clone());
        let news = interface.as_ref().and_then(|_| net::LinkNews::open().ok());
        LateSocket::start(Box::new(Radio { name, interface, address, news }), marks)
    };
    PathSockets::new(paths.iter().map(socket).collect())
}

/// An address as a socket of `any`'s family needs it: mapped to IPv6 if that is IPv6.
pub fn seen_from(any: SocketAddr, address: SocketAddr) -> SocketAddr {
    match (any, address.ip()) {
        (SocketAddr::V6(_), IpAddr::V4(v4)) => (v4.to_ipv6_mapped(), address.port()).into(),
        _ => address,
    }
}
