//! The cabin's end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bentpipe_prefetch::wire::single::{Downs, End, HeadPacker};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::known::Told;
use super::outbox::Outbox;
use crate::counters::Counters;

/// The most that is taken at once; what it came to waits until the flow has it, and nothing more is taken.
const MOST_BYTES: usize = 16 << 10;

/// Bytes per read of a flow whose downlink is in chunks.
const READ_BYTES: usize = 4096;

/// A flow whose uplink is packed, or one that is left as it is.
pub struct Packed<S> {
    flow: S,
    packing: Option<Box<Packing>>,
}

struct Packing {
    packer: HeadPacker,
    /// The opening, before anything is written; then what the flow has not taken yet.
    out: Outbox,
    has_begun: bool,
    /// Heads that were packed and have not been answered, and by how many bytes they are shorter.
    unanswered: (u64, u64),
    counters: Arc<Counters>,
    hearing: Option<Hearing>,
}

/// Bytes from a site's origin.
struct Hearing {
    downs: Downs,
    raw: Bytes,
    told: Told,
    /// The ground reads no more; what it still says is what counts.
    is_unheard: bool,
}

impl<S> Packed<S> {
    /// `flow`, which leads to the ground's half and begins with `opening`.
    pub fn new(flow: S, opening: Vec<u8>, counters: Arc<Counters>) -> Self {
        let (packer, out) = (HeadPacker::default(), Outbox::new(opening));
        let (has_begun, unanswered, hearing) = Default::default();
        let packing = Packing { packer, out, has_begun, unanswered, counters, hearing };
        Self { flow, packing: Some(Box::new(packing)) }
    }

    /// The same to a site; how it ends is `told`. An end that is not whole is an error.
    pub fn to_site(flow: S, opening: Vec<u8>, counters: Arc<Counters>, told: Told) -> Self {
        let mut packed = Self::new(flow, opening, counters);
        if let Some(packing) = &mut packed.packing {
            let (downs, raw, is_unheard) = Default::default();
            packing.hearing = Some(Hearing { downs, raw, told, is_unheard });
        }
        packed
    }

    /// `flow` as it is.
    pub fn plain(flow: S) -> Self {
        Self { flow, packing: None }
    }
}

impl Packing {
    fn push(&mut self, bytes: &[u8]) {
        self.has_begun = true;
        self.packer.push(bytes, &mut self.out.bytes);
        let (heads, saved_bytes) = self.packer.take_saved();
        self.unanswered.0 += heads;
        self.unanswered.1 += saved_bytes;
    }

    /// Something has come back: what was refused, and crosses once more, is not counted.
    fn answered(&mut self) {
        let (heads, saved_bytes) = std::mem::take(&mut self.unanswered);
        self.counters.http_heads_packed.add(heads);
        self.counters.http_head_bytes_saved.add(saved_bytes);
    }

    /// Gives `flow` what waits for it.
    fn poll_drain<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
    ) -> Poll<io::Result<()>> {
        if !self.has_begun {
            return Poll::Ready(Ok(()));
        }
        if !self.is_unheard() {
            match (ready!(self.out.poll_drain(cx, flow)), &mut self.hearing) {
                (Err(error), Some(hearing)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    hearing.is_unheard = true;
                }
                (drained, _) => return Poll::Ready(drained),
            }
        }
        self.out = Outbox::default();
        Poll::Ready(Ok(()))
    }

    fn is_unheard(&self) -> bool {
        self.hearing.as_ref().is_some_and(|hearing| hearing.is_unheard)
    }
}

impl Hearing {
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        flow: &mut S,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            let said = self.downs.take(&mut self.raw, buffer.remaining());
            let said = said.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if self.raw.is_empty() {
                self.raw = Bytes::new();
            }
            if !said.is_empty() {
                buffer.put_slice(&said);
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = self.downs.end() {
                self.told.get_or_init(|| end);
                let is_whole = end == End::Whole;
                let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
                return Poll::Ready(is_whole.then_some(()).ok_or_else(cut));
            }
            let mut read = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut read);
            ready!(Pin::new(&mut *flow).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.raw = Bytes::copy_from_slice(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> Packed<S> {
    /// Gives the flow all that was written, a head that is cut short among it.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(packing) = &mut self.packing else { return Poll::Ready(Ok(())) };
        packing.packer.flush(&mut packing.out.bytes);
        packing.poll_drain(cx, &mut self.flow)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Packed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before_bytes = buffer.filled().len();
        let Some(packing) = &mut this.packing else {
            return Pin::new(&mut this.flow).poll_read(cx, buffer);
        };
        let polled = match &mut packing.hearing {
            Some(hearing) => hearing.poll_read(cx, &mut this.flow, buffer),
            None => Pin::new(&mut this.flow).poll_read(cx, buffer),
        };
        if buffer.filled().len() > before_bytes {
            packing.answered();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Packed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(packing) = &mut this.packing else {
            return Pin::new(&mut this.flow).poll_write(cx, bytes);
        };
        ready!(packing.poll_drain(cx, &mut this.flow))?;
        let part = &bytes[..bytes.len().min(MOST_BYTES)];
        if !part.is_empty() {
            packing.push(part);
        }
        // What it does not take now it takes before the next, or when it is flushed.
        match packing.poll_drain(cx, &mut this.flow) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(part.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_all(cx))?;
        match &this.packing {
            Some(packing) if packing.is_unheard() => Poll::Ready(Ok(())),
            _ => Pin::new(&mut this.flow).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_all(cx))?;
        Pin::new(&mut this.flow).poll_shutdown(cx)
    }
}
