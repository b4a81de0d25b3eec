//! A connection whose first bytes have already been read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bentpipe_relay::layer::{Layer, Layered};
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};

/// The connection, preceded by those bytes.
pub type PrefixedIo<T> = Layered<T, Prefix>;

/// Bytes that precede those of a stream.
pub struct Prefix(pub Bytes);

impl Layer for Prefix {
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Pin::new(io).poll_read(cx, buffer);
        }
        let length = self.0.len().min(buffer.remaining());
        buffer.put_slice(&self.0[..length]);
        self.0.advance(length);
        Poll::Ready(Ok(()))
    }
}
