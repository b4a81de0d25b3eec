//! Sockets: bound or inherited, with errors that say what to do.

pub mod ip;
pub(crate) mod netlink;
pub(crate) mod path;
pub(crate) mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use bentpipe_schedule::{Class, Dscp};
use listenfd::ListenFd;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

/// Connections that may wait to be accepted: more than a cabin's burst at boarding.
const BACKLOG: i32 = 1024;

/// A local peer that has vanished is noticed after about two minutes of silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Reason for which a gateway could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be bound.
    #[error("cannot listen on {address} for {what}: {source}\n{}", bind_help(.source))]
    Bind {
        /// Service that failed.
        what: &'static str,
        /// Its address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// A socket handed over by the service manager cannot be used.
    #[error(
        "the inherited socket {name:?} cannot be used: {source}\n\
         LISTEN_FDNAMES may name UDP sockets \"link\", \"masque\" and \"aerotcp\" and TCP \
         listeners \"socks5\", \"http-proxy\" and \"page\""
    )]
    Inherited {
        /// Its name in LISTEN_FDNAMES.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Transparent interception is not possible here.
    #[error(transparent)]
    Intercept(#[from] crate::air::rules::RulesError),
    /// A number in the config cannot work.
    #[error(transparent)]
    Settings(#[from] bentpipe_link::SettingsError),
    /// The beam cannot be shared as it is written.
    #[error("the beam cannot work like this: {0}")]
    Beam(#[from] bentpipe_link::BeamError),
    /// The HTTP cache cannot be opened.
    #[error(transparent)]
    HttpCache(#[from] bentpipe_webcache::OpenError),
    /// The handshake counter cannot be kept.
    #[error(transparent)]
    Counter(#[from] crate::air::counter::CounterError),
    /// HTTP/3 cannot start.
    #[error(transparent)]
    Masque(#[from] bentpipe_masque::StartError),
    /// AeroTCP cannot work as configured.
    #[error(transparent)]
    AeroTcp(#[from] crate::far::aerotcp::AeroTcpError),
    /// The resolver's cache file cannot be read or written.
    #[error(
        "the cache of DNS answers cannot be kept in {path}: {source}\n\
         name another cache-file under [dns], in a folder that this user may write to, or leave it \
         out: then nothing is kept over a restart"
    )]
    DnsCache {
        /// The file.
        path: std::path::PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The task that moves the link's datagrams is gone.
    #[error(
        "the {0} transport ended by a fault of this program, and nothing is carried any more: the \
         lines above say where; please report them, and let the service manager restart it"
    )]
    Failed(&'static str),
    /// The system's name servers are unknown.
    #[error(
        "the name servers of this machine cannot be read: {0}\n\
         name some in the config: [dns] servers = [\"9.9.9.9\"]"
    )]
    Dns(String),
}

fn bind_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program has this port: `ss -lntup` shows which; stop it or choose another port"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher port, run as root, or \
             set AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit"
        }
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            "this kernel gives no sockets of that family: name an IPv4 address"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address: `ip addr` lists those it has"
        }
        _ => "choose another address in the config",
    }
}

/// Returns why this machine has no IPv6, if it has none. It looks at `::1`, which interception uses.
pub(crate) fn without_ipv6() -> Option<&'static str> {
    let off = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
    if !has_ipv6_sockets() {
        return Some("this kernel gives no IPv6 sockets");
    }
    let is_off = std::fs::read_to_string(off).is_ok_and(|setting| setting.trim() == "1");
    is_off.then_some("IPv6 is disabled on this machine (sysctl net.ipv6.conf.lo.disable_ipv6=1)")
}

/// Returns whether there are sockets of IPv6. They are missing without the kernel's part of it, in some
/// containers, and under `RestrictAddressFamilies=` of systemd without AF_INET6.
fn has_ipv6_sockets() -> bool {
    let opened = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None);
    !opened.is_err_and(|error| error.raw_os_error() == Some(libc::EAFNOSUPPORT))
}

/// Address to bind for `what` in place of `address`. `[::]` means every address that the machine has:
/// `0.0.0.0` if it gives no sockets of IPv6.
fn at_hand(what: &str, address: SocketAddr, has_v6: impl FnOnce() -> bool) -> SocketAddr {
    if address.ip() != std::net::Ipv6Addr::UNSPECIFIED || has_v6() {
        return address;
    }
    let instead = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), address.port());
    tracing::warn!("this kernel gives no IPv6 sockets: {what} is served at {instead} instead");
    instead
}

/// Binds a TCP listener for the service `what`; `[::]` takes IPv4 as well.
pub fn listen_tcp(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let address = at_hand(what, address, has_ipv6_sockets);
    bind_tcp(address, |_| Ok(())).map_err(|source| StartError::Bind { what, address, source })
}

/// Binds a TCP listener on which `prepare` was done before binding; `[::]` takes IPv4 as well.
pub(crate) fn bind_tcp(
    address: SocketAddr,
    prepare: impl FnOnce(&socket2::Socket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    take_both(&socket, address)?;
    prepare(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Binds a UDP socket for the transport `what`; `[::]` takes IPv4 as well.
pub fn bind_udp(what: &'static str, address: SocketAddr) -> Result<UdpSocket, StartError> {
    let address = at_hand(what, address, has_ipv6_sockets);
    let bind = || {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )?;
        take_both(&socket, address)?;
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    bind().map_err(|source| StartError::Bind { what, address, source })
}

/// At `[::]` IPv4 is taken too, however this system is set (sysctl `net.ipv6.bindv6only`).
fn take_both(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    match address.ip() == std::net::Ipv6Addr::UNSPECIFIED {
        true => socket.set_only_v6(false),
        false => Ok(()),
    }
}

/// Prepares a connection for relaying: no Nagle delay, and a vanished peer is noticed.
pub fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    SockRef::from(tcp).set_tcp_keepalive(&keepalive)
}

/// Marks what is sent on a local socket as packets of `class` are marked. Needs no privilege; a
/// socket that has gone is none of our concern.
pub fn mark(socket: &impl std::os::fd::AsFd, class: Class) {
    let socket = SockRef::from(socket);
    let field = u32::from(class.dscp().traffic_class(0));
    // An IPv6 socket also sends IPv4, so both are set where both can be.
    let _ = socket.set_tos_v4(field);
    let _ = socket.set_tclass_v6(field);
}

/// Mark of the SYN of an accepted connection. The kernel reports it only if it answers by the same
/// mark (sysctl `net.ipv4.tcp_reflect_tos`, which counts for IPv6 too); otherwise every connection
/// looks unmarked.
pub fn mark_of(tcp: &TcpStream) -> Dscp {
    let socket = SockRef::from(tcp);
    let v6 = tcp.local_addr().is_ok_and(|local| local.ip().to_canonical().is_ipv6());
    let field = if v6 { socket.tclass_v6() } else { socket.tos_v4() };
    let field = field.ok().and_then(|field| u8::try_from(field).ok());
    field.map_or(Dscp::DF, Dscp::from_traffic_class)
}

/// Returns `true` if the kernel reports how peers mark their connections, see [`mark_of`].
pub fn reflects_marks() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_reflect_tos");
    setting.is_ok_and(|setting| setting.trim() == "1")
}

/// Sizes a connection's buffers as the transport beside it wants them. The kernel doubles each for
/// its own bookkeeping and caps it (`net.core.wmem_max`, `rmem_max`): a smaller one only slows the
/// connection, so a refusal is none of ours.
pub fn size_buffers(tcp: &TcpStream, buffers: crate::far::LocalBuffers) {
    let socket = SockRef::from(tcp);
    if let Some(bytes) = buffers.send {
        let _ = socket.set_send_buffer_size(bytes);
    }
    if let Some(bytes) = buffers.receive {
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

/// A socket that connects from `source`. It takes no port before it connects, so that connections to
/// different destinations may have the same one.
pub fn bound(source: IpAddr) -> io::Result<TcpSocket> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind((source, 0).into())?;
    Ok(socket)
}

/// Lets this process hold as many descriptors as the system allows: two per flow
/// would otherwise end at 1,024.
pub fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, "the limit on descriptors stays low: flows may fail");
    }
}

/// The sockets the service manager handed over, by their names.
///
/// A listener must be in the config to be served; the inherited socket then takes
/// the place of the address written there.
#[derive(Default)]
pub struct Inherited {
    sockets: Vec<(String, Handed)>,
}

enum Handed {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Inherited {
    /// Takes what LISTEN_FDS and LISTEN_FDNAMES describe. Call once, at the start.
    pub fn from_env() -> Result<Self, StartError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self::take(ListenFd::from_env(), &names)
    }

    fn take(mut fds: ListenFd, names: &str) -> Result<Self, StartError> {
        let mut names = names.split(':');
        let mut sockets = Vec::new();
        for index in 0..fds.len() {
            let name = names.next().unwrap_or_default().to_owned();
            let taken = match name.as_str() {
                "link" | "masque" | "aerotcp" => {
                    fds.take_udp_socket(index).map(|fd| fd.map(Handed::Udp))
                }
                "socks5" | "http-proxy" => {
                    fds.take_tcp_listener(index).map(|fd| fd.map(Handed::Tcp))
                }
                _ => Err(io::Error::other("no service here has this name")),
            };
            match taken {
                Ok(Some(socket)) => sockets.push((name, socket)),
                Ok(None) => {}
                Err(source) => return Err(StartError::Inherited { name, source }),
            }
        }
        Ok(Self { sockets })
    }

    /// The UDP socket for the transport `name`: inherited, or else bound to `address`.
    pub fn udp_or_bind(
        &mut self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<UdpSocket, StartError> {
        match self.remove(name) {
            Some(Handed::Udp(socket)) => {
                socket.set_nonblocking(true).map_err(|source| unusable(name, source))?;
                Ok(socket)
            }
            _ => bind_udp(name, address),
        }
    }

    /// The TCP listener for the service `name`: inherited, or else bound to `address`.
    pub fn tcp_or_listen(
        &mut self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<TcpListener, StartError> {
        match self.remove(name) {
            Some(Handed::Tcp(listener)) => {
                listener.set_nonblocking(true).map_err(|source| unusable(name, source))?;
                Ok(listener)
            }
            _ => listen_tcp(name, address),
        }
    }

    /// The UDP sockets among them, for a transport that starts later.
    pub fn split_udp(&mut self) -> Self {
        let is_udp = |(_, handed): &mut (String, Handed)| matches!(handed, Handed::Udp(_));
        Self { sockets: self.sockets.extract_if(.., is_udp).collect() }
    }

    fn remove(&mut self, name: &str) -> Option<Handed> {
        let index = self.sockets.iter().position(|(known, _)| known == name)?;
        Some(self.sockets.remove(index).1)
    }
}

fn unusable(name: &str, source: io::Error) -> StartError {
    StartError::Inherited { name: name.to_owned(), source }
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
        assert_eq!(at_hand("link", all, || true), all);
        assert_eq!(at_hand("link", all, || false), v4);
        // One that was named is wanted: binding it says what is wrong.
        assert_eq!(at_hand("link", one, || false), one);
        assert_eq!(at_hand("link", v4, || panic!()), v4);
    }

    #[test]
    fn without_a_service_manager_sockets_are_bound() {
        let mut none = Inherited::take(ListenFd::empty(), "").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        assert!(none.tcp_or_listen("socks5", any).is_ok());
        assert!(none.udp_or_bind("link", any).is_ok());
    }
}
