//! One socket for each path of a session.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use quinn_udp::{RecvMeta, Transmit};

use super::{Socket, Writable};
use crate::Dscp;

/// The sockets of an air's paths, in the order of their numbers. Each is bound to the interface of its
/// radio.
#[derive(Debug)]
pub struct PathSockets {
    sockets: Vec<Arc<dyn Socket>>,
    /// Socket that is asked first for what it received, so that none waits for another.
    next: AtomicUsize,
}

impl PathSockets {
    /// Joins `sockets`.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn new(sockets: Vec<Arc<dyn Socket>>) -> Self {
        assert!(!sockets.is_empty(), "a session has a path");
        Self { sockets, next: AtomicUsize::new(0) }
    }

    fn of(&self, path: u8) -> &Arc<dyn Socket> {
        self.sockets.get(usize::from(path)).unwrap_or(&self.sockets[0])
    }
}

impl Socket for PathSockets {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = self.sockets.len();
        let first = self.next.load(Relaxed);
        for at in (first..first + count).map(|at| at % count) {
            // Each that has nothing wakes the task when it does.
            if let Poll::Ready(received) = self.sockets[at].poll_recv(cx, buffers, meta) {
                self.next.store((at + 1) % count, Relaxed);
                return Poll::Ready(received);
            }
        }
        Poll::Pending
    }

    fn try_send(&self, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()> {
        self.try_send_on(0, transmit, dscp)
    }

    fn try_send_on(&self, path: u8, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()> {
        match self.of(path).try_send(transmit, dscp) {
            // A radio that takes no more loses packets, and no other one waits for it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    fn poll_news(&self, cx: &mut Context<'_>) -> Poll<(u8, bool)> {
        // Each that has none wakes the task when it does.
        for (path, socket) in (0..).zip(&self.sockets) {
            if let Poll::Ready((_, can_send)) = socket.poll_news(cx) {
                return Poll::Ready((path, can_send));
            }
        }
        Poll::Pending
    }

    fn marks(&self) -> bool {
        self.sockets.iter().any(|socket| socket.marks())
    }

    fn writable(self: Arc<Self>) -> Writable {
        // No path blocks.
        Box::pin(std::future::ready(Ok(())))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sockets[0].local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.sockets.iter().map(|socket| socket.max_gso_segments()).min().unwrap_or(1)
    }

    fn max_gro_segments(&self) -> usize {
        self.sockets.iter().map(|socket| socket.max_gro_segments()).max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::io::UdpSocket;

    async fn received(sockets: &PathSockets) -> Vec<u8> {
        let (mut bytes, mut meta) = ([0; 100], [RecvMeta::default()]);
        let count =
            poll_fn(|cx| sockets.poll_recv(cx, &mut [IoSliceMut::new(&mut bytes)], &mut meta));
        assert_eq!(count.await.unwrap(), 1);
        bytes[..meta[0].len].to_vec()
    }

    #[tokio::test]
    async fn each_path_sends_from_its_own_socket_and_all_receive() {
        let bound = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (own, peer) = ([bound(), bound()], bound());
        let addresses = own.each_ref().map(|socket| socket.local_addr().unwrap());
        let sockets = own.map(|it| Arc::new(UdpSocket::from_std(it).unwrap()) as Arc<dyn Socket>);
        let sockets = PathSockets::new(sockets.into());
        for path in [1, 0, 1] {
            let transmit = Transmit {
                destination: peer.local_addr().unwrap(),
                ecn: None,
                contents: b"here",
                segment_size: None,
                src_ip: None,
            };
            sockets.try_send_on(path, &transmit, Dscp::DF).unwrap();
            let (bytes, from) = peer.recv_from(&mut [0; 100]).unwrap();
            assert_eq!((bytes, from), (4, addresses[usize::from(path)]));
        }
        peer.send_to(b"first", addresses[0]).unwrap();
        peer.send_to(b"second", addresses[1]).unwrap();
        let mut both = [received(&sockets).await, received(&sockets).await];
        both.sort();
        assert_eq!(both, [b"first".to_vec(), b"second".to_vec()]);
    }
}
