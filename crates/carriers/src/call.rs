//! A call to one ground: addresses, sockets and the radio transport.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bentpipe_config::AirConfig;
use bentpipe_flow::{Host, Target};
use bentpipe_link::io::{Air, Socket, UdpSocket};
use bentpipe_link::secure::MAX_PEER_ADDRESSES;
use bentpipe_net::{self as net, Inherited, SocketError};
use tokio::time::sleep;

use crate::radio::{seen_from, sockets};
use crate::{TransportError, daily_limit, handshake_counter, link, path_memory};

const ANY_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const ANY_V6: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Interval of queries for the ground's name until it has an address.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the radio transport to a ground at `peers`, with what is known of the path and of the
/// handshakes.
pub fn radio(
    config: &AirConfig,
    inherited: &mut Inherited,
    peers: &[SocketAddr],
) -> Result<Air, TransportError> {
    let counter = handshake_counter::claim(&config.link.state_file)?;
    let air = call(inherited, config, peers, counter)?;
    path_memory::keep(&air, any_address(peers).1[0], &config.link.state_file);
    // With further hubs, each call has new counters. The hub called last has to have the highest.
    if config.hubs.is_empty() {
        handshake_counter::renew(&air, &config.link.state_file);
    }
    Ok(air)
}

/// Starts the radio transport to a ground at `peers`, with handshake counters from `counter`.
pub fn call(
    inherited: &mut Inherited,
    config: &AirConfig,
    peers: &[SocketAddr],
    counter: u64,
) -> Result<Air, TransportError> {
    let of_paths = config.paths.iter().filter_map(|path| path.peer);
    let all: Vec<SocketAddr> = peers.iter().copied().chain(of_paths).collect();
    let (any, peers) = (any_address(&all).0, any_address(peers).1);
    let peers: Vec<SocketAddr> = peers.into_iter().map(|peer| seen_from(any, peer)).collect();
    let socket: Box<dyn Socket> = match config.paths.is_empty() {
        true => Box::new(plain_socket(inherited, "link", any)?.with_marks(config.link.dscp)),
        false => Box::new(sockets(&config.paths, &peers, any, config.link.dscp)),
    };
    let mut of_link = link::air_config(config, peers[0], counter)?;
    link::set_quotas(&mut of_link.settings, daily_limit::quotas(config)?);
    let air = Air::start(socket, of_link);
    for (number, path) in (0..).zip(&config.paths) {
        if let Some(peer) = path.peer {
            air.set_path_address(number, seen_from(any, peer));
        }
    }
    air.also_at(peers[1..].iter().copied());
    Ok(air)
}

/// Local address of a socket that reaches all of `peers`, which are not empty, and their addresses
/// as that socket needs them, on this machine.
pub fn any_address(peers: &[SocketAddr]) -> (SocketAddr, Vec<SocketAddr>) {
    reachable(peers, || net::without_ipv6().is_none())
}

/// Local address of a socket that reaches all of `peers`, which are not empty, and their addresses
/// as that socket needs them. One socket serves both families, and IPv4 addresses are then mapped to
/// IPv6. Without IPv6 on this machine (`has_v6`), only IPv4 peers are left, if there are any.
pub fn reachable(
    peers: &[SocketAddr],
    has_v6: impl FnOnce() -> bool,
) -> (SocketAddr, Vec<SocketAddr>) {
    let v4: Vec<SocketAddr> = peers.iter().copied().filter(SocketAddr::is_ipv4).collect();
    if v4.len() == peers.len() || !v4.is_empty() && !has_v6() {
        return (ANY_V4, v4);
    }
    let mapped = |peer: &SocketAddr| match peer {
        SocketAddr::V4(v4) => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
        v6 => *v6,
    };
    (ANY_V6, peers.iter().map(mapped).collect())
}

pub fn plain_socket(
    inherited: &mut Inherited,
    name: &'static str,
    address: SocketAddr,
) -> Result<UdpSocket, TransportError> {
    let socket = inherited.udp_or_bind(name, address)?;
    UdpSocket::from_std(socket).map_err(|source| bind_error(name, address, source))
}

pub fn bind_error(what: &'static str, address: SocketAddr, source: io::Error) -> TransportError {
    SocketError::Bind { what, address, source }.into()
}

/// Resolves the peer's name until it has an address. Returns all addresses in the order of RFC 6724.
pub async fn resolve(peer: &Target) -> Vec<SocketAddr> {
    loop {
        match resolved(peer).await {
            Ok(addresses) if !addresses.is_empty() => return addresses,
            Ok(_) => tracing::warn!(%peer, "the ground's name has no address; trying again"),
            Err(error) => tracing::warn!(%peer, %error, "the ground's name; trying again"),
        }
        sleep(RESOLVE_INTERVAL).await;
    }
}

/// Resolves the peer's name once.
pub async fn resolved(peer: &Target) -> io::Result<Vec<SocketAddr>> {
    let host = match &peer.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, peer.port)]),
        name => name.to_string(),
    };
    let addresses = tokio::net::lookup_host((host, peer.port)).await?;
    Ok(addresses.take(MAX_PEER_ADDRESSES).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_share_a_socket() {
        let [v4, v6]: [SocketAddr; 2] =
            ["192.0.2.1:4500", "[2001:db8::1]:4500"].map(|peer| peer.parse().unwrap());
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:4500".parse().unwrap();
        assert_eq!(reachable(&[v4], || panic!()), (ANY_V4, vec![v4]));
        assert_eq!(reachable(&[v6], || panic!()), (ANY_V6, vec![v6]));
        assert_eq!(reachable(&[v6, v4], || true), (ANY_V6, vec![v6, mapped]));
        assert_eq!(reachable(&[v6, v4], || false), (ANY_V4, vec![v4]));
    }
}
