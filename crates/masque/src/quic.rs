//! Adapter between quinn and h3.
//!
//! The `h3-quinn` crate is an adapter too, but it owns each request stream, panics when a stream is
//! stopped while a read waits, and reads ahead without bound when a peer sends many small frames.
//! Here h3 runs the connection (SETTINGS, control and QPACK streams, field sections), and reads
//! only the HEADERS of each request stream. The flow gets the stream afterwards.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use h3::{
    error::Code,
    quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    stream::{RawRecv, RawSend, var_int},
    wire::{self, HeaderBuf, Kind},
};

/// Maximum size of a field section on the wire. Names of up to 253 bytes and the proofs need less
/// than 1 KiB.
pub(crate) const MAX_HEADERS_BYTES: u64 = 8 << 10;

/// Maximum number of bytes in unknown frames before HEADERS.
const MAX_SKIPPED_BYTES: u64 = 8 << 10;

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, quinn::ConnectionError>> + Send + Sync>>;

/// A request stream. h3 uses it for HEADERS, and the flow afterwards.
#[derive(Clone)]
pub(crate) struct Request {
    id: StreamId,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    send: Option<RawSend>,
    recv: Option<RawRecv>,
    /// Bytes that h3 wrote and we have not sent.
    held: BytesMut,
    header: HeaderBuf,
    section: BytesMut,
    /// Bytes of the current frame that have not arrived: of HEADERS, or of a skipped frame.
    missing: u64,
    skipped: u64,
}

impl Request {
    pub(crate) fn new(send: quinn::SendStream, recv: quinn::RecvStream) -> Request {
        let id = stream_id(send.id());
        let shared = Shared {
            send: Some(RawSend::new(send)),
            recv: Some(RawRecv(recv)),
            held: BytesMut::new(),
            header: HeaderBuf::default(),
            section: BytesMut::new(),
            missing: 0,
            skipped: 0,
        };
        Request { id, shared: Arc::new(Mutex::new(shared)) }
    }

    /// Stream id.
    pub(crate) fn id(&self) -> u64 {
        self.id.into_inner()
    }

    /// Takes the bytes that h3 has written so far.
    pub(crate) fn take_held(&self) -> BytesMut {
        std::mem::take(&mut self.lock().held)
    }

    /// Keeps `permit` until the sending half is dropped.
    pub(crate) fn hold(&self, permit: OwnedSemaphorePermit) {
        if let Some(send) = &mut self.lock().send {
            send.hold(permit);
        }
    }

    /// Takes the sending half. Returns `None` the second time.
    pub(crate) fn take_send(&self) -> Option<RawSend> {
        self.lock().send.take()
    }

    /// Takes the receiving half, positioned after the HEADERS that h3 has read. Returns `None` the
    /// second time.
    pub(crate) fn take_recv(&self) -> Option<RawRecv> {
        self.lock().recv.take()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }
}

impl Shared {
    /// Reads exactly to the end of one HEADERS frame.
    fn poll_headers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let Some(recv) = &mut self.recv else {
            return Poll::Ready(Ok(None));
        };
        let mut buf = [0; 1024];
        loop {
            let wanted = match self.missing {
                0 => 1,
                missing => missing.min(buf.len() as u64) as usize,
            };
            let read = ready!(recv.0.poll_read(cx, &mut buf[..wanted])).map_err(read_error)?;
            if read == 0 {
                // A message without HEADERS is malformed. Only this stream fails (RFC 9114 §4.1.2).
                let code = Code::H3_MESSAGE_ERROR.value();
                return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                    error_code: code,
                }));
            }
            if self.missing > 0 {
                self.missing -= read as u64;
                if !self.section.is_empty() {
                    self.section.extend_from_slice(&buf[..read]);
                    if self.missing == 0 {
                        return Poll::Ready(Ok(Some(self.section.split().freeze())));
                    }
                }
                continue;
            }
            let Some((frame_type, len)) = self.header.push(buf[0]) else {
                continue;
            };
            match wire::kind(frame_type) {
                Kind::Headers if len > MAX_HEADERS_BYTES => return Poll::Ready(Err(too_long())),
                Kind::Unknown if self.skipped + len > MAX_SKIPPED_BYTES => {
                    return Poll::Ready(Err(too_long()));
                }
                Kind::Unknown => self.skipped += len,
                Kind::Headers if len > 0 => self.section.extend_from_slice(self.header.as_slice()),
                // h3 decides from the header alone if another frame may come first.
                Kind::Headers | Kind::Data | Kind::Forbidden => {
                    let header = Bytes::copy_from_slice(self.header.as_slice());
                    return Poll::Ready(Ok(Some(header)));
                }
            }
            self.header.clear();
            self.missing = len;
        }
    }
}

impl quic::SendStream<Bytes> for Request {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data: WriteBuf<Bytes> = data.into();
        let mut shared = self.lock();
        while data.has_remaining() {
            let chunk = data.chunk();
            let len = chunk.len();
            shared.held.extend_from_slice(chunk);
            data.advance(len);
        }
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, code: u64) {
        if let Some(mut send) = self.lock().send.take() {
            send.reset(code);
        }
    }

    fn send_id(&self) -> StreamId {
        self.id
    }
}

impl quic::RecvStream for Request {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.lock().poll_headers(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        if let Some(mut recv) = self.lock().recv.take() {
            recv.stop(code);
        }
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

/// A unidirectional stream that we opened.
pub(crate) struct UniSend {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
}

impl quic::SendStream<Bytes> for UniSend {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, data.chunk()))
                .map_err(write_error)?;
            data.advance(written);
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let finished = self.stream.finish();
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        // Fails only if the stream is closed already.
        let _ = self.stream.reset(var_int(code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

/// A unidirectional stream that the peer opened.
pub(crate) struct UniRecv(quinn::RecvStream);

impl quic::RecvStream for UniRecv {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut buf = [0; 512];
        let read = ready!(self.0.poll_read(cx, &mut buf)).map_err(read_error)?;
        Poll::Ready(Ok((read > 0).then(|| Bytes::copy_from_slice(&buf[..read]))))
    }

    fn stop_sending(&mut self, code: u64) {
        // Fails only if the stream is closed already.
        let _ = self.0.stop(var_int(code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.0.id())
    }
}

/// Request streams that h3 holds, in order of creation. The references are weak: a stream that h3
/// drops is gone.
#[derive(Clone, Default)]
pub(crate) struct H3Requests(Arc<Mutex<VecDeque<WeakRequest>>>);

type WeakRequest = (StreamId, Weak<Mutex<Shared>>);

impl H3Requests {
    /// Takes the request with this id.
    pub(crate) fn take(&self, id: StreamId) -> Option<Request> {
        let mut requests = self.lock();
        let permit = requests.iter().position(|request| request.0 == id)?;
        let (id, shared) = requests.remove(permit)?;
        Some(Request { id, shared: shared.upgrade()? })
    }

    /// Takes the oldest request.
    pub(crate) fn next(&self) -> Option<Request> {
        let mut requests = self.lock();
        std::iter::from_fn(|| requests.pop_front())
            .find_map(|(id, shared)| Some(Request { id, shared: shared.upgrade()? }))
    }

    fn push(&self, request: &Request) {
        let mut requests = self.lock();
        requests.retain(|(_, shared)| shared.strong_count() > 0);
        requests.push_back((request.id, Arc::downgrade(&request.shared)));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<WeakRequest>> {
        self.0.lock()
    }
}

/// Opens streams for h3.
pub(crate) struct Opener {
    conn: quinn::Connection,
    h3_requests: H3Requests,
    bi: Option<Opening<(quinn::SendStream, quinn::RecvStream)>>,
    uni: Option<Opening<quinn::SendStream>>,
}

impl Clone for Opener {
    fn clone(&self) -> Opener {
        Opener {
            conn: self.conn.clone(),
            h3_requests: self.h3_requests.clone(),
            bi: None,
            uni: None,
        }
    }
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = Request;
    type SendStream = UniSend;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Request, StreamErrorIncoming>> {
        let conn = &self.conn;
        let opening = self.bi.get_or_insert_with(|| {
            let conn = conn.clone();
            Box::pin(async move { conn.open_bi().await })
        });
        let opened = ready!(opening.poll_unpin(cx));
        self.bi = None;
        let (send, recv) = opened.map_err(connection_lost)?;
        let request = Request::new(send, recv);
        self.h3_requests.push(&request);
        Poll::Ready(Ok(request))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<UniSend, StreamErrorIncoming>> {
        let conn = &self.conn;
        let opening = self.uni.get_or_insert_with(|| {
            let conn = conn.clone();
            Box::pin(async move { conn.open_uni().await })
        });
        let opened = ready!(opening.poll_unpin(cx));
        self.uni = None;
        let stream = opened.map_err(connection_lost)?;
        Poll::Ready(Ok(UniSend { stream, writing: None }))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.conn.close(var_int(code.value()), reason);
    }
}

/// A connection for h3.
pub(crate) struct Connection {
    opener: Opener,
    accept_bi:
        BoxStream<'static, Result<(quinn::SendStream, quinn::RecvStream), quinn::ConnectionError>>,
    accept_uni: BoxStream<'static, Result<quinn::RecvStream, quinn::ConnectionError>>,
}

impl Connection {
    pub(crate) fn new(conn: quinn::Connection) -> (Connection, H3Requests) {
        let h3_requests = H3Requests::default();
        let accept_bi =
            stream::unfold(conn.clone(), |conn| async { Some((conn.accept_bi().await, conn)) });
        let accept_uni =
            stream::unfold(conn.clone(), |conn| async { Some((conn.accept_uni().await, conn)) });
        let connection = Connection {
            opener: Opener { conn, h3_requests: h3_requests.clone(), bi: None, uni: None },
            accept_bi: accept_bi.boxed(),
            accept_uni: accept_uni.boxed(),
        };
        (connection, h3_requests)
    }
}

impl quic::OpenStreams<Bytes> for Connection {
    type BidiStream = Request;
    type SendStream = UniSend;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Request, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<UniSend, StreamErrorIncoming>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.opener.close(code, reason);
    }
}

impl quic::Connection<Bytes> for Connection {
    type RecvStream = UniRecv;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<UniRecv, ConnectionErrorIncoming>> {
        let accepted = ready!(self.accept_uni.poll_next_unpin(cx));
        Poll::Ready(accepted_or_closed(accepted).map(UniRecv))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Request, ConnectionErrorIncoming>> {
        let accepted = ready!(self.accept_bi.poll_next_unpin(cx));
        let (send, recv) = accepted_or_closed(accepted)?;
        let request = Request::new(send, recv);
        self.opener.h3_requests.push(&request);
        Poll::Ready(Ok(request))
    }

    fn opener(&self) -> Opener {
        self.opener.clone()
    }
}

fn accepted_or_closed<T>(
    accepted: Option<Result<T, quinn::ConnectionError>>,
) -> Result<T, ConnectionErrorIncoming> {
    // The streams above never end; an end would mean that the connection was closed here.
    accepted.unwrap_or(Err(quinn::ConnectionError::LocallyClosed)).map_err(connection_error)
}

fn stream_id(id: quinn::StreamId) -> StreamId {
    // Both sides bound stream ids to 62 bits, so this cannot fail.
    u64::from(id).try_into().unwrap_or_else(|_| unreachable!("stream ids have 62 bits"))
}

fn too_long() -> StreamErrorIncoming {
    StreamErrorIncoming::Unknown("the field section is too long".into())
}

fn connection_lost(error: quinn::ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: connection_error(error) }
}

fn connection_error(error: quinn::ConnectionError) -> ConnectionErrorIncoming {
    match error {
        quinn::ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into() }
        }
        quinn::ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn read_error(error: quinn::ReadError) -> StreamErrorIncoming {
    match error {
        quinn::ReadError::Reset(code) => {
            StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() }
        }
        quinn::ReadError::ConnectionLost(error) => connection_lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

fn write_error(error: quinn::WriteError) -> StreamErrorIncoming {
    match error {
        quinn::WriteError::Stopped(code) => {
            StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() }
        }
        quinn::WriteError::ConnectionLost(error) => connection_lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}
