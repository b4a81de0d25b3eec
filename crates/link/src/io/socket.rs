//! Interface of a datagram socket.

use std::fmt::Debug;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn_udp::{RecvMeta, Transmit};

use crate::Dscp;

/// Wait for a socket to which it can be written again.
pub type Writable = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// A datagram socket: a real one ([`UdpSocket`](super::UdpSocket)) or one of the lab's in memory.
pub trait Socket: Debug + Send + Sync + 'static {
    /// Receives into `buffers`; a buffer may hold several datagrams of `stride` bytes (GRO).
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>>;

    /// Sends with this mark, if the socket [`marks`](Self::marks). Fails with
    /// [`io::ErrorKind::WouldBlock`] if it cannot send now.
    fn try_send(&self, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()>;

    /// Sends on the socket of a path, if there are several.
    fn try_send_on(&self, _path: u8, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()> {
        self.try_send(transmit, dscp)
    }

    /// News of a path: its number, and whether it can send now. A socket without news never has any.
    fn poll_news(&self, _cx: &mut Context<'_>) -> Poll<(u8, bool)> {
        Poll::Pending
    }

    /// Returns `true` if packets show their classes on the path; packets with different marks are
    /// then never joined.
    fn marks(&self) -> bool {
        false
    }

    /// Waits until [`Self::try_send`] is worth another try. Several tasks may send, and wait.
    fn writable(self: Arc<Self>) -> Writable;

    /// The socket's own address.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Number of datagrams of equal length that one [`Transmit`] may hold.
    fn max_gso_segments(&self) -> usize {
        1
    }

    /// Number of datagrams that one buffer of [`Self::poll_recv`] may hold.
    fn max_gro_segments(&self) -> usize {
        1
    }
}
