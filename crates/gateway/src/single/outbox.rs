//! Bytes that a flow has not accepted yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// Bytes on their way to a flow; nothing while there are none.
#[derive(Default)]
pub struct Outbox {
    /// Waiting bytes, to be added to; emptied by [`poll_drain`](Self::poll_drain).
    pub bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// That waits.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    /// Gives `flow` what waits for it.
    pub fn poll_drain<S: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.bytes.len() {
            let count = ready!(Pin::new(&mut *flow).poll_write(cx, &self.bytes[self.sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        // An idle flow holds nothing.
        *self = Self::default();
        Poll::Ready(Ok(()))
    }
}
