//! The ground's end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bentpipe_link::{Class, ResetCode};
use bentpipe_prefetch::wire::WireError;
use bentpipe_prefetch::wire::single::HeadUnpacker;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::said::Said;
use crate::far::{FarStream, LocalBuffers, Standing};

/// Packed bytes that are read at once. A flow holds these, one chunk and what that comes to: 44 KiB at most,
/// and nothing while it is idle. To a site there are 16 KiB more, of what its origin says, and its TLS session, which
/// keeps up to a record to be sent, and as much that was received.
const READ_BYTES: usize = 4096;

/// A flow of single requests as if they had not been packed: what is read are the bytes for the origin.
pub struct Unpacked {
    flow: Box<dyn FarStream>,
    unpacker: HeadUnpacker,
    packed: Bytes,
    out: Bytes,
    /// Writer that cuts bytes into chunks, if they are cut.
    said: Option<Said>,
    is_broken: bool,
}

impl Unpacked {
    /// `flow`, from which `packed` was read behind its opening.
    pub fn new(flow: Box<dyn FarStream>, packed: Bytes) -> Self {
        let (unpacker, out) = (HeadUnpacker::default(), Bytes::new());
        Self { flow, unpacker, packed, out, said: None, is_broken: false }
    }

    /// The same where what is written crosses as `said`.
    pub fn saying(flow: Box<dyn FarStream>, packed: Bytes, said: Said) -> Self {
        Self { said: Some(said), ..Self::new(flow, packed) }
    }

    /// Unpacks some of what has been read.
    fn unpack(&mut self) -> Result<(), WireError> {
        let mut out = Vec::new();
        let taken = self.unpacker.unpack(&self.packed, &mut out)?;
        self.packed.advance(taken);
        if self.packed.is_empty() {
            self.packed = Bytes::new();
        }
        self.out = out.into();
        Ok(())
    }

    /// The aircraft breaks the protocol: nothing more can be read, and no clean end may be shown.
    fn broken(&mut self, error: WireError) -> io::Error {
        self.is_broken = true;
        self.flow.reset(ResetCode::Internal);
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

impl AsyncRead for Unpacked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if !this.out.is_empty() {
                let part = this.out.split_to(this.out.len().min(buffer.remaining()));
                buffer.put_slice(&part);
                if this.out.is_empty() {
                    this.out = Bytes::new();
                }
                return Poll::Ready(Ok(()));
            }
            if !this.packed.is_empty() {
                this.unpack().map_err(|error| this.broken(error))?;
                continue;
            }
            let mut read = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut read);
            ready!(Pin::new(&mut this.flow).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                let is_whole = this.unpacker.is_between_chunks();
                let cut = (!is_whole).then(|| this.broken(WireError::Malformed));
                return Poll::Ready(cut.map_or(Ok(()), Err));
            }
            this.packed = Bytes::copy_from_slice(read.filled());
        }
    }
}

impl AsyncWrite for Unpacked {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match &mut this.said {
            Some(said) => said.poll_write(cx, &mut this.flow, bytes),
            None => Pin::new(&mut this.flow).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(said) = &mut this.said {
            ready!(said.poll_flush(cx, &mut this.flow))?;
        }
        Pin::new(&mut this.flow).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(said) = &mut this.said {
            ready!(said.poll_end(cx, &mut this.flow))?;
        }
        Pin::new(&mut this.flow).poll_shutdown(cx)
    }
}

impl FarStream for Unpacked {
    fn reset(&mut self, code: ResetCode) {
        self.flow.reset(code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        self.flow.stop_reading(code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        if self.is_broken { Some(ResetCode::Internal) } else { self.flow.reset_code() }
    }

    fn standing(&self) -> Standing {
        self.flow.standing()
    }

    fn local_buffers(&self) -> LocalBuffers {
        self.flow.local_buffers()
    }

    fn connected(&mut self) {
        self.flow.connected();
    }

    fn confirm_class(&mut self, class: Class) {
        self.flow.confirm_class(class);
    }

    fn demote(&mut self, class: Class) {
        self.flow.demote(class);
    }

    fn class(&self) -> Option<Class> {
        self.flow.class()
    }
}
