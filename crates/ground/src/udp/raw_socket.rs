//! Sockets by which packets leave the ground gateway.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bentpipe_net::ip;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

/// Opens a socket for packets of `protocol` to `address`, from `source` if given.
///
/// - ICMP echo needs no privilege, but a permitted group (sysctl `net.ipv4.ping_group_range`, which
///   also applies to IPv6). The kernel assigns each socket its own identifier and delivers only
///   matching replies.
/// - Other protocols need CAP_NET_RAW. Such a socket receives only from `address`.
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
            // The socket must not occupy IPv4 ports.
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

/// Payload of a received packet. Raw IPv4 sockets deliver the IP header too, which is removed.
pub fn payload(protocol: u8, from: SocketAddr, bytes: &[u8]) -> Option<&[u8]> {
    let headed = from.is_ipv4() && protocol != ip::UDP && !ip::is_echo(protocol);
    if !headed {
        return Some(bytes);
    }
    // Header length in four-byte words: the lower half of the first byte (RFC 791 section 3.1).
    let header_bytes = usize::from(bytes.first()? & 0xf) * 4;
    bytes.get(header_bytes..)
}

/// Destinations in use for protocols without ports. Answers are matched only by their source, so
/// each destination has one flow.
#[derive(Clone, Default)]
pub struct Taken(Arc<Mutex<HashSet<(u8, IpAddr)>>>);

/// Exclusive use of a destination by one flow of a protocol, released when dropped.
pub struct ExclusiveDestination {
    taken: Taken,
    what: (u8, IpAddr),
}

impl Taken {
    /// Reserves `address` for a flow of `protocol` if necessary. Returns
    /// [`io::ErrorKind::AddrInUse`] if another flow uses it.
    pub fn take(&self, protocol: u8, address: IpAddr) -> io::Result<Option<ExclusiveDestination>> {
        if protocol == ip::UDP || ip::is_echo(protocol) {
            return Ok(None);
        }
        let what = (protocol, address);
        if !self.0.lock().insert(what) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Some(ExclusiveDestination { taken: self.clone(), what }))
    }
}

impl Drop for ExclusiveDestination {
    fn drop(&mut self) {
        self.taken.0.lock().remove(&self.what);
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
