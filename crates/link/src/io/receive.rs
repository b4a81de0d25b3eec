//! Buffers for receiving.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::time::Duration;

use quinn_udp::{EcnCodepoint, RecvMeta};

use super::socket::Socket;

/// Number of buffers for one receive call.
pub const RECV_BUFFERS: usize = 8;
/// Maximum receive calls in a row before other work gets its turn.
pub const RECV_ROUNDS: usize = 8;
/// Largest UDP payload.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Room for one datagram in a receive buffer without coalescing.
const PLAIN_BUFFER_BYTES: usize = 9_216;

/// Origin of the datagrams of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Sender.
    pub from: SocketAddr,
    /// The path marked them, because it is congested (RFC 3168).
    pub ce: bool,
    /// Time at which the kernel received them, since the Unix epoch.
    pub timestamp: Option<Duration>,
}

impl From<&RecvMeta> for Origin {
    fn from(meta: &RecvMeta) -> Self {
        let ce = meta.ecn == Some(EcnCodepoint::Ce);
        Self { from: meta.addr, ce, timestamp: meta.timestamp }
    }
}

/// Buffers for a receive call.
pub struct Buffers(Box<[Vec<u8>; RECV_BUFFERS]>);

impl Buffers {
    pub fn new(socket: &dyn Socket) -> Self {
        let coalesces = socket.max_gro_segments() > 1;
        let bytes = if coalesces { MAX_DATAGRAM_BYTES } else { PLAIN_BUFFER_BYTES };
        Self(Box::new(std::array::from_fn(|_| vec![0; bytes])))
    }

    pub fn slices(&mut self) -> [IoSliceMut<'_>; RECV_BUFFERS] {
        self.0.each_mut().map(|buffer| IoSliceMut::new(buffer))
    }

    /// The buffers that a call filled.
    pub fn filled<'a>(
        &'a self,
        meta: &'a [RecvMeta],
    ) -> impl Iterator<Item = (&'a [u8], &'a RecvMeta)> {
        self.0.iter().zip(meta).map(|(buffer, meta)| (&buffer[..meta.len], meta))
    }
}
