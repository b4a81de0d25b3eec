//! Decoding of a transfer coding for clients without transfer codings (RFC 9112 §7).
//!
//! Only HTTP/1.1 has them. HTTP/1.0 and HTTP/2 clients get the decoded body.

use std::io::{self, BufRead, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderValue, Response, Version};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};

use super::codings::{self, Coding};
use super::respond::{Body, BoxError};

/// Maximum number of decoded bytes in a frame. No more is decoded before the client takes them.
const MAX_FRAME_BYTES: usize = 32 * 1024;

/// Maximum number of encoded bytes that the decoder gets at once. It keeps what does not fit in its
/// output until more input comes, so all must fit.
const MAX_STEP_BYTES: usize = 15;

/// Maximum number of bytes that a step is decoded to. A code of two bits is at most 258 bytes, and
/// another code may have begun in the step before (RFC 1951, section 3.2.5).
const MAX_STEP_DECODED_BYTES: usize = (MAX_STEP_BYTES * 4 + 1) * 258;

/// Maximum number of encoded pieces without a decoded byte, before other tasks get their turn.
const MAX_ROUNDS: usize = 64;

/// Decodes `response` if a client that speaks `spoken` cannot. Also returns the Transfer-Encoding that
/// the client has to decode. Returns `None` if neither can.
pub fn for_client(
    response: Response<Body>,
    spoken: Version,
) -> Option<(Response<Body>, Option<HeaderValue>)> {
    let coded = codings::for_client(response.headers());
    if coded.is_none() || spoken == Version::HTTP_11 {
        return Some((response, coded));
    }
    let coding = codings::decodable(response.headers())?;
    Some((response.map(|body| inflate(body, coding)), None))
}

/// Returns `body` decoded from `coding`.
fn inflate(body: Body, coding: Coding) -> Body {
    let input = Input::default();
    let decoder = match coding {
        Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(input)),
        Coding::Deflate => Decoder::Deflate(ZlibDecoder::new(input)),
    };
    Inflated { body, decoder, is_empty: true }.boxed_unsync()
}

/// Encoded bytes that the decoder has not read yet.
#[derive(Default)]
struct Input {
    bytes: Bytes,
    has_ended: bool,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bytes.is_empty() && !self.has_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(&self.bytes[..self.bytes.len().min(MAX_STEP_BYTES)])
    }

    fn consume(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

enum Decoder {
    Gzip(MultiGzDecoder<Input>),
    Deflate(ZlibDecoder<Input>),
}

impl Decoder {
    fn input(&mut self) -> &mut Input {
        match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Deflate(decoder) => decoder.get_mut(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Deflate(decoder) => decoder.read(buffer),
        }
    }

    /// Decodes all input there is, as far as a frame takes it. An empty frame is the end of the body.
    /// Without enough input, the error is [`io::ErrorKind::WouldBlock`].
    fn next_frame(&mut self) -> io::Result<Bytes> {
        let (mut frame, mut filled) = ([0; MAX_FRAME_BYTES], 0);
        while filled + MAX_STEP_DECODED_BYTES <= MAX_FRAME_BYTES {
            match self.read(&mut frame[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if filled > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                // The bytes before damage are dropped: a decoder says only once that a checksum is
                // wrong.
                Err(error) => return Err(error),
            }
        }
        Ok(Bytes::copy_from_slice(&frame[..filled]))
    }
}

struct Inflated {
    body: Body,
    decoder: Decoder,
    /// No byte has been received: a response without a body is not a truncated one.
    is_empty: bool,
}

impl HttpBody for Inflated {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        for _ in 0..MAX_ROUNDS {
            if !this.is_empty {
                match this.decoder.next_frame() {
                    Ok(bytes) if bytes.is_empty() => return Poll::Ready(None),
                    Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                }
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None if this.is_empty => return Poll::Ready(None),
                None => this.decoder.input().has_ended = true,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // Trailers are dropped, as everywhere here.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        this.decoder.input().bytes = bytes;
                        this.is_empty = false;
                    }
                }
            }
        }
        // A body that decodes to nothing leaves other tasks their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use futures_util::{FutureExt, StreamExt};
    use http_body_util::StreamBody;
    use std::io::Write;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes `coded`, which arrives in pieces. Returns the text, or `None` if the body broke off.
    async fn decoded(coded: &[u8], piece: usize, coding: Coding) -> Option<Vec<u8>> {
        let pieces: Vec<_> = coded
            .chunks(piece)
            .map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
        let mut body = inflate(body, coding);
        let mut all = Vec::new();
        while let Some(frame) = body.frame().await {
            let bytes = frame.ok()?.into_data().unwrap();
            assert!(bytes.len() <= MAX_FRAME_BYTES);
            all.extend_from_slice(&bytes);
        }
        Some(all)
    }

    #[tokio::test]
    async fn bodies_are_decoded_however_they_arrive() {
        let plain: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_be_bytes()).collect();
        let twice = [gzip(b"one "), gzip(b"two")].concat();
        for piece in [1, 1_000, 1 << 20] {
            let (gzip, deflate) = (gzip(&plain), deflate(&plain));
            assert_eq!(decoded(&gzip, piece, Coding::Gzip).await.as_ref(), Some(&plain));
            assert_eq!(decoded(&deflate, piece, Coding::Deflate).await.as_ref(), Some(&plain));
            assert_eq!(decoded(&twice, piece, Coding::Gzip).await.unwrap(), b"one two");
        }
        for coding in [Coding::Gzip, Coding::Deflate] {
            assert_eq!(decoded(b"", 1, coding).await.unwrap(), b"", "a response to HEAD");
        }
    }

    #[tokio::test]
    async fn what_has_arrived_is_passed_on_before_more_comes() {
        let plain = [
            vec![0; 1_000_000],
            (0..100_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect(),
        ]
        .concat();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain).unwrap();
        encoder.flush().unwrap();
        let piece = Bytes::from(std::mem::take(encoder.get_mut()));
        let pieces = futures_util::stream::iter([Ok::<_, BoxError>(Frame::data(piece))]);
        let body = StreamBody::new(pieces.chain(futures_util::stream::pending())).boxed_unsync();
        let mut body = inflate(body, Coding::Gzip);
        let mut all = Vec::new();
        while all.len() < plain.len() {
            let frame = body.frame().now_or_never().expect("all bytes that can be decoded");
            all.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(all, plain);
        assert!(body.frame().now_or_never().is_none(), "the body goes on");
    }

    #[tokio::test]
    async fn a_truncated_or_damaged_body_breaks_off() {
        let whole = gzip(&[7; 50_000]);
        assert_eq!(decoded(&whole[..whole.len() - 1], 64, Coding::Gzip).await, None);
        for from_end in [1, 8] {
            // Length, checksum.
            let mut damaged = whole.clone();
            let at = damaged.len() - from_end;
            damaged[at] ^= 1;
            assert_eq!(decoded(&damaged, 64, Coding::Gzip).await, None);
            assert_eq!(decoded(&damaged, 1 << 20, Coding::Gzip).await, None);
        }
        assert_eq!(decoded(b"not compressed", 64, Coding::Gzip).await, None);
        let whole = deflate(&[7; 50_000]);
        assert_eq!(decoded(&whole[..whole.len() / 2], 64, Coding::Deflate).await, None);
        assert_eq!(decoded(&gzip(b"a"), 64, Coding::Deflate).await, None);
    }
}
