//! A real UDP socket, with segmentation offload where the kernel has it.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;

use super::Socket;

/// Kernel buffers: what arrives at 1 Gbit/s while the process is away for 30 ms.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket of the operating system. Its datagrams leave whole or not at all: quinn-udp sets
/// IP_MTU_DISCOVER to IP_PMTUDISC_PROBE (and the same for IPv6), that is the flag that forbids
/// fragmenting on the way, with the interface's MTU as the only limit that the kernel knows of
/// (EMSGSIZE): what strangers' ICMP messages say of the path is not believed (RFC 8899, section 4.6).
#[derive(Debug)]
pub struct UdpSocket {
    socket: tokio::net::UdpSocket,
    state: UdpSocketState,
}

impl UdpSocket {
    /// Takes over a bound socket, which may have been inherited. Call it within a tokio runtime.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        // Best effort: the kernel caps both, and smaller buffers only lose packets that come again.
        let _ = state.set_recv_buffer_size((&socket).into(), KERNEL_BUFFER_BYTES);
        let _ = state.set_send_buffer_size((&socket).into(), KERNEL_BUFFER_BYTES);
        Ok(Self { socket: tokio::net::UdpSocket::from_std(socket)?, state })
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

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket
            .try_io(Interest::WRITABLE, || self.state.try_send((&self.socket).into(), transmit))
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_send_ready(cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.state.gro_segments()
    }
}
