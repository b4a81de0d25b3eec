//! Lookup of a single route or interface in the kernel's tables (rtnetlink).
//!
//! The kernel answers within the system call of the request, so nothing here waits: a request and
//! its answer take two system calls and a few microseconds.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType,
};
use nix::sys::socket::SockProtocol;

use crate::netlink::Client;

/// Minimum prefix length of a route to neighbours, if it has no gateway. A shorter one is the
/// default route of a point-to-point line (PPP, a tunnel), possibly split into halves.
const MIN_SEGMENT_V4: u8 = 8;
const MIN_SEGMENT_V6: u8 = 16;

/// The path to one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Type of the path's end.
    pub end: End,
    /// Source address of our packets.
    pub own_address: Option<IpAddr>,
    /// Maximum size of an IP packet on the path, bytes, if known.
    pub mtu_bytes: Option<u32>,
}

/// End of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// This machine.
    Here,
    /// A neighbour: the route has no gateway.
    OnLink,
    /// A destination beyond a gateway or a point-to-point line.
    Beyond,
}

/// Looks up routes by netlink.
pub struct Routes(Client);

/// Reason for a failed lookup.
pub enum Failed {
    /// Netlink is not available to this process.
    Refused(io::Error),
    /// The kernel has no route.
    NoRoute(io::Error),
}

impl Routes {
    /// Opens a socket in the thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Client::open(SockProtocol::NetlinkRoute).map(Self)
    }

    /// Returns the path to `to`.
    pub fn path(&mut self, to: IpAddr) -> Result<Path, Failed> {
        let route = self.route(to, None, RouteFlags::empty())?;
        let mut path = Path { end: End::Beyond, own_address: None, mtu_bytes: None };
        let mut has_gateway = false;
        let mut interface = None;
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => has_gateway = true,
                RouteAttribute::PrefSource(address) => path.own_address = plain(address),
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::Metrics(metrics) => path.mtu_bytes = mtu_of(metrics),
                _ => {}
            }
        }
        path.end = match route.header.kind {
            RouteType::Local => End::Here,
            RouteType::Unicast if has_gateway => End::Beyond,
            RouteType::Unicast => self.end_without_gateway(to)?,
            RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast => End::OnLink,
            _ => return Err(Failed::NoRoute(io::ErrorKind::NetworkUnreachable.into())),
        };
        path.mtu_bytes = path.mtu_bytes.or_else(|| self.link_mtu_bytes(interface?));
        Ok(path)
    }

    /// Returns the source address of packets to `to` that leave by an interface.
    pub fn source_by(&mut self, interface: u32, to: IpAddr) -> Result<Option<IpAddr>, Failed> {
        // Without a route, the kernel takes every IPv4 destination for a neighbour, unless it is asked
        // for the entry of the table.
        self.route(to, Some(interface), RouteFlags::FibMatch)?;
        let route = self.route(to, Some(interface), RouteFlags::empty())?;
        Ok(route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => plain(address),
            _ => None,
        }))
    }

    fn end_without_gateway(&mut self, to: IpAddr) -> Result<End, Failed> {
        let matched = self.route(to, None, RouteFlags::FibMatch)?.header.destination_prefix_length;
        let shortest = if to.is_ipv4() { MIN_SEGMENT_V4 } else { MIN_SEGMENT_V6 };
        Ok(if matched < shortest { End::Beyond } else { End::OnLink })
    }

    fn route(
        &mut self,
        to: IpAddr,
        interface: Option<u32>,
        flags: RouteFlags,
    ) -> Result<RouteMessage, Failed> {
        let mut route = RouteMessage::default();
        let (family, bits) = match to {
            IpAddr::V4(_) => (libc::AF_INET, 32),
            IpAddr::V6(_) => (libc::AF_INET6, 128),
        };
        route.header.address_family = (family as u8).into();
        route.header.destination_prefix_length = bits;
        route.header.flags = flags;
        route.attributes.push(RouteAttribute::Destination(to.into()));
        route.attributes.extend(interface.map(RouteAttribute::Oif));
        match self.ask(Message::GetRoute(route))? {
            Message::NewRoute(route) => Ok(route),
            _ => Err(Failed::Refused(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Returns the MTU of an interface.
    fn link_mtu_bytes(&mut self, index: u32) -> Option<u32> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let Ok(Message::NewLink(link)) = self.ask(Message::GetLink(link)) else { return None };
        link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(bytes) => Some(*bytes),
            _ => None,
        })
    }

    fn ask(&mut self, message: Message) -> Result<Message, Failed> {
        match self.0.get(message) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Failed::of(error)),
            Err(error) => Err(Failed::Refused(error)),
        }
    }
}

impl Failed {
    /// Classifies the kernel's error: either a failed lookup, or a failure of netlink itself.
    fn of(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENOSYS) => {
                Self::Refused(error)
            }
            // This includes EACCES and EINVAL, which routes of type `prohibit` and `blackhole`
            // return.
            _ => Self::NoRoute(error),
        }
    }
}

fn plain(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn mtu_of(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(bytes) if *bytes > 0 => Some(*bytes),
        _ => None,
    })
}
