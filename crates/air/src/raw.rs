//! Sends complete packets to clients, with any source address.
//!
//! For UDP, a socket bound to each destination's address would also work. But it would take the
//! client's next packets away from the intercepting socket, and would need a descriptor for every
//! destination. A raw socket needs one for each family, and also sends ICMP.
//!
//! While the kernel resolves a neighbour, packets to it are queued and count against the socket's
//! buffer. Spoofed clients are never resolved. Packets to clients without a known device therefore
//! use separate sockets, whose queues do not delay other packets. Devices that have left are
//! resolved too, so the other sockets need large buffers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use bentpipe_net::udp::enlarge_buffer;
use socket2::{Domain, Protocol, Socket, Type};

/// Raw sockets for clients with a known device, and for others. Needs CAP_NET_RAW.
pub struct Raw {
    known: Sockets,
    unproven: Sockets,
}

/// One socket for each family.
struct Sockets {
    v4: Socket,
    v6: Option<Socket>,
}

impl Raw {
    /// Opens the sockets, with IPv6 if requested.
    pub fn open(v6: bool) -> io::Result<Self> {
        let (known, unproven) = (Sockets::open(v6)?, Sockets::open(v6)?);
        for socket in known.v6.iter().chain([&known.v4]) {
            enlarge_buffer(socket);
        }
        Ok(Self { known, unproven })
    }

    /// Sends `packet`, a complete IP packet, to `client`. `is_unproven` is `true` if its device is
    /// unknown. Never waits.
    pub fn send(&self, packet: &[u8], client: SocketAddr, is_unproven: bool) -> io::Result<()> {
        let sockets = if is_unproven { &self.unproven } else { &self.known };
        let socket = match client {
            SocketAddr::V4(_) => &sockets.v4,
            SocketAddr::V6(_) => sockets.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?,
        };
        // A raw socket would interpret the port as a protocol; the scope of a link-local address is
        // kept.
        let mut client = client;
        client.set_port(0);
        socket.send_to(packet, &client.into()).map(drop)
    }
}

impl Sockets {
    fn open(v6: bool) -> io::Result<Self> {
        let v6 = v6.then(|| open(Domain::IPV6)).transpose()?;
        Ok(Self { v4: open(Domain::IPV4)?, v6 })
    }
}

/// Returns our address from which a packet to `client` would be sent.
pub fn own_address(client: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match client {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Connecting a UDP socket looks up the route and sends nothing.
    socket.connect((client, 9))?;
    Ok(socket.local_addr()?.ip())
}

fn open(domain: Domain) -> io::Result<Socket> {
    // This protocol number means "with all headers", in both families.
    let whole = Protocol::from(libc::IPPROTO_RAW);
    let socket = Socket::new(domain, Type::RAW, Some(whole))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
