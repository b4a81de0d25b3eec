//! A real UDP socket, with segmentation offload where the kernel has it, and a mark on each packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;

use super::{Socket, Writable};
use crate::Dscp;

/// Size of the kernel's buffers: 30 ms of 1 Gbit/s while the process is busy.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket of the operating system. Its datagrams are never fragmented: quinn-udp sets
/// IP_MTU_DISCOVER to IP_PMTUDISC_PROBE (and the same for IPv6). That forbids fragmentation on the
/// path, and leaves the interface's MTU as the kernel's only limit (EMSGSIZE). ICMP messages about
/// the path may come from strangers and are ignored (RFC 8899, section 4.6).
#[derive(Debug)]
pub struct UdpSocket {
    socket: tokio::net::UdpSocket,
    state: UdpSocketState,
    marks: bool,
    /// Maximum segments of a transmit; falls to one if the device cannot segment.
    max_segments: AtomicUsize,
}

impl UdpSocket {
    /// Uses a bound socket, which may have been inherited. To be called within a tokio runtime.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        // Best effort: the kernel caps both, and smaller buffers only lose packets that are
        // retransmitted.
        let _ = state.set_recv_buffer_size((&socket).into(), KERNEL_BUFFER_BYTES);
        let _ = state.set_send_buffer_size((&socket).into(), KERNEL_BUFFER_BYTES);
        let max_segments = state.max_gso_segments().into();
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        Ok(Self { socket, state, marks: false, max_segments })
    }

    /// Sets whether packets show their classes by their DSCP.
    pub fn with_marks(self, marks: bool) -> Self {
        Self { marks, ..self }
    }

    /// Sends a datagram with its mark; quinn-udp, which receives here, only sends ECN marks.
    fn send(&self, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()> {
        let dscp = if self.marks { dscp } else { Dscp::DF };
        let field = dscp.traffic_class(transmit.ecn.map_or(0, |ecn| ecn as u8));
        let (wide, to) = (i32::from(field), transmit.destination);
        let segment = transmit.segment_size.and_then(|bytes| u16::try_from(bytes).ok());
        let mark = match to.ip().to_canonical() {
            IpAddr::V4(_) => ControlMessage::Ipv4Tos(&field),
            IpAddr::V6(_) => ControlMessage::Ipv6TClass(&wide),
        };
        let controls = [mark, ControlMessage::UdpGsoSegments(segment.as_ref().unwrap_or(&0))];
        let controls = &controls[..if segment.is_some() { 2 } else { 1 }];
        let (fd, contents) = (self.socket.as_raw_fd(), [IoSlice::new(transmit.contents)]);
        let to = SockaddrStorage::from(to);
        sendmsg(fd, &contents, controls, MsgFlags::MSG_DONTWAIT, Some(&to))?;
        Ok(())
    }
}

impl Socket for UdpSocket {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            let received = self.socket.try_io(Interest::READABLE, || {
                self.state.recv((&self.socket).into(), buffers, meta)
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn try_send(&self, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()> {
        // The runtime learns that a new socket is writable from its first event. Until then, and after a
        // full buffer, only a try shows it.
        let sent = match self.send(transmit, dscp) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.socket.try_io(Interest::WRITABLE, || self.send(transmit, dscp))
            }
            sent => sent,
        };
        // Devices that cannot segment report this error, and nothing before it.
        if let Err(error) = &sent
            && transmit.segment_size.is_some()
            && matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
            && self.max_segments.swap(1, Relaxed) > 1
        {
            tracing::info!(%error, "sending packets one by one from now on");
        }
        sent
    }

    fn marks(&self) -> bool {
        self.marks
    }

    fn writable(self: Arc<Self>) -> Writable {
        Box::pin(async move { self.socket.writable().await })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.max_segments.load(Relaxed)
    }

    fn max_gro_segments(&self) -> usize {
        self.state.gro_segments()
    }
}
