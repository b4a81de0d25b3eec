//! Routes in the kernel's tables. No packets are sent.

mod route;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use parking_lot::Mutex;

pub use route::{End, Path};
use route::{Failed, Routes};

/// Looks up routes in the kernel.
///
/// Lookups use netlink, which needs no port. If the process may not use netlink (seccomp, some
/// sandboxes), a connected UDP socket reveals the source address and the MTU instead. Such a socket
/// occupies a port briefly, and it does not reveal which destinations are neighbours.
#[derive(Default)]
pub struct Paths {
    /// Opened by the first lookup, in the namespace of the sockets.
    netlink: Mutex<Option<Routes>>,
    /// Set once the refusal has been logged.
    refused: OnceLock<()>,
}

impl Paths {
    /// Returns the path to `to`, or an error if there is none.
    pub fn towards(&self, to: SocketAddr) -> io::Result<Path> {
        match self.by_netlink(to.ip()) {
            Ok(path) => Ok(path),
            Err(Failed::NoRoute(error)) => Err(error),
            Err(Failed::Refused(refused)) => {
                let path = by_socket(to)?;
                self.refused.get_or_init(|| say(&refused));
                Ok(path)
            }
        }
    }

    /// Returns the source address of packets to `to` that leave by the interface with this number;
    /// `None` if the kernel does not tell. Fails if no route by the interface leads there.
    pub fn source_by(&self, interface: u32, to: IpAddr) -> io::Result<Option<IpAddr>> {
        match self.with_netlink(|routes| routes.source_by(interface, to)) {
            Ok(source) => Ok(source),
            Err(Failed::NoRoute(error)) => Err(error),
            Err(Failed::Refused(_)) => Ok(None),
        }
    }

    fn by_netlink(&self, to: IpAddr) -> Result<Path, Failed> {
        self.with_netlink(|routes| routes.path(to))
    }

    fn with_netlink<T>(
        &self,
        look: impl FnOnce(&mut Routes) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let mut netlink = self.netlink.lock();
        let open = match &mut *netlink {
            Some(open) => open,
            None => netlink.insert(Routes::open().map_err(Failed::Refused)?),
        };
        look(open)
    }
}

fn say(error: &io::Error) {
    tracing::warn!(
        %error,
        "routes cannot be asked for by netlink: neighbours on the ground's own networks are not \
         refused; allow AF_NETLINK (systemd: RestrictAddressFamilies=)"
    );
}

/// Returns the path that a connected socket reveals.
fn by_socket(to: SocketAddr) -> io::Result<Path> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let own = socket.local_addr()?.ip();
    // Packets to a local address are sent from that address.
    let is_here = to.ip().is_loopback() || own == to.ip();
    let end = if is_here { End::Here } else { End::Beyond };
    let mtu = match to {
        SocketAddr::V4(_) => getsockopt(&socket, sockopt::IpMtu),
        SocketAddr::V6(_) => getsockopt(&socket, options::Ipv6Mtu),
    };
    let mtu_bytes = mtu.ok().and_then(|mtu| u32::try_from(mtu).ok());
    Ok(Path { end, own_address: Some(own), mtu_bytes })
}

/// Forbids fragmentation of the socket's packets. A router or the kernel reports an oversized
/// packet with an error.
pub fn dont_fragment(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, options::Ipv6MtuDiscover, &libc::IPV6_PMTUDISC_DO)?;
    } else {
        setsockopt(socket, options::IpMtuDiscover, &libc::IP_PMTUDISC_DO)?;
    }
    Ok(())
}

/// Socket options that nix lacks.
mod options {
    use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        /// Path MTU of a connected socket.
        Ipv6Mtu,
        GetOnly,
        libc::IPPROTO_IPV6,
        libc::IPV6_MTU,
        libc::c_int
    );
    sockopt_impl!(
        /// Path MTU discovery mode of IPv4.
        IpMtuDiscover,
        SetOnly,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::c_int
    );
    sockopt_impl!(
        /// Path MTU discovery mode of IPv6.
        Ipv6MtuDiscover,
        SetOnly,
        libc::IPPROTO_IPV6,
        libc::IPV6_MTU_DISCOVER,
        libc::c_int
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_in_both_families_and_both_ways() {
        for to in ["127.0.0.1:9", "127.8.8.8:9", "[::1]:9"] {
            let to: SocketAddr = to.parse().unwrap();
            let asked = Paths::default().by_netlink(to.ip());
            let Ok(asked) = asked else { panic!("netlink does not answer for {to}") };
            for path in [asked, by_socket(to).unwrap()] {
                assert_eq!(path.end, End::Here, "{to}");
                assert!(path.mtu_bytes.unwrap() >= 1280, "{to}");
                assert!(path.own_address.unwrap().is_loopback(), "{to}");
            }
        }
    }
}
