//! A carrier: a flow of a transport, with the records on it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bentpipe_flow::ResetCode;
use bentpipe_transport::FlowStream;
use bytes::BytesMut;
use tokio::io::ReadBuf;

use crate::end::{Attachment, End};
use crate::wire::MIN_ROOM_BYTES;

/// Bytes read at once ahead of the user.
pub const SCRATCH_BYTES: usize = 4 << 10;

/// A stream between an air and an egress, and what was agreed on it.
pub struct Carrier {
    stream: Box<dyn FlowStream>,
    attachment: Attachment,
    /// Record that goes before all others.
    first: Vec<u8>,
    first_written: usize,
    /// Bytes that were read before, and are not decoded yet.
    read: BytesMut,
}

/// End of a carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The carrier alone is gone: the flow may go on with another one.
    Lost,
    /// The flow is over for this reason.
    Ended(ResetCode),
}

impl Carrier {
    /// Takes `stream`, on which `first` is still to be sent.
    pub fn new(stream: Box<dyn FlowStream>, attachment: Attachment, first: Vec<u8>) -> Self {
        Self { stream, attachment, first, first_written: 0, read: BytesMut::new() }
    }

    /// Takes `stream`, from which `read` was read.
    pub fn begun(stream: Box<dyn FlowStream>, attachment: Attachment, read: BytesMut) -> Self {
        Self { read, ..Self::new(stream, attachment, Vec::new()) }
    }

    /// Gives the carrier up. The flow goes on with another one.
    pub fn give_up(mut self) {
        self.stream.reset(ResetCode::Lost);
    }

    /// The stream.
    pub fn stream_mut(&mut self) -> &mut dyn FlowStream {
        &mut *self.stream
    }

    /// The stream.
    pub fn stream(&self) -> &dyn FlowStream {
        &*self.stream
    }

    /// Returns `true` if the egress has accepted the carrier.
    pub fn is_agreed(&self) -> bool {
        self.attachment.is_agreed()
    }

    /// Sends what `end` has for the peer. Ready once everything is with the stream. A flow that is
    /// done also ends the stream.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, end: &mut End) -> Poll<Result<(), Broken>> {
        while self.first_written < self.first.len() {
            let polled =
                Pin::new(&mut *self.stream).poll_write(cx, &self.first[self.first_written..]);
            match ready!(polled) {
                Ok(count) => self.first_written += count,
                Err(error) => return Poll::Ready(Err(self.broken(&error))),
            }
        }
        while self.attachment.may_send() {
            let next = end.outgoing.output();
            if next.is_empty() {
                break;
            }
            match ready!(Pin::new(&mut *self.stream).poll_write(cx, next)) {
                Ok(count) => end.outgoing.written(count),
                Err(error) => return Poll::Ready(Err(self.broken(&error))),
            }
        }
        let mut stream = Pin::new(&mut *self.stream);
        let polled = match self.attachment.is_agreed() && end.is_done() {
            true => stream.as_mut().poll_shutdown(cx),
            false => stream.as_mut().poll_flush(cx),
        };
        ready!(polled).map_err(|error| self.broken(&error))?;
        Poll::Ready(Ok(()))
    }

    /// Receives records for `end`, and data into `buffer`, which has room for [`MIN_ROOM_BYTES`]. Ready
    /// with data in the buffer, or with a record for which the caller has to look at `end`.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        end: &mut End,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Broken>> {
        let before = buffer.filled().len();
        loop {
            let at = buffer.filled().len();
            match self.poll_read(cx, buffer) {
                // The next read finds the end of the stream again.
                Poll::Pending | Poll::Ready(Err(_)) if at > before => return Poll::Ready(Ok(())),
                polled => ready!(polled)?,
            }
            let kept = self.attachment.decode(end, &mut buffer.filled_mut()[at..]);
            match kept {
                Ok(kept) => buffer.set_filled(at + kept),
                Err(error) => {
                    tracing::warn!(%error, "a flow ends");
                    // Bytes before it are counted, so no other carrier would bring them again.
                    end.ended = Some(ResetCode::Internal);
                    buffer.set_filled(before);
                    return Poll::Ready(Err(Broken::Ended(ResetCode::Internal)));
                }
            }
            if let Some(code) = end.ended {
                return Poll::Ready(Err(Broken::Ended(code)));
            }
            if buffer.filled().len() == at || buffer.remaining() < MIN_ROOM_BYTES {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads into `buffer`, after what was not decoded of the bytes before.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Broken>> {
        let left = self.attachment.left();
        if !self.read.is_empty() {
            buffer.put_slice(left);
            let room = buffer.remaining();
            buffer.put_slice(&self.read.split_to(room.min(self.read.len())));
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(&mut buffer.initialize_unfilled()[left.len()..]);
        let polled = ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut part));
        let count = part.filled().len();
        match polled {
            Err(error) => return Poll::Ready(Err(self.broken(&error))),
            // The end of a stream says nothing about the flow: its FIN is a record.
            Ok(()) if count == 0 => return Poll::Ready(Err(Broken::Lost)),
            Ok(()) => {}
        }
        buffer.initialize_unfilled()[..left.len()].copy_from_slice(left);
        buffer.advance(left.len() + count);
        Poll::Ready(Ok(()))
    }

    fn broken(&self, error: &io::Error) -> Broken {
        match self.stream.reset_code() {
            // The peer says in a record why it reads no more. A stream that is only stopped is lost.
            _ if error.kind() == io::ErrorKind::BrokenPipe => Broken::Lost,
            None | Some(ResetCode::Lost) => Broken::Lost,
            Some(code) => Broken::Ended(code),
        }
    }
}
