//! Buffers for receiving.

use std::io::IoSliceMut;

use quinn_udp::RecvMeta;

use super::socket::Socket;

/// Number of buffers for one receive call.
pub const RECV_BUFFERS: usize = 8;
/// Maximum receive calls in a row before other work gets its turn.
pub const RECV_ROUNDS: usize = 8;
/// Largest UDP payload.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Room for one datagram in a receive buffer without coalescing.
const PLAIN_BUFFER_BYTES: usize = 9_216;

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
