//! Messages from the air gateway on a page's stream.

use std::io;

use bentpipe_prefetch::wire::{Request, UpMessage, UpReader};
use tokio::io::{AsyncRead, AsyncReadExt, ReadHalf};

/// Reader of complete upstream messages.
#[derive(Default)]
pub struct Inbox {
    ups: UpReader,
    pub ready: Vec<UpMessage>,
    pub is_over: bool,
}

impl Inbox {
    /// Reads the request that opens the stream.
    pub async fn request<S: AsyncRead>(
        &mut self,
        from: &mut ReadHalf<S>,
    ) -> io::Result<Box<Request>> {
        while self.ready.is_empty() {
            if self.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read(from).await?;
        }
        match self.ready.remove(0) {
            UpMessage::Request(request) => Ok(request),
            UpMessage::Cancel(_) => Err(io::ErrorKind::InvalidData.into()), // the first message must be a request
        }
    }

    /// Reads more bytes. Cancel-safe.
    pub async fn read<S: AsyncRead>(&mut self, from: &mut ReadHalf<S>) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let count = from.read(&mut bytes).await?;
        self.is_over = count == 0;
        self.ups.push(&bytes[..count], &mut self.ready).map_err(io::Error::other)
    }
}
