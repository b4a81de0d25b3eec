//! The sockets by which packets leave the ground.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::mapping::lock;
use crate::net::ip;

/// Opens a socket for packets of `protocol`, one that can send to `address`, from `source` if there is one.
///
/// Echoes need no privilege, but a group that may send them (sysctl `net.ipv4.ping_group_range`,
/// which counts for IPv6 too); the kernel gives each socket an identifier of its own, and only
/// answers that have it. Other protocols need CAP_NET_RAW; such a socket hears `address` alone.
pub fn open(protocol: u8, address: SocketAddr, source: Option<IpAddr>) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let number = Some(Protocol::from(i32::from(protocol)));
    let any = if address.is_ipv4() {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let from = SocketAddr::new(source.unwrap_or(any), 0);
    let socket = if protocol == ip::UDP || ip::is_echo(protocol) {
        let socket = Socket::new(domain, Type::DGRAM, number)?;
        if address.is_ipv6() {
            // The ports of IPv4 are for IPv4.
            socket.set_only_v6(true)?;
        }
        socket.bind(&from.into())?;
        socket
    } else {
        let socket = Socket::new(domain, Type::RAW, number)?;
        if source.is_some() {
            socket.bind(&from.into())?;
        }
        socket.connect(&address.into())?;
        socket
    };
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

/// Payload of a packet from such a socket, without the IP header, which raw sockets of IPv4 leave
/// before it.
pub fn payload(protocol: u8, from: SocketAddr, bytes: &[u8]) -> Option<&[u8]> {
    let headed = from.is_ipv4() && protocol != ip::UDP && !ip::is_echo(protocol);
    if !headed {
        return Some(bytes);
    }
    // In words of four bytes, the lower half of the first byte (RFC 791 section 3.1).
    let header_bytes = usize::from(bytes.first()? & 0xf) * 4;
    bytes.get(header_bytes..)
}

/// Destinations of protocols without ports: whose an answer is shows in nothing but where it comes
/// from, so each has one flow.
#[derive(Clone, Default)]
pub struct Taken(Arc<Mutex<HashSet<(u8, IpAddr)>>>);

/// The right to be the only flow of a protocol to a destination, given back when dropped.
pub struct Sole {
    taken: Taken,
    what: (u8, IpAddr),
}

impl Taken {
    /// Takes `address` for a flow of `protocol`, where that is needed;
    /// [`io::ErrorKind::AddrInUse`] where another has it.
    pub fn take(&self, protocol: u8, address: IpAddr) -> io::Result<Option<Sole>> {
        if protocol == ip::UDP || ip::is_echo(protocol) {
            return Ok(None);
        }
        let what = (protocol, address);
        if !lock(&self.0).insert(what) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Some(Sole { taken: self.clone(), what }))
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        lock(&self.taken.0).remove(&self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flow_for_each_protocol_and_destination() {
        let taken = Taken::default();
        let address = |n| IpAddr::from([192, 0, 2, n]);
        let first = taken.take(50, address(1)).unwrap();
        assert!(first.is_some());
        let again = taken.take(50, address(1)).err().unwrap();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        assert!(taken.take(50, address(2)).is_ok() && taken.take(47, address(1)).is_ok());
        for shared in [ip::UDP, ip::ICMP, ip::ICMPV6] {
            assert!(taken.take(shared, address(1)).unwrap().is_none());
        }
        drop(first);
        assert!(taken.take(50, address(1)).is_ok());
    }

    #[test]
    fn the_header_of_raw_packets_is_taken_off() {
        let (v4, v6) = ("192.0.2.1:0".parse().unwrap(), "[2001:db8::1]:0".parse().unwrap());
        let packet = [&[0x46][..], &[0; 23], b"payload"].concat();
        assert_eq!(payload(50, v4, &packet), Some(&b"payload"[..]));
        assert_eq!(payload(50, v4, &packet[..20]), None);
        assert_eq!(payload(50, v4, &[]), None);
        for (protocol, from) in [(50, v6), (ip::ICMPV6, v6), (ip::ICMP, v4), (ip::UDP, v4)] {
            assert_eq!(payload(protocol, from, &packet), Some(&packet[..]));
        }
    }
}
