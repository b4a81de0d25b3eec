//! UDP sockets with what the kernel knows of each packet beside its bytes (recvmsg, sendmsg).

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike,
    SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::net::UdpSocket;

/// The largest UDP payload; with jumbo frames or fragments a packet may have it.
pub const MOST_BYTES: usize = 65_535;

/// A packet, or an error, as the kernel hands it over.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heard {
    /// Bytes of payload, at the start of the buffer.
    pub bytes: usize,
    /// Sender; of an error: destination of the packet that caused it.
    pub from: Option<SocketAddr>,
    /// Original destination, before it was intercepted.
    pub original: Option<SocketAddr>,
    /// The hop limit it arrived with.
    pub hop_limit: Option<u8>,
    /// IPv4's type of service, IPv6's traffic class.
    pub traffic_class: u8,
    /// Error that came by ICMP.
    pub error: Option<ErrorHeard>,
    /// `true` for an error that the kernel has found itself, and reported to the sender.
    pub is_known: bool,
}

/// An ICMP error, as the kernel hands it over.
#[derive(Debug, Clone, Copy)]
pub struct ErrorHeard {
    /// Sender.
    pub from: SocketAddr,
    /// The ICMP type.
    pub kind: u8,
    /// The ICMP code.
    pub code: u8,
    /// The next hop's MTU, where the error says that.
    pub info: u32,
}

/// Buffer of control messages.
pub struct Control(Vec<u8>);

impl Default for Control {
    fn default() -> Self {
        type Error = (libc::sock_extended_err, libc::sockaddr_in6);
        Self(nix::cmsg_space!(libc::sockaddr_in6, i32, i32, Error))
    }
}

/// Buffer for a packet's destination and control messages.
struct Room {
    payload: Vec<u8>,
    control: Control,
}

thread_local! {
    static ROOM: Cell<Option<Box<Room>>> = const { Cell::new(None) };
}

/// Lends `work` room for the largest packet. It is the thread's: there are thousands of sockets, and
/// few of them have anything to read.
pub fn with_room<T>(work: impl FnOnce(&mut [u8], &mut Control) -> T) -> T {
    let new = || Box::new(Room { payload: vec![0; MOST_BYTES], control: Control::default() });
    let mut room = ROOM.take().unwrap_or_else(new);
    let done = work(&mut room.payload, &mut room.control);
    ROOM.set(Some(room));
    done
}

/// Asks the kernel for hop limit and traffic class of what comes.
pub fn tell_headers(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
        setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?;
        // IPv4 may come here too, from addresses mapped into IPv6; not to raw sockets, which do not
        // know the option.
        match setsockopt(socket, sockopt::IpRecvTos, &true) {
            Err(Errno::ENOPROTOOPT) => {}
            told => told?,
        }
    } else {
        setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
        setsockopt(socket, sockopt::IpRecvTos, &true)?;
    }
    Ok(())
}

/// Asks the kernel where intercepted packets wanted to go.
pub fn tell_original(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6OrigDstAddr, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4OrigDstAddr, &true)?;
    }
    Ok(())
}

/// Asks the kernel to keep ICMP errors for [`heard_error`].
pub fn keep_errors(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true)?;
    }
    Ok(())
}

/// The next packet; [`io::ErrorKind::WouldBlock`] where there is none.
pub fn heard(socket: &impl AsRawFd, buffer: &mut [u8], control: &mut Control) -> io::Result<Heard> {
    receive(socket.as_raw_fd(), buffer, control, MsgFlags::empty())
}

/// The next ICMP error; [`io::ErrorKind::WouldBlock`] where there is none.
pub fn heard_error(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    control: &mut Control,
) -> io::Result<Heard> {
    receive(socket.as_raw_fd(), buffer, control, MsgFlags::MSG_ERRQUEUE)
}

/// Sends `payload` to `to`, with this hop limit if it has one and this traffic class. Never waits.
pub fn send(
    socket: &impl AsRawFd,
    payload: &[u8],
    to: SocketAddr,
    hop_limit: Option<u8>,
    traffic_class: u8,
) -> io::Result<()> {
    let hops = hop_limit.map(i32::from);
    let wide = i32::from(traffic_class);
    let mut controls = Vec::with_capacity(2);
    match to.ip().to_canonical() {
        IpAddr::V4(_) => {
            controls.push(ControlMessage::Ipv4Tos(&traffic_class));
            controls.extend(hops.as_ref().map(ControlMessage::Ipv4Ttl));
        }
        IpAddr::V6(_) => {
            controls.push(ControlMessage::Ipv6TClass(&wide));
            controls.extend(hops.as_ref().map(ControlMessage::Ipv6HopLimit));
        }
    }
    let to = SockaddrStorage::from(to);
    let flags = MsgFlags::MSG_DONTWAIT;
    sendmsg(socket.as_raw_fd(), &[IoSlice::new(payload)], &controls, flags, Some(&to))?;
    Ok(())
}

fn receive(
    fd: RawFd,
    buffer: &mut [u8],
    control: &mut Control,
    flags: MsgFlags,
) -> io::Result<Heard> {
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = flags | MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(fd, &mut slices, Some(control.0.as_mut_slice()), flags)?;
    let from = message.address.as_ref().and_then(address);
    let mut heard = Heard { bytes: message.bytes, from, ..Heard::default() };
    // Fails where the kernel had more to say than there was room for: it says no more than asked.
    let Ok(controls) = message.cmsgs() else { return Ok(heard) };
    for control in controls {
        take(&mut heard, control);
    }
    Ok(heard)
}

fn take(heard: &mut Heard, control: ControlMessageOwned) {
    match control {
        ControlMessageOwned::Ipv4OrigDstAddr(address) => {
            heard.original = Some(v4(SockaddrIn::from(address)));
        }
        ControlMessageOwned::Ipv6OrigDstAddr(address) => {
            heard.original = Some(v6(SockaddrIn6::from(address)));
        }
        ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
            heard.hop_limit = u8::try_from(hops).ok();
        }
        ControlMessageOwned::Ipv4Tos(class) => heard.traffic_class = class,
        ControlMessageOwned::Ipv6TClass(class) => {
            heard.traffic_class = u8::try_from(class).unwrap_or_default();
        }
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _)
            if error.ee_origin == libc::SO_EE_ORIGIN_LOCAL =>
        {
            heard.is_known = true;
        }
        ControlMessageOwned::Ipv4RecvErr(error, Some(from))
            if error.ee_origin == libc::SO_EE_ORIGIN_ICMP =>
        {
            heard.error = Some(error_heard(error, v4(SockaddrIn::from(from))));
        }
        ControlMessageOwned::Ipv6RecvErr(error, Some(from))
            if error.ee_origin == libc::SO_EE_ORIGIN_ICMP6 =>
        {
            heard.error = Some(error_heard(error, v6(SockaddrIn6::from(from))));
        }
        _ => {}
    }
}

fn error_heard(error: libc::sock_extended_err, from: SocketAddr) -> ErrorHeard {
    ErrorHeard { from, kind: error.ee_type, code: error.ee_code, info: error.ee_info }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let four = storage.as_sockaddr_in().copied().map(v4);
    // Also nothing at all, where the kernel gave none.
    four.or_else(|| storage.as_sockaddr_in6().copied().map(v6)).filter(|_| storage.len() > 0)
}

fn v4(address: SockaddrIn) -> SocketAddr {
    SocketAddr::from((address.ip(), address.port()))
}

fn v6(address: SockaddrIn6) -> SocketAddr {
    SocketAddr::V6(address.into())
}
