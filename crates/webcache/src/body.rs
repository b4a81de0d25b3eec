//! Response bodies for clients.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::error::OriginError;
use crate::fill::FillReader;
use crate::origin::OriginBody;
use crate::store::PieceReader;

/// Body of a response.
pub struct Body(Kind);

enum Kind {
    Bytes(Bytes),
    /// An arriving body, with its remaining length if that is known.
    Filling(FillReader, Option<u64>),
    Passing(OriginBody),
    Stored(PieceReader),
}

impl Body {
    /// Creates a body from bytes in memory.
    pub fn bytes(bytes: Bytes) -> Self {
        Self(Kind::Bytes(bytes))
    }

    /// Creates an empty body.
    pub fn empty() -> Self {
        Self::bytes(Bytes::new())
    }

    /// Creates a body that is forwarded from an origin and not stored.
    pub fn passing(body: OriginBody) -> Self {
        Self(Kind::Passing(body))
    }

    pub(crate) fn stored(reader: PieceReader) -> Self {
        Self(Kind::Stored(reader))
    }

    pub(crate) fn filling(reader: FillReader, length: Option<u64>) -> Self {
        Self(Kind::Filling(reader, length))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        match &mut self.get_mut().0 {
            Kind::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Passing(body) => Pin::new(body).poll_frame(cx),
            Kind::Stored(reader) => Pin::new(reader).poll_next(cx).map_ok(Frame::data),
            Kind::Filling(reader, left) => Pin::new(reader).poll_next(cx).map_ok(|bytes| {
                if let Some(left) = left {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Frame::data(bytes)
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Bytes(bytes) => bytes.is_empty(),
            Kind::Passing(body) => body.is_end_stream(),
            Kind::Stored(reader) => reader.left() == 0,
            Kind::Filling(_, left) => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Passing(body) => body.size_hint(),
            Kind::Stored(reader) => SizeHint::with_exact(reader.left()),
            Kind::Filling(_, left) => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
