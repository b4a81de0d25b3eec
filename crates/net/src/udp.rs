//! UDP sockets with per-packet control data of the kernel (recvmsg, sendmsg).

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike,
    SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::net::UdpSocket;

/// Maximum UDP payload, which jumbo frames or fragments can carry.
pub const MAX_BYTES: usize = 65_535;

/// Send buffer of [`enlarge_buffer`]; the kernel queues up to 208 KiB for each device whose address
/// it resolves.
const KNOWN_BUFFER_BYTES: usize = 8 << 20;

/// Enlarges the send buffer of a socket for packets to known devices.
pub fn enlarge_buffer(socket: &impl AsFd) {
    let bytes = KNOWN_BUFFER_BYTES;
    // Exceed the system's limit if permitted; otherwise a smaller buffer usually suffices.
    let _ = setsockopt(socket, sockopt::SndBufForce, &bytes)
        .or_else(|_| setsockopt(socket, sockopt::SndBuf, &bytes));
}

/// A packet or an error received from the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heard {
    /// Length of the payload, at the start of the buffer.
    pub bytes: usize,
    /// Sender; for an error, the destination of the packet that caused it.
    pub from: Option<SocketAddr>,
    /// Original destination of an intercepted packet.
    pub original: Option<SocketAddr>,
    /// Hop limit on arrival.
    pub hop_limit: Option<u8>,
    /// Type of service of IPv4, or traffic class of IPv6.
    pub traffic_class: u8,
    /// Number of packets that the kernel has dropped so far because the socket's buffer was full,
    /// modulo 2^32. Only known with [`tell_drops`].
    pub drops: u32,
    /// Error received by ICMP.
    pub error: Option<ErrorHeard>,
    /// `true` for an error that the kernel detected itself and returned to the sender.
    pub is_known: bool,
}

/// An ICMP error received from the kernel.
#[derive(Debug, Clone, Copy)]
pub struct ErrorHeard {
    /// Sender.
    pub from: SocketAddr,
    /// The ICMP type.
    pub kind: u8,
    /// The ICMP code.
    pub code: u8,
    /// MTU of the next hop, if the error contains it.
    pub info: u32,
}

/// Buffer for control messages.
pub struct Control(Vec<u8>);

impl Default for Control {
    fn default() -> Self {
        type Error = (libc::sock_extended_err, libc::sockaddr_in6);
        Self(nix::cmsg_space!(libc::sockaddr_in6, i32, i32, u32, Error))
    }
}

/// Buffers for a packet's payload and control messages.
struct Room {
    payload: Vec<u8>,
    control: Control,
}

thread_local! {
    static ROOM: Cell<Option<Box<Room>>> = const { Cell::new(None) };
}

/// Calls `work` with a buffer for the largest packet. The buffer belongs to the thread, because few
/// of the thousands of sockets have data at the same time.
pub fn with_room<T>(work: impl FnOnce(&mut [u8], &mut Control) -> T) -> T {
    let new = || Box::new(Room { payload: vec![0; MAX_BYTES], control: Control::default() });
    let mut room = ROOM.take().unwrap_or_else(new);
    let done = work(&mut room.payload, &mut room.control);
    ROOM.set(Some(room));
    done
}

/// Requests hop limit and traffic class of received packets.
pub fn tell_headers(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
        setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?;
        // An IPv6 socket can also receive IPv4, with mapped addresses. Raw sockets cannot, and
        // reject the option.
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

/// Requests the original destination of intercepted packets.
pub fn tell_original(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6OrigDstAddr, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4OrigDstAddr, &true)?;
    }
    Ok(())
}

/// Requests the number of packets dropped because the socket's buffer was full.
pub fn tell_drops(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::RxqOvfl, &1)?;
    Ok(())
}

/// Sets the size of the receive buffer: beyond the system's limit (`net.core.rmem_max`) if this
/// process may, else up to it. The kernel doubles it for its own bookkeeping.
pub fn size_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &bytes)?;
    }
    Ok(())
}

/// Requests that ICMP errors are queued for [`heard_error`].
pub fn keep_errors(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true)?;
    }
    Ok(())
}

/// Returns the next packet, or [`io::ErrorKind::WouldBlock`] if there is none.
pub fn heard(socket: &impl AsRawFd, buffer: &mut [u8], control: &mut Control) -> io::Result<Heard> {
    receive(socket.as_raw_fd(), buffer, control, MsgFlags::empty())
}

/// Returns the next ICMP error, or [`io::ErrorKind::WouldBlock`] if there is none.
pub fn heard_error(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    control: &mut Control,
) -> io::Result<Heard> {
    receive(socket.as_raw_fd(), buffer, control, MsgFlags::MSG_ERRQUEUE)
}

/// Sends `payload` to `to` with this traffic class, and with this hop limit if there is one. Never
/// blocks.
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
    // Fails only if the control buffer was too small, which cannot happen for the requested data.
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
        ControlMessageOwned::RxqOvfl(drops) => heard.drops = drops,
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
    // The address is empty if the kernel reported none.
    four.or_else(|| storage.as_sockaddr_in6().copied().map(v6)).filter(|_| storage.len() > 0)
}

fn v4(address: SockaddrIn) -> SocketAddr {
    SocketAddr::from((address.ip(), address.port()))
}

fn v6(address: SockaddrIn6) -> SocketAddr {
    SocketAddr::V6(address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_find_no_room_are_counted() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        tell_drops(&socket).unwrap();
        size_receive_buffer(&socket, 16 << 10).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        const SENT: u32 = 500;
        let mut came = 0;
        with_room(|buffer, control| {
            let mut all = || {
                let mut drops = 0;
                while let Ok(heard) = heard(&socket, buffer, control) {
                    (came, drops) = (came + 1, heard.drops);
                }
                drops
            };
            for _ in 0..SENT {
                sender.send_to(&[7; 1_000], to).unwrap();
            }
            assert_eq!(all(), 0, "those that came found room");
            sender.send_to(b"one more", to).unwrap();
            let drops = all();
            assert_eq!(came + drops, SENT + 1);
            assert!(drops > 0, "{SENT} packets of 1,000 bytes do not fit");
        });
    }
}
