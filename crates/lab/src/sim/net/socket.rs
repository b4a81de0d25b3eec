//! The network's sockets, with the interfaces that the radio transport and QUIC need.

use std::{
    fmt,
    future::poll_fn,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bentpipe_link::Dscp;
use bentpipe_link::io::{self as link, Writable};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};

use super::{Datagram, FIRST_FREE_PORT, Node, Receiver};

/// A UDP socket of the network. Sending never blocks, because the link's queue drops excess
/// datagrams. Clones share the socket, which closes with the last one.
#[derive(Clone)]
pub struct Socket {
    pub(super) bound: Arc<Bound>,
}

/// A port in use. Dropping this frees it.
pub(super) struct Bound {
    pub(super) node: Node,
    pub(super) port: u16,
}

impl Node {
    /// Opens a socket. Port 0 chooses a free one.
    pub fn bind(&self, port: u16) -> io::Result<Socket> {
        let mut state = self.net.inner.lock();
        let sockets = &mut state.nodes[self.id].sockets;
        let port = match port {
            0 => (FIRST_FREE_PORT..=u16::MAX).find(|port| !sockets.contains_key(port)),
            port => Some(port).filter(|port| !sockets.contains_key(port)),
        };
        let port = port.ok_or(io::ErrorKind::AddrInUse)?;
        sockets.insert(port, Receiver::default());
        Ok(Socket { bound: Arc::new(Bound { node: self.clone(), port }) })
    }
}

impl Socket {
    /// Current address.
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.bound.node.ip(), self.bound.port)
    }

    /// Sends one datagram.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.try_send(&Transmit {
            destination: to,
            ecn: None,
            contents: bytes,
            segment_size: None,
            src_ip: None,
        })
    }

    /// Waits for one datagram.
    pub async fn recv_from(&self) -> (Vec<u8>, SocketAddr) {
        let datagram = poll_fn(|cx| self.poll_datagram(cx)).await;
        (datagram.bytes, datagram.from)
    }

    /// Sends a datagram, or several of `segment_size` bytes each.
    pub fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Bound { node, port } = &*self.bound;
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        // An empty datagram must be sent too.
        let mut rest = transmit.contents;
        loop {
            let (bytes, next) = rest.split_at(segment.min(rest.len()));
            node.net.inner.send(node.id, *port, transmit.destination, transmit.ecn, bytes);
            if next.is_empty() {
                return Ok(());
            }
            rest = next;
        }
    }

    /// Receives all available datagrams, one per buffer. Fills each one's description by `describe`, which
    /// gets its length too. Wakes one task at a time.
    fn poll_recv<M>(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [M],
        describe: impl Fn(&mut M, &Datagram, usize),
    ) -> Poll<io::Result<usize>> {
        let mut received = 0;
        for (buf, meta) in bufs.iter_mut().zip(meta) {
            let Poll::Ready(datagram) = self.poll_datagram(cx) else {
                break;
            };
            // A datagram longer than the buffer is truncated, as in a kernel.
            let len = datagram.bytes.len().min(buf.len());
            buf[..len].copy_from_slice(&datagram.bytes[..len]);
            describe(meta, &datagram, len);
            received += 1;
        }
        if received == 0 { Poll::Pending } else { Poll::Ready(Ok(received)) }
    }

    /// One, because a burst of several segments would never mix with packets of others.
    pub fn max_gso_segments(&self) -> usize {
        1
    }

    /// The socket as a QUIC socket on tokio's clock.
    pub fn quic(&self, seed: u64) -> bentpipe_masque::Socket {
        let mut seed_bytes = [0; 32];
        seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bentpipe_masque::Socket {
            socket: Arc::new(self.clone()),
            runtime: Arc::new(quinn::TokioRuntime),
            seed: Some(seed_bytes),
        }
    }

    fn poll_datagram(&self, cx: &mut Context<'_>) -> Poll<Datagram> {
        let mut state = self.bound.node.net.inner.lock();
        let sockets = &mut state.nodes[self.bound.node.id].sockets;
        let Some(receiver) = sockets.get_mut(&self.bound.port) else {
            // The port stays bound as long as this handle lives.
            return Poll::Pending;
        };
        if let Some(datagram) = receiver.queue.pop_front() {
            receiver.bytes -= datagram.bytes.len();
            return Poll::Ready(datagram);
        }
        receiver.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl bentpipe_link::io::Socket for Socket {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [link::RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Socket::poll_recv(self, cx, buffers, meta, |meta, datagram, len| {
            (meta.addr, meta.len, meta.stride) = (datagram.from, len, len);
            meta.ecn = datagram.ecn.and_then(|ecn| link::EcnCodepoint::from_bits(ecn as u8));
            meta.dst_ip = Some(datagram.to.ip());
        })
    }

    fn try_send(&self, transmit: &link::Transmit<'_>, _: Dscp) -> io::Result<()> {
        Socket::try_send(
            self,
            &Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
                contents: transmit.contents,
                segment_size: transmit.segment_size,
                src_ip: transmit.src_ip,
            },
        )
    }

    /// Always ready.
    fn writable(self: Arc<Self>) -> Writable {
        Box::pin(std::future::ready(Ok(())))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(Socket::local_addr(self))
    }

    fn max_gso_segments(&self) -> usize {
        Socket::max_gso_segments(self)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.node.net.inner.lock().nodes[self.node.id].sockets.remove(&self.port);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "simulated socket {}", self.local_addr())
    }
}

/// Poller of a socket that is always writable.
#[derive(Debug)]
struct AlwaysWritable;

impl quinn::UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl quinn::AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn quinn::UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        Socket::try_send(self, transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Socket::poll_recv(self, cx, bufs, meta, |meta, datagram, len| {
            (meta.addr, meta.len, meta.stride) = (datagram.from, len, len);
            (meta.ecn, meta.dst_ip) = (datagram.ecn, Some(datagram.to.ip()));
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(Socket::local_addr(self))
    }

    fn max_transmit_segments(&self) -> usize {
        Socket::max_gso_segments(self)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
