//! A socket for each radio of a session, bound to its interface or its address.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bentpipe_config::RadioPath;
use bentpipe_link::io::{LateSocket, PathSockets, Place, Socket};
use bentpipe_net as net;
use bentpipe_net::path::{End, Paths};

/// Place of a radio's socket.
struct Radio {
    name: String,
    interface: Option<String>,
    address: SocketAddr,
    /// Addresses of the ground on this radio.
    peers: Vec<IpAddr>,
    routes: Paths,
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

    fn source(&self) -> Option<IpAddr> {
        let own = self.address.ip().to_canonical();
        let is_present = || match self.routes.towards(SocketAddr::new(own, 0)) {
            Ok(path) => path.end == End::Here,
            Err(_) => false,
        };
        if !own.is_unspecified() && !is_present() {
            return None;
        }
        let Some(interface) = &self.interface else { return Some(own) };
        let interface = net::interface_index(interface)?;
        if !own.is_unspecified() {
            // A rule for this address may have a route that others do not see.
            return Some(own);
        }
        let by = |peer: &IpAddr| self.routes.source_by(interface, *peer).ok();
        let source = self.peers.iter().find_map(by)?;
        // An address of zeros, if the kernel does not tell.
        Some(source.unwrap_or(Ipv6Addr::UNSPECIFIED.into()))
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

/// Sockets of `paths` to a ground at `peers`, which come when their interfaces do. `any` is the local
/// address of a socket that reaches the ground.
pub fn sockets(
    paths: &[RadioPath],
    peers: &[SocketAddr],
    any: SocketAddr,
    marks: bool,
) -> PathSockets {
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
        let of_path = path.peer.as_ref().map_or(peers, std::slice::from_ref);
        let peers = of_path.iter().map(|peer| peer.ip().to_canonical()).collect();
        let (routes, news) = (Paths::default(), net::LinkNews::open().ok());
        let radio = Radio { name, interface, address, peers, routes, news };
        LateSocket::start(Box::new(radio), marks)
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
