//! Requests of the gateways to the kernel.
//!
//! | module | contents |
//! |---|---|
//! | this page | sockets, bound or inherited; marks, keepalive and buffers |
//! | [`udp`] | datagrams with their addresses, hop limits, marks and ICMP errors |
//! | [`handover`] | sockets and state for the next process |
//! | [`path`] | the path MTU and the source address towards a destination |
//! | [`netlink`] | requests to the kernel by netlink |
//! | [`descriptors`] | the limit on descriptors, and its division |
//! | [`command_socket`] | a Unix socket for commands to a running gateway |
//! | [`atomic_file`] | files that are replaced as a whole |
//! | [`interception`] | the nftables table and the policy route of transparent interception |
//! | [`ip`] | numbers of IP protocols |
//!
//! Every error says what was done to what, and what to do next. The crate knows no flow and no gateway.

#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod command_socket;
pub mod descriptors;
mod error;
pub mod handover;
pub mod interception;
pub mod ip;
mod link_news;
pub mod netlink;
pub mod path;
pub mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bentpipe_schedule::{Class, Dscp};
use listenfd::ListenFd;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

pub use descriptors::raise_descriptor_limit;
pub use error::SocketError;
pub use handover::Handover;
pub use link_news::{LinkNews, has_carrier};

/// Backlog of connections not yet accepted: more than a cabin's burst at boarding.
const BACKLOG: i32 = 1024;

/// Keepalive settings that detect a vanished local peer after about two minutes of silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Maximum number of unsent bytes that the kernel keeps for one connection. More would only wait
/// there, in the kernel's memory, while the peer reads slowly.
const MAX_UNSENT_BYTES: u32 = 128 << 10;

/// Number of clients' connections above which each further one has small buffers ([`IN_A_CROWD`]).
pub const CROWD: usize = 512;

/// Buffers of a client's connection in a crowd: 100 Mbit/s to a client 10 ms away, and half of that
/// from it. The kernel doubles them: 3,584 connections × 384 KiB = 1.3 GiB at most.
pub const IN_A_CROWD: BufferSizes = BufferSizes { send: Some(128 << 10), receive: Some(64 << 10) };

/// Returns the reason if this machine has no IPv6. Checks `::1`, which interception uses.
pub fn without_ipv6() -> Option<&'static str> {
    let off = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
    if !has_ipv6_sockets() {
        return Some("this kernel gives no IPv6 sockets");
    }
    let is_off = std::fs::read_to_string(off).is_ok_and(|setting| setting.trim() == "1");
    is_off.then_some("IPv6 is disabled on this machine (sysctl net.ipv6.conf.lo.disable_ipv6=1)")
}

/// Returns `true` if IPv6 sockets are available. The kernel may lack IPv6, as in some containers, or
/// systemd's `RestrictAddressFamilies=` may exclude it.
fn has_ipv6_sockets() -> bool {
    let opened = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None);
    !opened.is_err_and(|error| error.raw_os_error() == Some(libc::EAFNOSUPPORT))
}

/// Returns the address to bind for `what`. `[::]` means every address of the machine, so it becomes
/// `0.0.0.0` if IPv6 sockets are not available.
fn supported_address(what: &str, address: SocketAddr, has_v6: impl FnOnce() -> bool) -> SocketAddr {
    if address.ip() != std::net::Ipv6Addr::UNSPECIFIED || has_v6() {
        return address;
    }
    let instead = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), address.port());
    tracing::warn!("this kernel gives no IPv6 sockets: {what} is served at {instead} instead");
    instead
}

/// Binds a TCP listener for the service `what`. `[::]` also accepts IPv4.
pub fn listen_tcp(what: &'static str, address: SocketAddr) -> Result<TcpListener, SocketError> {
    let address = supported_address(what, address, has_ipv6_sockets);
    bind_tcp(address, |_| Ok(())).map_err(|source| SocketError::Bind { what, address, source })
}

/// Binds a TCP listener after calling `prepare` on its socket. `[::]` also accepts IPv4.
pub fn bind_tcp(
    address: SocketAddr,
    prepare: impl FnOnce(&socket2::Socket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    accept_ipv4_too(&socket, address)?;
    prepare(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Binds a UDP socket for the transport `what`. `[::]` also accepts IPv4.
pub fn bind_udp(what: &'static str, address: SocketAddr) -> Result<UdpSocket, SocketError> {
    let address = supported_address(what, address, has_ipv6_sockets);
    bind_udp_at(None, address).map_err(|source| SocketError::Bind { what, address, source })
}

/// Binds a UDP socket that uses only `interface`, if one is given. The kernel then chooses among the
/// routes of that interface, so it needs one to the peer, with any metric.
pub fn bind_udp_at(interface: Option<&str>, address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    accept_ipv4_too(&socket, address)?;
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Number of an interface; `None` if there is none of this name now.
pub fn interface_index(name: &str) -> Option<u32> {
    if_nametoindex(name).ok()
}

/// Returns `true` if reverse-path filtering is strict on `interface` (RFC 3704): the kernel drops
/// packets from an address to which another interface has the better route.
pub fn filters_strictly(interface: &str) -> bool {
    let of = |name: &str| {
        let setting = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        std::fs::read_to_string(setting).ok().and_then(|text| text.trim().parse::<u8>().ok())
    };
    // The greater of the two counts (Documentation/networking/ip-sysctl.rst).
    of("all").max(of(interface)) == Some(1)
}

/// Accepts IPv4 at `[::]` regardless of the sysctl `net.ipv6.bindv6only`.
fn accept_ipv4_too(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    match address.ip() == std::net::Ipv6Addr::UNSPECIFIED {
        true => socket.set_only_v6(false),
        false => Ok(()),
    }
}

/// Prepares a connection for relaying: disables Nagle's algorithm, bounds the unsent bytes in the
/// kernel, and enables keepalive.
pub fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    SockRef::from(tcp).set_tcp_notsent_lowat(MAX_UNSENT_BYTES)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    SockRef::from(tcp).set_tcp_keepalive(&keepalive)
}

/// Sets the DSCP of `class` on a local socket. Needs no privilege. Errors are ignored, because they
/// mean that the socket is closed.
pub fn mark(socket: &impl std::os::fd::AsFd, class: Class) {
    let socket = SockRef::from(socket);
    let field = u32::from(class.dscp().traffic_class(0));
    // An IPv6 socket can also send IPv4, so both options are set if possible.
    let _ = socket.set_tos_v4(field);
    let _ = socket.set_tclass_v6(field);
}

/// Returns the DSCP of an accepted connection's SYN. The kernel reports it only if the sysctl
/// `net.ipv4.tcp_reflect_tos` is set, which also applies to IPv6. Otherwise every connection seems
/// unmarked.
pub fn mark_of(tcp: &TcpStream) -> Dscp {
    let socket = SockRef::from(tcp);
    let v6 = tcp.local_addr().is_ok_and(|local| local.ip().to_canonical().is_ipv6());
    let field = if v6 { socket.tclass_v6() } else { socket.tos_v4() };
    let field = field.ok().and_then(|field| u8::try_from(field).ok());
    field.map_or(Dscp::DF, Dscp::from_traffic_class)
}

/// Returns `true` if the kernel reports the DSCP of peers' connections, see [`mark_of`].
pub fn reflects_marks() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_reflect_tos");
    setting.is_ok_and(|setting| setting.trim() == "1")
}

/// Buffer sizes of a local TCP connection, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferSizes {
    /// Buffer for data to the local peer.
    pub send: Option<usize>,
    /// Buffer for data from the local peer.
    pub receive: Option<usize>,
}

/// Sets the buffer sizes that the flow's transport requests. The kernel doubles each for its own
/// bookkeeping and limits it (`net.core.wmem_max`, `rmem_max`). Errors are ignored, because a
/// smaller buffer only slows the connection.
pub fn size_buffers(tcp: &TcpStream, buffers: BufferSizes) {
    let socket = SockRef::from(tcp);
    if let Some(bytes) = buffers.send {
        let _ = socket.set_send_buffer_size(bytes);
    }
    if let Some(bytes) = buffers.receive {
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

/// Makes a later close of `tcp` send what is unsent, and then its end. Undoes a zero linger time.
pub fn close_cleanly(tcp: &TcpStream) {
    // Fails only if the connection is already gone.
    let _ = SockRef::from(tcp).set_linger(None);
}

/// Creates a socket that connects from `source`. The port is assigned when connecting, so that
/// connections to different destinations can share a port.
pub fn bound(source: IpAddr) -> io::Result<TcpSocket> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind((source, 0).into())?;
    Ok(socket)
}

/// Sockets inherited from the service manager, by name.
///
/// A listener is served only if it is in the configuration; the inherited socket then replaces the
/// configured address.
#[derive(Default)]
pub struct Inherited {
    sockets: Vec<(String, Handed)>,
    previous: Option<Handover>,
}

enum Handed {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Inherited {
    /// Takes the sockets described by LISTEN_FDS and LISTEN_FDNAMES. Call this once, at startup.
    pub fn from_env() -> Result<Self, SocketError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self::take(ListenFd::from_env(), &names)
    }

    fn take(mut fds: ListenFd, names: &str) -> Result<Self, SocketError> {
        let mut names = names.split(':');
        let (mut sockets, mut previous) = (Vec::new(), None);
        for index in 0..fds.len() {
            let name = names.next().unwrap_or_default().to_owned();
            let taken = match name.as_str() {
                "link" | "masque" | "aerotcp" => {
                    fds.take_udp_socket(index).map(|fd| fd.map(Handed::Udp))
                }
                "socks5" | "http-proxy" | "page" => {
                    fds.take_tcp_listener(index).map(|fd| fd.map(Handed::Tcp))
                }
                handover::NAME => {
                    let (family, kind) = (libc::AF_UNIX, libc::SOCK_STREAM);
                    let taken = fds.take_custom(index, family, kind, "unix stream socket");
                    match taken.and_then(|socket: Option<OwnedFd>| {
                        socket.map(Handover::unpack).transpose()
                    }) {
                        Ok(handover) => previous = handover,
                        // The gateway serves new flows in any case.
                        Err(error) => tracing::error!(%error, "flows of the previous process end"),
                    }
                    continue;
                }
                _ => Err(io::Error::other("no service here has this name")),
            };
            match taken {
                Ok(Some(socket)) => sockets.push((name, socket)),
                Ok(None) => {}
                Err(source) => return Err(SocketError::Inherited { name, source }),
            }
        }
        Ok(Self { sockets, previous })
    }

    /// Returns the UDP socket of the transport `name`: inherited, or else bound to `address`.
    pub fn udp_or_bind(
        &mut self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<UdpSocket, SocketError> {
        match self.remove(name) {
            Some(Handed::Udp(socket)) => {
                socket.set_nonblocking(true).map_err(|source| unusable(name, source))?;
                Ok(socket)
            }
            _ => bind_udp(name, address),
        }
    }

    /// Returns the TCP listener of the service `name`: inherited, or else bound to `address`.
    pub fn tcp_or_listen(
        &mut self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<TcpListener, SocketError> {
        match self.remove(name) {
            Some(Handed::Tcp(listener)) => {
                listener.set_nonblocking(true).map_err(|source| unusable(name, source))?;
                Ok(listener)
            }
            _ => listen_tcp(name, address),
        }
    }

    /// Sockets and state of a gateway's previous process, and nothing else.
    pub fn from_handover(previous: Handover) -> Self {
        Self { sockets: Vec::new(), previous: Some(previous) }
    }

    /// Gateway's state of the previous process, if that has left flows.
    pub fn previous_state(&self) -> Option<&[u8]> {
        self.previous.as_ref().map(|previous| &previous.gateway[..])
    }

    /// Takes what the previous process has left.
    pub fn take_handover(&mut self) -> Option<Handover> {
        self.previous.take()
    }

    /// Splits off the UDP sockets, for a transport that starts later.
    pub fn split_udp(&mut self) -> Self {
        let is_udp = |(_, handed): &mut (String, Handed)| matches!(handed, Handed::Udp(_));
        Self { sockets: self.sockets.extract_if(.., is_udp).collect(), previous: None }
    }

    fn remove(&mut self, name: &str) -> Option<Handed> {
        let index = self.sockets.iter().position(|(known, _)| known == name)?;
        Some(self.sockets.remove(index).1)
    }
}

fn unusable(name: &str, source: io::Error) -> SocketError {
    SocketError::Inherited { name: name.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_says_what_to_do() {
        let first = listen_tcp("socks5", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let error = listen_tcp("socks5", address).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} for socks5: ")), "{error}");
        assert!(error.contains("`ss -lntup` shows which"), "{error}");
        let error = bind_udp("link", "192.0.2.1:0".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("`ip addr` lists those it has"), "{error}");
    }

    #[test]
    fn every_address_is_that_of_ipv4_if_there_is_no_other() {
        let [all, one, v4]: [SocketAddr; 3] =
            ["[::]:4500", "[::1]:4500", "0.0.0.0:4500"].map(|address| address.parse().unwrap());
        assert_eq!(supported_address("link", all, || true), all);
        assert_eq!(supported_address("link", all, || false), v4);
        // An explicitly configured address is kept; binding it reports the error.
        assert_eq!(supported_address("link", one, || false), one);
        assert_eq!(supported_address("link", v4, || panic!()), v4);
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_holds_little_of_the_kernel_s_memory() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (_client, (tcp, _)) = (client.unwrap(), accepted.unwrap());
        tune(&tcp).unwrap();
        let socket = SockRef::from(&tcp);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), MAX_UNSENT_BYTES);
        size_buffers(&tcp, IN_A_CROWD);
        let sizes = (socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap());
        assert_eq!(sizes, (256 << 10, 128 << 10), "the kernel doubles them");
    }

    #[test]
    fn without_a_service_manager_sockets_are_bound() {
        let mut none = Inherited::take(ListenFd::empty(), "").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        assert!(none.tcp_or_listen("socks5", any).is_ok());
        assert!(none.udp_or_bind("link", any).is_ok());
    }
}
