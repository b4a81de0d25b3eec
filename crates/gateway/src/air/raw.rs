//! Packets sent to clients as they are, whatever source address they have.
//!
//! A socket bound to each destination's own address would do for UDP, but it would also take
//! the client's next packets away from the socket that intercepts them, and needs a descriptor for
//! every destination. A raw socket needs two in all, and sends ICMP as well.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// A raw socket for each family. Needs CAP_NET_RAW.
pub struct Raw {
    v4: Socket,
    v6: Option<Socket>,
}

impl Raw {
    /// Opens them; IPv6's where it is wanted.
    pub fn open(v6: bool) -> io::Result<Self> {
        let v6 = v6.then(|| open(Domain::IPV6)).transpose()?;
        Ok(Self { v4: open(Domain::IPV4)?, v6 })
    }

    /// Sends `packet`, an IP packet with all its headers, to `client`. Never waits.
    pub fn send(&self, packet: &[u8], client: SocketAddr) -> io::Result<()> {
        let socket = match client {
            SocketAddr::V4(_) => &self.v4,
            SocketAddr::V6(_) => self.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?,
        };
        // The port would be taken for a protocol; the scope of a link-local address stays.
        let mut client = client;
        client.set_port(0);
        socket.send_to(packet, &client.into()).map(drop)
    }
}

/// The address of ours that `client` knows: a packet to it would have this source.
pub fn own_address(client: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match client {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Connecting a UDP socket asks the routing table and sends nothing.
    socket.connect((client, 9))?;
    Ok(socket.local_addr()?.ip())
}

fn open(domain: Domain) -> io::Result<Socket> {
    // The kernel takes this protocol number for "with all headers", in both families.
    let whole = Protocol::from(libc::IPPROTO_RAW);
    let socket = Socket::new(domain, Type::RAW, Some(whole))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
