//! A flow: the bidirectional body of a CONNECT.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bentpipe_flow::ResetCode;
use bytes::{Buf, BytesMut};
use futures_util::FutureExt;
use h3::error::Code;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::{
    connection_watch::ConnectionWatch,
    stream::{RawRecv, RawSend, WriteEnd},
    wire::{self, HeaderBuf, Kind},
};

/// Maximum payload of one DATA frame. A flow whose stream is blocked buffers at most one: 160 MB
/// for 10,000 blocked flows. Idle flows buffer nothing.
pub(crate) const MAX_DATA_BYTES: usize = 16 << 10;

/// A bidirectional byte stream over TCP.
///
/// `shutdown` sends FIN; the other direction goes on. Dropping a flow whose writing side was not
/// shut down resets it. After a reset by the peer, reads fail with
/// [`io::ErrorKind::ConnectionReset`]. Writes fail with [`io::ErrorKind::BrokenPipe`] once the peer
/// stops reading. The inner error of both is [`FlowReset`].
pub struct Flow {
    send: SendHalf,
    recv: RecvHalf,
    reset: Option<ResetCode>,
    class: Option<u8>,
    /// Takes the answer to the flow's request, at a server that has not answered it.
    answer: Option<oneshot::Sender<Answer>>,
    /// Connection to a server whose own loss is reported too.
    connection: Option<ConnectionWatch>,
}

/// Answer to a request: the class that was confirmed, or the reason of a refusal.
pub(crate) type Answer = Result<Option<u8>, ResetCode>;

/// Inner error of [`io::ErrorKind::ConnectionReset`]: the peer reset the flow, or its connection
/// was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flow was reset: {0}")]
pub struct FlowReset(pub ResetCode);

/// Result of the task that opens a flow: first the stream, then the response.
pub(crate) type Opened<T> = oneshot::Receiver<Result<T, ResetCode>>;

/// Senders of the results that an opening flow waits for.
pub(crate) struct Opening {
    pub send: oneshot::Sender<Result<RawSend, ResetCode>>,
    pub recv: oneshot::Sender<Result<Accepted, ResetCode>>,
}

impl Opening {
    /// Fails the flow.
    pub fn fail(self, why: ResetCode) {
        // A dropped flow needs no reason.
        let _ = self.send.send(Err(why));
        let _ = self.recv.send(Err(why));
    }
}

/// Content of the response.
pub(crate) struct Accepted {
    pub stream: RawRecv,
    /// Class that the server gave the flow.
    pub class: Option<u8>,
}

enum SendHalf {
    Opening(Opened<RawSend>),
    Open { stream: RawSend, blocked: BytesMut },
    Done,
    Closed,
}

enum RecvHalf {
    Opening(Opened<Accepted>),
    Open { stream: RawRecv, frames: DataFrames },
    End,
    Closed,
}

impl Flow {
    /// Creates a flow whose stream is being opened.
    pub(crate) fn opening() -> (Flow, Opening) {
        let (send, send_opened) = oneshot::channel();
        let (recv, recv_opened) = oneshot::channel();
        let flow = Flow::new(SendHalf::Opening(send_opened), RecvHalf::Opening(recv_opened));
        (flow, Opening { send, recv })
    }

    /// Creates a flow whose request waits for an answer. A dropped sender means that the flow is
    /// dropped.
    pub(crate) fn unanswered() -> (Flow, Opening, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let (flow, opening) = Flow::opening();
        (Flow { answer: Some(answer), ..flow }, opening, answered)
    }

    /// Creates a flow on an open stream, after both HEADERS.
    pub(crate) fn open(send: RawSend, recv: RawRecv) -> Flow {
        Flow::new(
            SendHalf::Open { stream: send, blocked: BytesMut::new() },
            RecvHalf::Open { stream: recv, frames: DataFrames::default() },
        )
    }

    fn new(send: SendHalf, recv: RecvHalf) -> Flow {
        Flow { send, recv, reset: None, class: None, answer: None, connection: None }
    }

    /// Tells the loss of the flow's server from the loss of `connection` to it.
    pub(crate) fn on(self, connection: Option<ConnectionWatch>) -> Flow {
        Flow { connection, ..self }
    }

    /// Waits for the answer to a client's request. Returns the reason if it is refused.
    pub async fn opened(&mut self) -> Result<(), ResetCode> {
        let RecvHalf::Opening(opened) = &mut self.recv else { return Ok(()) };
        match opened.await.unwrap_or(Err(ResetCode::Internal)) {
            Ok(Accepted { stream, class }) => {
                self.class = class;
                self.recv = RecvHalf::Open { stream, frames: DataFrames::default() };
                Ok(())
            }
            Err(why) => {
                self.recv = RecvHalf::Closed;
                self.fail(why);
                Err(why)
            }
        }
    }

    /// Responds to the request with 200. The first read or write does so too. Has no effect at a
    /// client.
    pub fn accept(&mut self) {
        if let Some(answer) = self.answer.take() {
            // Fails only if the runtime ends.
            let _ = answer.send(Ok(self.class));
        }
    }

    /// Confirms the client's claim in the answer. Has no effect once the request is answered.
    pub fn confirm_class(&mut self, class: u8) {
        if self.answer.is_some() {
            self.class = Some(class);
        }
    }

    /// Class that the server gave the flow for its claim. `None` until a read has received the
    /// response.
    pub fn class(&self) -> Option<u8> {
        self.class
    }

    /// Resets the flow in both directions. Undelivered bytes are lost. If the request has not been
    /// answered, the peer sees `why` as a refusal; otherwise as far as [`h3_code`](crate::h3_code) can
    /// express it.
    pub fn reset(&mut self, why: ResetCode) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(why));
        }
        if let SendHalf::Open { stream, .. } = &mut self.send {
            stream.reset(crate::refusal::h3_code(why));
        }
        if !matches!(self.send, SendHalf::Done) {
            self.send = SendHalf::Closed;
        }
        self.stop_reading(why);
    }

    /// Tells the peer that nothing more will be read. Writing goes on.
    pub fn stop_reading(&mut self, why: ResetCode) {
        if let RecvHalf::Open { stream, .. } = &mut self.recv {
            stream.stop(crate::refusal::h3_code(why));
        }
        if !matches!(self.recv, RecvHalf::End) {
            self.recv = RecvHalf::Closed;
        }
    }

    /// Reason why the peer reset or refused the flow, once a read or a write has failed with it.
    pub fn reset_code(&self) -> Option<ResetCode> {
        let code = self.reset?;
        Some(self.connection.as_ref().map_or(code, |connection| connection.cause(code)))
    }

    fn fail(&mut self, why: ResetCode) -> io::Error {
        // The first reason is the cause, and later ones are its consequences.
        let why = *self.reset.get_or_insert(why);
        io::Error::new(io::ErrorKind::ConnectionReset, FlowReset(why))
    }

    /// A peer that only stopped reading breaks the pipe. What it sends can still be read.
    fn fail_write(&mut self, end: WriteEnd) -> io::Error {
        match end {
            WriteEnd::Stopped(why) => io::Error::new(io::ErrorKind::BrokenPipe, FlowReset(why)),
            WriteEnd::Lost => self.fail(end.why()),
        }
    }

    /// Sends the rest of a blocked write.
    fn poll_unblocked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.accept();
        if let SendHalf::Opening(opened) = &mut self.send {
            match ready!(opened.poll_unpin(cx)).unwrap_or(Err(ResetCode::Internal)) {
                Ok(stream) => self.send = SendHalf::Open { stream, blocked: BytesMut::new() },
                Err(why) => {
                    self.send = SendHalf::Closed;
                    return Poll::Ready(Err(self.fail(why)));
                }
            }
        }
        match &mut self.send {
            SendHalf::Open { stream, blocked } => {
                while !blocked.is_empty() {
                    match ready!(stream.poll_write(cx, blocked)) {
                        Ok(written) => blocked.advance(written),
                        Err(end) => return Poll::Ready(Err(self.fail_write(end))),
                    }
                }
                if blocked.capacity() > 0 {
                    *blocked = BytesMut::new();
                }
                Poll::Ready(Ok(()))
            }
            SendHalf::Done => Poll::Ready(Ok(())),
            SendHalf::Opening(_) | SendHalf::Closed => Poll::Ready(Err(match self.reset {
                Some(why) => self.fail(why),
                None => io::ErrorKind::BrokenPipe.into(),
            })),
        }
    }
}

impl AsyncWrite for Flow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_unblocked(cx))?;
        let SendHalf::Open { stream, blocked } = &mut self.send else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // The frame's header announces its bytes, so bytes that quinn does not accept are buffered
        // here.
        let taken = &buf[..buf.len().min(MAX_DATA_BYTES)];
        let mut header = BytesMut::with_capacity(wire::MAX_FRAME_HEADER);
        wire::data_header(taken.len(), &mut header);
        match stream.poll_write(cx, &header) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(written)) => header.advance(written),
            Poll::Ready(Err(end)) => return Poll::Ready(Err(self.fail_write(end))),
        }
        let mut sent = 0;
        while header.is_empty() && sent < taken.len() {
            match stream.poll_write(cx, &taken[sent..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) => sent += written,
                Poll::Ready(Err(end)) => return Poll::Ready(Err(self.fail_write(end))),
            }
        }
        blocked.extend_from_slice(&header);
        blocked.extend_from_slice(&taken[sent..]);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unblocked(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unblocked(cx))?;
        if let SendHalf::Open { stream, .. } = &mut self.send {
            stream.finish();
            self.send = SendHalf::Done;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Flow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.accept();
        if let RecvHalf::Opening(opened) = &mut this.recv {
            match ready!(opened.poll_unpin(cx)).unwrap_or(Err(ResetCode::Internal)) {
                Ok(Accepted { stream, class }) => {
                    this.class = class;
                    this.recv = RecvHalf::Open { stream, frames: DataFrames::default() };
                }
                Err(why) => {
                    this.recv = RecvHalf::Closed;
                    return Poll::Ready(Err(this.fail(why)));
                }
            }
        }
        match &mut this.recv {
            RecvHalf::Open { stream, frames } => match ready!(frames.poll_data(stream, cx, buf)) {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => {
                    this.recv = RecvHalf::End;
                    Poll::Ready(Ok(()))
                }
                Err(why) => {
                    this.recv = RecvHalf::Closed;
                    Poll::Ready(Err(this.fail(why)))
                }
            },
            RecvHalf::End => Poll::Ready(Ok(())),
            RecvHalf::Opening(_) | RecvHalf::Closed => Poll::Ready(Err(match this.reset {
                Some(why) => this.fail(why),
                None => io::ErrorKind::NotConnected.into(),
            })),
        }
    }
}

/// Extracts the payload of DATA frames.
#[derive(Default)]
pub(crate) struct DataFrames {
    header: HeaderBuf,
    data: u64,
    skip: u64,
}

impl DataFrames {
    /// Reads into `buf`. Returns `Ok(false)` at the end of the body.
    ///
    /// A body that violates RFC 9114 §7 is reset with the code that the RFC demands. Its connection
    /// lives on, because it carries all other passengers, and both peers have proved their keys.
    pub(crate) fn poll_data(
        &mut self,
        stream: &mut RawRecv,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<bool, ResetCode>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(true));
        }
        loop {
            if self.data > 0 {
                let wanted = buf.remaining().min(usize::try_from(self.data).unwrap_or(usize::MAX));
                let read = ready!(stream.poll_read(cx, buf.initialize_unfilled_to(wanted)))?;
                if read == 0 {
                    stream.stop(Code::H3_FRAME_ERROR.value());
                    return Poll::Ready(Err(ResetCode::Aborted));
                }
                buf.advance(read);
                self.data -= read as u64;
                return Poll::Ready(Ok(true));
            }
            let mut scratch = [0; 256];
            let wanted = self.skip.clamp(1, scratch.len() as u64) as usize;
            let read = ready!(stream.poll_read(cx, &mut scratch[..wanted]))?;
            if read == 0 {
                let whole = self.header.is_empty() && self.skip == 0;
                return Poll::Ready(if whole { Ok(false) } else { Err(ResetCode::Aborted) });
            }
            if self.skip > 0 {
                self.skip -= read as u64;
                continue;
            }
            let Some((frame_type, len)) = self.header.push(scratch[0]) else {
                continue;
            };
            self.header.clear();
            match wire::kind(frame_type) {
                Kind::Data => self.data = len,
                Kind::Unknown => self.skip = len,
                // Trailers have no meaning in a CONNECT (RFC 9114 §4.4).
                Kind::Headers | Kind::Forbidden => {
                    stream.stop(Code::H3_FRAME_UNEXPECTED.value());
                    return Poll::Ready(Err(ResetCode::Aborted));
                }
            }
        }
    }
}
