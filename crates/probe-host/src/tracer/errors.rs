//! The error queue of a UDP socket (ip(7), IP_RECVERR): ICMP errors with their senders and the data of the
//! datagrams that caused them. It needs no rights.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use bentpipe_probe::target::Family;
use bentpipe_probe::trace::ReplyKind;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::{arrival, clock};

/// An ICMP error.
#[derive(Debug)]
pub(crate) struct IcmpError {
    /// Sender.
    pub from: IpAddr,
    /// Time of arrival since boot.
    pub at: Duration,
    /// Meaning.
    pub kind: ReplyKind,
    /// Quoted data of the datagram; empty if the sender quotes the header only.
    pub data: Vec<u8>,
}

/// Asks the kernel for the errors.
pub(crate) fn enable(socket: &UdpSocket, family: Family) -> io::Result<()> {
    match family {
        Family::V4 => setsockopt(socket, sockopt::Ipv4RecvErr, &true)?,
        Family::V6 => setsockopt(socket, sockopt::Ipv6RecvErr, &true)?,
    }
    Ok(())
}

/// Takes the next error of a router or the target. Errors of this machine are skipped.
pub(crate) fn next(socket: &UdpSocket, family: Family) -> Option<IcmpError> {
    // The queue is bounded by the socket's receive buffer.
    loop {
        let mut data = [0; 64];
        let mut control =
            nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6, TimeSpec, [u8; 64]);
        let (length, found) = {
            let mut slices = [IoSliceMut::new(&mut data)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let message = recvmsg::<SockaddrStorage>(
                socket.as_raw_fd(),
                &mut slices,
                Some(&mut control),
                flags,
            )
            .ok()?;
            let at = message.cmsgs().ok()?.find_map(|control| arrival::time_of(&control));
            let found = message.cmsgs().ok()?.find_map(|control| read(family, &control));
            (message.bytes, found.map(|(from, kind)| (from, kind, at.unwrap_or_else(clock::boot))))
        };
        if let Some((from, kind, at)) = found {
            let data = data.get(..length).unwrap_or_default().to_vec();
            return Some(IcmpError { from, at, kind, data });
        }
    }
}

fn read(family: Family, control: &ControlMessageOwned) -> Option<(IpAddr, ReplyKind)> {
    let (error, from) = match control {
        ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
            (error, IpAddr::V4(Ipv4Addr::from(from.sin_addr.s_addr.to_ne_bytes())))
        }
        ControlMessageOwned::Ipv6RecvErr(error, Some(from)) => {
            (error, IpAddr::V6(Ipv6Addr::from(from.sin6_addr.s6_addr)))
        }
        _ => return None,
    };
    let wanted = match family {
        Family::V4 => libc::SO_EE_ORIGIN_ICMP,
        Family::V6 => libc::SO_EE_ORIGIN_ICMP6,
    };
    if error.ee_origin != wanted {
        return None;
    }
    let kind = match (family, error.ee_type, error.ee_code) {
        (Family::V4, 11, 0) | (Family::V6, 3, 0) => ReplyKind::TimeExceeded,
        // "Port unreachable" is the answer of the target.
        (Family::V4, 3, 3) | (Family::V6, 1, 4) => ReplyKind::Reached,
        (Family::V4, 3, _) | (Family::V6, 1, _) => ReplyKind::Unreachable,
        _ => return None,
    };
    Some((from, kind))
}
