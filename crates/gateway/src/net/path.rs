//! What the kernel knows of the way to a destination, without sending anything.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

/// The way to one destination.
pub struct Path {
    /// Connected to it.
    socket: UdpSocket,
    to: IpAddr,
}

impl Path {
    /// The way to `to`; an error where there is none.
    pub fn towards(to: SocketAddr) -> io::Result<Self> {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(Self { socket, to: to.ip() })
    }

    /// The address that our packets have on it.
    pub fn own_address(&self) -> io::Result<IpAddr> {
        Ok(self.socket.local_addr()?.ip())
    }

    /// Whether it ends at this machine: what goes to an address of ours comes from that address.
    pub fn is_local(&self) -> io::Result<bool> {
        Ok(self.to.is_loopback() || self.own_address()? == self.to)
    }

    /// The largest IP packet that it is known to take, bytes.
    pub fn mtu_bytes(&self) -> io::Result<u32> {
        let mtu = match self.to {
            IpAddr::V4(_) => getsockopt(&self.socket, sockopt::IpMtu),
            IpAddr::V6(_) => getsockopt(&self.socket, options::Ipv6Mtu),
        }?;
        Ok(u32::try_from(mtu).unwrap_or_default())
    }
}

/// Packets of `socket` are never fragmented on their way: what is too large for it is answered with
/// an error, by a router or at once by the kernel.
pub fn dont_fragment(socket: &impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, options::Ipv6MtuDiscover, &libc::IPV6_PMTUDISC_DO)?;
    } else {
        setsockopt(socket, options::IpMtuDiscover, &libc::IP_PMTUDISC_DO)?;
    }
    Ok(())
}

/// What nix has no names for.
mod options {
    use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

    sockopt_impl!(
        /// The path's MTU, of a connected socket.
        Ipv6Mtu,
        GetOnly,
        libc::IPPROTO_IPV6,
        libc::IPV6_MTU,
        libc::c_int
    );
    sockopt_impl!(
        /// Whether packets may be fragmented.
        IpMtuDiscover,
        SetOnly,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::c_int
    );
    sockopt_impl!(
        /// Whether packets may be fragmented.
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
    fn loopback_is_local_in_both_families() {
        for to in ["127.0.0.1:9", "127.8.8.8:9", "[::1]:9"] {
            let path = Path::towards(to.parse().unwrap()).unwrap();
            assert!(path.is_local().unwrap(), "{to}");
            assert!(path.mtu_bytes().unwrap() >= 1280, "{to}");
        }
    }
}
