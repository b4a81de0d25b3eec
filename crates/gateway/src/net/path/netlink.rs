//! One route or one interface out of the kernel's tables (rtnetlink).
//!
//! The kernel answers within the system call that asks, so nothing here waits: a request and its answer
//! are two system calls and some microseconds.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage as Message;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType,
};

use super::{End, Path};

/// Maximum size of one answer. A route takes some 200 bytes, an interface with its statistics 2 KiB.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Answers to earlier requests that may be in the socket.
const MAX_STALE: usize = 16;

/// A route without a gateway that is at least this long leads to neighbours. A shorter one is the default
/// route of a point-to-point line (PPP, a tunnel), be it in halves.
const MIN_SEGMENT_V4: u8 = 8;
const MIN_SEGMENT_V6: u8 = 16;

/// A socket to ask by.
pub struct Netlink {
    socket: OwnedFd,
    number: u32,
}

/// Reason for which there is no answer.
pub enum Failed {
    /// Netlink does not work here.
    Refused(io::Error),
    /// The kernel has no route.
    NoRoute(io::Error),
}

impl Netlink {
    /// Opens a socket in the thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, number: 0 })
    }

    /// The path to `to`.
    pub fn path(&mut self, to: IpAddr) -> Result<Path, Failed> {
        let route = self.route(to, RouteFlags::empty())?;
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

    fn end_without_gateway(&mut self, to: IpAddr) -> Result<End, Failed> {
        let matched = self.route(to, RouteFlags::FibMatch)?.header.destination_prefix_length;
        let shortest = if to.is_ipv4() { MIN_SEGMENT_V4 } else { MIN_SEGMENT_V6 };
        Ok(if matched < shortest { End::Beyond } else { End::OnLink })
    }

    fn route(&mut self, to: IpAddr, flags: RouteFlags) -> Result<RouteMessage, Failed> {
        let mut route = RouteMessage::default();
        let (family, bits) = match to {
            IpAddr::V4(_) => (libc::AF_INET, 32),
            IpAddr::V6(_) => (libc::AF_INET6, 128),
        };
        route.header.address_family = (family as u8).into();
        route.header.destination_prefix_length = bits;
        route.header.flags = flags;
        route.attributes.push(RouteAttribute::Destination(to.into()));
        match self.ask(Message::GetRoute(route))? {
            Message::NewRoute(route) => Ok(route),
            _ => Err(Failed::Refused(io::ErrorKind::InvalidData.into())),
        }
    }

    /// The MTU of an interface.
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
        self.number = self.number.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST;
        request.header.sequence_number = self.number;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let fd = self.socket.as_raw_fd();
        let refused = |error: nix::Error| Failed::Refused(error.into());
        send(fd, &bytes, MsgFlags::MSG_DONTWAIT).map_err(refused)?;
        bytes.resize(MAX_ANSWER_BYTES, 0);
        for _ in 0..MAX_STALE {
            let length = recv(fd, &mut bytes, MsgFlags::MSG_DONTWAIT).map_err(refused)?;
            let answer = NetlinkMessage::<Message>::deserialize(&bytes[..length]);
            let answer = answer.map_err(|error| Failed::Refused(io::Error::other(error)))?;
            if answer.header.sequence_number != self.number {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(message) => Ok(message),
                NetlinkPayload::Error(error) => Err(Failed::of(error.to_io())),
                _ => Err(Failed::Refused(io::ErrorKind::InvalidData.into())),
            };
        }
        Err(Failed::Refused(io::ErrorKind::InvalidData.into()))
    }
}

impl Failed {
    /// The kernel's error: one that a route gives, or one of netlink itself.
    fn of(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENOSYS) => {
                Self::Refused(error)
            }
            // EACCES and EINVAL stand for routes of type `prohibit` and `blackhole`.
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
