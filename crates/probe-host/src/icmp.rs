//! ICMP sockets, and whether they are allowed.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use bentpipe_probe::ping::echo::without_ipv4_header;
use bentpipe_probe::target::Family;
use socket2::{Domain, Protocol, Socket, Type};

use crate::arrival;

/// An ICMP socket that does not block.
#[derive(Debug)]
pub struct Icmp {
    // The standard library has no type for such sockets; its UDP socket makes the same system calls.
    socket: UdpSocket,
    family: Family,
    raw: bool,
}

impl Icmp {
    /// Opens an unprivileged socket if `net.ipv4.ping_group_range` allows it, else a raw one if CAP_NET_RAW
    /// does.
    pub fn open(family: Family) -> io::Result<Self> {
        Self::with(family, Type::DGRAM).or_else(|_| Self::raw(family))
    }

    /// Opens a raw socket, which hears the errors that routers send.
    pub fn raw(family: Family) -> io::Result<Self> {
        Self::with(family, Type::RAW)
    }

    fn with(family: Family, kind: Type) -> io::Result<Self> {
        let (domain, protocol) = match family {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        arrival::stamp(&socket)?;
        Ok(Self { socket, family, raw: kind == Type::RAW })
    }

    /// Sends a message.
    pub fn send(&self, to: IpAddr, packet: &[u8]) -> io::Result<()> {
        self.socket.send_to(packet, SocketAddr::new(to, 0)).map(drop)
    }

    /// Sets the TTL or hop limit of later messages.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        set_ttl(&self.socket, self.family, ttl)
    }

    /// Receives a message without its IP header, with its sender and its time of arrival since boot. Returns
    /// `None` if none is there.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
    ) -> io::Result<Option<(IpAddr, Duration, &'b [u8])>> {
        let received = match arrival::receive(&self.socket, buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let packet = &buffer[..received.length];
        let message = match (self.raw, self.family) {
            (true, Family::V4) => without_ipv4_header(packet).unwrap_or_default(),
            _ => packet,
        };
        Ok(Some((received.from, received.at, message)))
    }

    /// The socket, to wait for it.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// Sets the TTL or hop limit of a socket.
pub fn set_ttl(socket: &UdpSocket, family: Family, ttl: u8) -> io::Result<()> {
    let socket = socket2::SockRef::from(socket);
    match family {
        Family::V4 => socket.set_ttl_v4(ttl.into()),
        Family::V6 => socket.set_unicast_hops_v6(ttl.into()),
    }
}
