//! A client's connection that passes only unambiguous requests to its server.
//!
//! It stands between the socket and hyper, which alone is not strict enough: hyper accepts
//! Transfer-Encoding together with Content-Length, repeated equal Content-Lengths, and lines that
//! end with LF alone.
//!
//! Headers are held until they are complete and valid. An invalid one is replaced by a short
//! request of our own, and [`PendingRefusals`] tells the service to refuse it. The gate also carries interim
//! responses, which hyper does not support.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bentpipe_relay::layer::{Layer, Layered};
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::{self, Chunks, Length, MAX_HEAD_BYTES, Refusal};
use super::interim::Interim;

/// Bytes per read from the socket.
const READ_BYTES: usize = 16 * 1024;

/// Substitute for a refused request. Nothing follows it.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n";

/// Side channel between a connection and its service: refusals, and interim responses.
#[derive(Debug, Default)]
pub struct PendingRefusals(Mutex<Passed>);

#[derive(Debug, Default)]
struct Passed {
    /// Number of requests given to the service.
    served: u64,
    /// Index of the refused request, and the reason.
    refused: Option<(u64, Refusal)>,
    /// Fault in the body of the current request.
    broken: Option<Refusal>,
    /// Interim bytes that are still to be sent.
    saying: Bytes,
    /// `true` if a part of `saying` has been sent.
    is_amid: bool,
    /// Task that waits until they have been sent.
    speaker: Option<Waker>,
}

impl PendingRefusals {
    fn state(&self) -> parking_lot::MutexGuard<'_, Passed> {
        self.0.lock()
    }

    /// Returns the reason if the next request must be refused. Must be called once per request, in
    /// order.
    pub fn next(&self) -> Option<Refusal> {
        let mut state = self.state();
        let number = state.served;
        state.served += 1;
        state.refused.filter(|(refused, _)| *refused == number).map(|(_, why)| why)
    }

    /// Returns the fault in the body of the current request, once one is found.
    pub fn broken(&self) -> Option<Refusal> {
        self.state().broken
    }

    /// Waits for `answer` in the service of a request, and sends the responses from `interim` to
    /// the client meanwhile.
    pub async fn answer<T>(&self, answer: impl Future<Output = T>, mut interim: Interim) -> T {
        tokio::pin!(answer);
        loop {
            tokio::select! {
                // Interim responses that arrived before the answer are sent before it.
                biased;
                Some(head) = interim.recv() => self.say(head).await,
                answer = &mut answer => return answer,
            }
        }
    }

    /// Sends `head` to the client, and completes when it has been sent. Nothing else is sent until
    /// the service has answered.
    async fn say(&self, head: Bytes) {
        self.state().saying = head;
        poll_fn(|cx| {
            let mut state = self.state();
            if state.saying.is_empty() {
                return Poll::Ready(());
            }
            state.speaker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Writes pending interim bytes. Must be called only when everything of an earlier response is
    /// flushed.
    fn poll_say<T: AsyncWrite + Unpin>(
        &self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state();
        while !state.saying.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, &state.saying))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            state.saying.advance(written);
            state.is_amid = !state.saying.is_empty();
            if state.saying.is_empty()
                && let Some(speaker) = state.speaker.take()
            {
                speaker.wake();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The connection.
pub type RequestSanitizer<T> = Layered<T, Sanitizer>;

/// Layer that passes only unambiguous requests.
pub struct Sanitizer {
    buffer: BytesMut,
    /// Length of the validated data at the start of the buffer.
    good: usize,
    state: State,
    /// Number of requests whose headers were passed on.
    heads: u64,
    gate: Arc<PendingRefusals>,
    ended: bool,
}

enum State {
    Head,
    Body(u64),
    Chunks(Chunks),
    /// Unchecked data: a tunnel, or an incomplete request that hyper must reject.
    Through,
    Refused,
}

/// Wraps a connection from which `read` has already been read.
pub fn sanitize<T>(io: T, read: Bytes) -> (RequestSanitizer<T>, Arc<PendingRefusals>) {
    let gate = Arc::new(PendingRefusals::default());
    let sanitizer = Sanitizer {
        buffer: BytesMut::from(&read[..]),
        good: 0,
        state: State::Head,
        heads: 0,
        gate: gate.clone(),
        ended: false,
    };
    (Layered::new(io, sanitizer), gate)
}

impl Sanitizer {
    /// Returns the bytes read but not passed on.
    pub fn into_unread(self) -> Bytes {
        self.buffer.freeze()
    }

    /// Validates data that has been read but not checked.
    fn judge(&mut self) {
        while self.good < self.buffer.len() {
            let fresh = &self.buffer[self.good..];
            let step = match &mut self.state {
                State::Through => fresh.len(),
                // Nothing more is passed on.
                State::Refused => return,
                State::Body(left) => {
                    let step = (*left).min(fresh.len() as u64);
                    *left -= step;
                    if *left == 0 {
                        self.state = State::Head;
                    }
                    step as usize
                }
                State::Chunks(chunks) => {
                    let read = match chunks.read(fresh) {
                        Ok(read) => read,
                        // The request is already being served, so hyper sees an incomplete body.
                        Err(refusal) => {
                            self.gate.state().broken = Some(refusal);
                            self.state = State::Refused;
                            self.buffer.truncate(self.good);
                            return;
                        }
                    };
                    if read.ended {
                        self.state = State::Head;
                    }
                    read.bytes
                }
                // One header at a time, because the refusal of the next must not be visible before
                // it.
                State::Head if self.good > 0 => return,
                State::Head => match framing::head(fresh) {
                    Ok(None) => return,
                    Ok(Some(framed)) => {
                        self.heads += 1;
                        self.state = match framed.body {
                            _ if framed.connect => State::Through,
                            Length::Known(0) => State::Head,
                            Length::Known(length) => State::Body(length),
                            Length::Chunked => State::Chunks(Chunks::default()),
                        };
                        match framing::escaped(&fresh[..framed.bytes]) {
                            None => framed.bytes,
                            // It is at the start of the buffer.
                            Some(escaped) => {
                                let rest = self.buffer.split_off(framed.bytes);
                                self.buffer = BytesMut::from(&escaped[..]);
                                self.buffer.unsplit(rest);
                                escaped.len()
                            }
                        }
                    }
                    Err(refusal) => {
                        self.gate.state().refused = Some((self.heads, refusal));
                        self.state = State::Refused;
                        self.buffer = BytesMut::from(STAND_IN);
                        self.good = STAND_IN.len();
                        return;
                    }
                },
            };
            self.good += step;
        }
    }
}

impl Sanitizer {
    /// Reads more from the socket, or detects its end.
    fn poll_more<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut space);
        ready!(Pin::new(io).poll_read(cx, &mut read))?;
        if read.filled().is_empty() {
            self.ended = true;
        } else if !matches!(self.state, State::Refused) {
            self.buffer.extend_from_slice(read.filled());
        }
        Poll::Ready(Ok(()))
    }
}

impl Layer for Sanitizer {
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            self.judge();
            if self.good > 0 {
                let length = self.good.min(buffer.remaining());
                buffer.put_slice(&self.buffer[..length]);
                self.buffer.advance(length);
                self.good -= length;
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                if self.buffer.is_empty() || matches!(self.state, State::Refused) {
                    return Poll::Ready(Ok(()));
                }
                // An incomplete header is passed to hyper, which rejects it.
                self.state = State::Through;
                continue;
            }
            if matches!(self.state, State::Refused) {
                // Keep reading, because unread data would turn our response into a reset; but
                // report the end at once.
                let _ = self.poll_more(io, cx)?;
                return Poll::Ready(Ok(()));
            }
            debug_assert!(self.buffer.len() <= MAX_HEAD_BYTES + READ_BYTES);
            ready!(self.poll_more(io, cx))?;
        }
    }

    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.gate.state().is_amid {
            ready!(self.gate.poll_say(io, cx))?;
        }
        Pin::new(io).poll_write(cx, bytes)
    }

    fn poll_flush<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.gate.poll_say(io, cx))?;
        Pin::new(io).poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Part of `text` that passes, and the refused request.
    async fn through(text: &str, piece: usize) -> (String, Option<(u64, Refusal)>) {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let (mut strict, gate) = sanitize(server, Bytes::new());
        for piece in text.as_bytes().chunks(piece) {
            tokio::io::AsyncWriteExt::write_all(&mut client, piece).await.unwrap();
        }
        drop(client);
        let mut read = String::new();
        let _ = strict.read_to_string(&mut read).await;
        let refused = gate.state().refused;
        (read, refused)
    }

    #[tokio::test]
    async fn good_requests_come_through_unchanged() {
        let text = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
                    POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
                    GET /c HTTP/1.1\r\nHost: a\r\n\r\n";
        for piece in [1, 7, 1000] {
            assert_eq!(through(text, piece).await, (text.to_owned(), None), "{piece}");
        }
    }

    #[tokio::test]
    async fn bytes_after_a_bad_request_are_never_forwarded() {
        let good = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let bad =
            "GET /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (read, refused) =
            through(&format!("{good}{bad}GET /smuggled HTTP/1.1\r\n\r\n"), 1000).await;
        assert_eq!(read, format!("{good}{}", std::str::from_utf8(STAND_IN).unwrap()));
        assert_eq!(refused.unwrap().0, 1);
    }

    #[tokio::test]
    async fn a_bad_chunk_breaks_the_request_off() {
        let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n";
        let (read, _) = through(text, 1000).await;
        assert!(!read.contains("0\r\n\r\n"), "{read}");
    }

    #[tokio::test]
    async fn bytes_that_have_to_be_escaped_in_an_address_are() {
        let text = "\r\nGET /\u{e9}?\"a\"=<b>&{c} HTTP/1.1\r\nHost: a\r\nX: \"<\u{e9}\r\n\r\n\
                    POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n<GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        let escaped = text.replacen("/\u{e9}?\"a\"=<b>&{c}", "/%C3%A9?%22a%22=%3Cb%3E&{c}", 1);
        for piece in [1, 7, 1000] {
            assert_eq!(through(text, piece).await, (escaped.clone(), None), "{piece}");
        }
    }

    #[tokio::test]
    async fn interim_responses_are_forwarded_before_the_final_one() {
        let (client, server) = tokio::io::duplex(5);
        let (mut strict, gate) = sanitize(server, Bytes::new());
        let (to, inbox) = tokio::sync::mpsc::channel(2);
        to.try_send(Bytes::from_static(b"HTTP/1.1 103 Early Hints\r\n\r\n")).unwrap();
        to.try_send(Bytes::from_static(b"HTTP/1.1 102 Processing\r\n\r\n")).unwrap();
        let answer = gate.answer(async { "HTTP/1.1 200 OK\r\n\r\n" }, inbox);
        // Like hyper: flush while the service works, and write when it has answered.
        let writing = async {
            tokio::pin!(answer);
            let answer = poll_fn(|cx| {
                let polled = answer.as_mut().poll(cx);
                if polled.is_pending() {
                    let _ = Pin::new(&mut strict).poll_flush(cx);
                }
                polled
            })
            .await;
            tokio::io::AsyncWriteExt::write_all(&mut strict, answer.as_bytes()).await.unwrap();
            drop(strict);
        };
        let mut client = client;
        let mut read = String::new();
        let reading = client.read_to_string(&mut read);
        let (_, read_bytes) = tokio::join!(writing, reading);
        read_bytes.unwrap();
        let all = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(read, all);
    }

    #[tokio::test]
    async fn after_connect_all_comes_through() {
        let text = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n\u{16}\u{3}\nanything";
        assert_eq!(through(text, 3).await, (text.to_owned(), None));
    }
}
