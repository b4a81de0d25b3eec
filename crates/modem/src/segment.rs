//! Sockets limited to the local segment (RFC 5082).
//!
//! DLEP packets are sent with a TTL of 255. A packet received with a smaller TTL was forwarded by a
//! router, so it comes from outside the segment, regardless of its source address.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use bentpipe_dlep::{MAX_SIGNAL_BYTES, TTL};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SetSockOpt, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::{TcpSocket, UdpSocket};

/// Creates an unconnected TCP socket, bound to `interface` if given.
pub fn tcp(family: SocketAddr, interface: Option<&str>) -> io::Result<TcpSocket> {
    let socket = if family.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(interface) = interface {
        SockRef::from(&socket).bind_device(Some(interface.as_bytes()))?;
    }
    keep_to_segment(&socket, family.is_ipv4())?;
    Ok(socket)
}

/// Makes a TCP socket send with TTL 255 and discard packets received with less.
pub fn keep_to_segment(socket: &(impl AsFd + AsRawFd), v4: bool) -> io::Result<()> {
    let options = SockRef::from(socket);
    if v4 {
        options.set_ttl_v4(TTL.into())?;
    } else {
        options.set_unicast_hops_v6(TTL.into())?;
    }
    MinTtl { v4 }.set(socket, &TTL.into()).map_err(Into::into)
}

/// Socket option IP_MINTTL or IPV6_MINHOPCOUNT.
#[derive(Clone, Copy)]
struct MinTtl {
    v4: bool,
}

impl SetSockOpt for MinTtl {
    type Val = libc::c_int;

    #[allow(unsafe_code)]
    fn set<F: AsFd>(&self, socket: &F, value: &libc::c_int) -> nix::Result<()> {
        let (level, option) = match self.v4 {
            true => (libc::IPPROTO_IP, libc::IP_MINTTL),
            false => (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
        };
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed for the call. The pointer refers to an int of the
        // given length that outlives the call, and the kernel copies it.
        let done = unsafe {
            libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), length)
        };
        nix::errno::Errno::result(done).map(drop)
    }
}

/// A UDP socket for discovery (RFC 8175, section 7.1) on a network interface.
pub struct DiscoverySocket(UdpSocket);

impl DiscoverySocket {
    /// Binds IPv4 port `port`, or any port if zero. Joins `group` if given.
    pub fn bind_v4(interface: &str, port: u16, group: Option<Ipv4Addr>) -> io::Result<Self> {
        let socket = on_interface(Domain::IPV4, interface)?;
        socket.set_ttl_v4(TTL.into())?;
        socket.set_multicast_ttl_v4(TTL.into())?;
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
        let index = nix::net::if_::if_nametoindex(interface)?;
        let index = socket2::InterfaceIndexOrAddress::Index(index);
        if let Some(group) = group {
            socket.join_multicast_v4_n(&group, &index)?;
        }
        Self::bind(socket, (Ipv4Addr::UNSPECIFIED, port).into())
    }

    /// Binds IPv6 port `port`, or any port if zero. Joins `group` if given.
    pub fn bind_v6(interface: &str, port: u16, group: Option<Ipv6Addr>) -> io::Result<Self> {
        let socket = on_interface(Domain::IPV6, interface)?;
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(TTL.into())?;
        socket.set_multicast_hops_v6(TTL.into())?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        let index = nix::net::if_::if_nametoindex(interface)?;
        socket.set_multicast_if_v6(index)?;
        if let Some(group) = group {
            socket.join_multicast_v6(&group, index)?;
        }
        Self::bind(socket, (Ipv6Addr::UNSPECIFIED, port).into())
    }

    fn bind(socket: Socket, address: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        UdpSocket::from_std(socket.into()).map(Self)
    }

    /// Local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Sends a signal.
    pub async fn send(&self, signal: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(signal, to).await.map(drop)
    }

    /// Receives the next datagram, its TTL (zero if unknown) and its sender. A datagram longer than
    /// [`MAX_SIGNAL_BYTES`] is returned empty.
    pub async fn receive(&self) -> io::Result<(Vec<u8>, u8, SocketAddr)> {
        self.0.async_io(Interest::READABLE, || read(&self.0)).await
    }
}

fn on_interface(domain: Domain, interface: &str) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Restricts the socket to this interface.
    socket.bind_device(Some(interface.as_bytes()))?;
    Ok(socket)
}

fn read(socket: &UdpSocket) -> io::Result<(Vec<u8>, u8, SocketAddr)> {
    let mut buffer = [0; MAX_SIGNAL_BYTES];
    let mut space = nix::cmsg_space!(libc::c_int, libc::c_int);
    let mut pieces = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::empty();
    let got = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, Some(&mut space), flags)?;
    let from = got.address.as_ref().and_then(address);
    let from = from.ok_or_else(|| io::Error::other("a datagram without a sender"))?;
    let ttl = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
            u8::try_from(ttl).ok()
        }
        _ => None,
    });
    let length = if got.flags.contains(MsgFlags::MSG_TRUNC) { 0 } else { got.bytes };
    Ok((buffer[..length].to_vec(), ttl.unwrap_or(0), from))
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|a| SocketAddrV4::new(a.ip(), a.port()).into());
    v4.or_else(|| {
        let a = storage.as_sockaddr_in6()?;
        Some(SocketAddrV6::new(a.ip(), a.port(), a.flowinfo(), a.scope_id()).into())
    })
}
