//! Ground-to-air direction of the protocol: the page, promises, and objects in pieces.

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::codec::{Missing, Reader, put_counted};
use super::head::{Head, fields, put_fields};
use super::{End, MAX_DATA_BYTES, MAX_HEAD_BYTES, PAGE, WireError};
use crate::MAX_OBJECTS;
use crate::address::{Address, MAX_URL_BYTES};
use crate::plan::Promise;
use crate::scan::Urgency;

const KIND_PROMISE: u8 = 1;
const KIND_HEAD: u8 = 2;
const KIND_DATA: u8 = 3;
const KIND_END: u8 = 4;

/// One frame of a page's stream. Objects have numbers; the page is [`super::PAGE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Announces an object. Its end follows even if the object does not come. Numbers start at 1.
    Promise(Promise),
    /// Header of a response.
    Head(u16, Box<Head>),
    /// A piece of the body: 1 to [`MAX_DATA_BYTES`].
    Data(u16, Bytes),
    /// End of a response.
    End(u16, End),
}

impl Frame {
    /// Appends the encoded frame. A [`Head`] always fits; data beyond [`MAX_DATA_BYTES`] must be
    /// split into several frames.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Promise(Promise { id, address, urgency }) => {
                out.push(KIND_PROMISE);
                out.extend(id.to_be_bytes());
                out.push(urgency.level());
                put_counted(out, address.as_str().as_bytes());
            }
            Self::Head(id, head) => {
                out.push(KIND_HEAD);
                out.extend(id.to_be_bytes());
                out.extend(head.status.as_u16().to_be_bytes());
                let fits = put_fields(&head.headers, out);
                debug_assert!(fits.is_some(), "Head::of() makes heads that fit");
            }
            Self::Data(id, bytes) => {
                debug_assert!((1..=MAX_DATA_BYTES).contains(&bytes.len()));
                out.push(KIND_DATA);
                out.extend(id.to_be_bytes());
                put_counted(out, bytes);
            }
            Self::End(id, end) => {
                out.push(KIND_END);
                out.extend(id.to_be_bytes());
                out.push(end.code());
            }
        }
    }
}

/// Parses unpacked bytes into frames, and checks their order: promises are numbered consecutively,
/// data follows its header, and nothing follows an end.
#[derive(Debug)]
pub struct FrameReader {
    bytes: BytesMut,
    stages: Vec<Stage>,
}

/// Progress of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Promised,
    Begun,
    Over,
}

/// A parsed frame with its length, or an error.
enum Read {
    Frame(Frame, usize),
    Wrong(WireError),
}

impl Default for FrameReader {
    fn default() -> Self {
        // The page needs no promise, because it was requested.
        Self { bytes: BytesMut::new(), stages: vec![Stage::Promised] }
    }
}

impl FrameReader {
    /// Appends received bytes. Call [`FrameReader::frame`] afterwards until it returns `None`. Then the
    /// buffer never holds more than one push and one frame.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame. After an error nothing more can be parsed.
    pub fn frame(&mut self) -> Result<Option<Frame>, WireError> {
        match read(&self.bytes) {
            Err(Missing) => Ok(None),
            Ok(Read::Wrong(error)) => Err(error),
            Ok(Read::Frame(frame, taken)) => {
                self.check(&frame)?;
                let _ = self.bytes.split_to(taken);
                Ok(Some(frame))
            }
        }
    }

    /// Returns `true` if the page and all its objects have ended.
    pub fn is_over(&self) -> bool {
        self.stages.iter().all(|stage| *stage == Stage::Over)
    }

    fn check(&mut self, frame: &Frame) -> Result<(), WireError> {
        let (id, expected, next) = match frame {
            Frame::Promise(promise) => {
                let is_next = usize::from(promise.id) == self.stages.len();
                if !is_next || self.stages.len() > MAX_OBJECTS {
                    return Err(WireError::Order);
                }
                self.stages.push(Stage::Promised);
                return Ok(());
            }
            Frame::Head(id, _) => (id, Stage::Promised, Stage::Begun),
            Frame::Data(id, _) => (id, Stage::Begun, Stage::Begun),
            Frame::End(id, End::Refused(_)) if *id != PAGE => return Err(WireError::Order),
            Frame::End(id, End::Declined | End::Refused(_)) => (id, Stage::Promised, Stage::Over),
            Frame::End(id, End::Complete | End::Aborted) => (id, Stage::Begun, Stage::Over),
        };
        let stage = self.stages.get_mut(usize::from(*id)).ok_or(WireError::Order)?;
        if *stage != expected {
            return Err(WireError::Order);
        }
        *stage = next;
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Result<Read, Missing> {
    let mut from = Reader::new(bytes);
    let (kind, id) = (from.u8()?, from.u16()?);
    let frame = match kind {
        KIND_PROMISE => promise(id, from.u8()?, &mut from)?,
        KIND_HEAD => return head(id, from, bytes),
        KIND_DATA => {
            let length = usize::from(from.u16()?);
            if !(1..=MAX_DATA_BYTES).contains(&length) {
                return Ok(Read::Wrong(WireError::Large));
            }
            Ok(Frame::Data(id, Bytes::copy_from_slice(from.bytes(length)?)))
        }
        KIND_END => End::of(from.u8()?).map(|end| Frame::End(id, end)).ok_or(WireError::Malformed),
        _ => Err(WireError::Malformed),
    };
    Ok(frame.map_or_else(Read::Wrong, |frame| Read::Frame(frame, from.taken())))
}

fn promise(
    id: u16,
    urgency: u8,
    from: &mut Reader<'_>,
) -> Result<Result<Frame, WireError>, Missing> {
    let length = usize::from(from.u16()?);
    if length > MAX_URL_BYTES {
        return Ok(Err(WireError::Large));
    }
    let text = from.bytes(length)?;
    let parsed = || {
        let text = std::str::from_utf8(text).ok()?;
        let address = Address::parse(text).ok().filter(|address| address.as_str() == text)?;
        Some(Frame::Promise(Promise { id, address, urgency: Urgency::new(urgency)? }))
    };
    Ok(parsed().ok_or(WireError::Malformed))
}

fn head(id: u16, mut from: Reader<'_>, bytes: &[u8]) -> Result<Read, Missing> {
    let status = from.u16()?;
    match fields(&mut from) {
        // Only 200 to 599 are final statuses.
        Ok(headers) => Ok(match StatusCode::from_u16(status) {
            Ok(status) if (200..600).contains(&status.as_u16()) => {
                Read::Frame(Frame::Head(id, Box::new(Head { status, headers })), from.taken())
            }
            _ => Read::Wrong(WireError::Malformed),
        }),
        // The rest may still arrive, unless the buffer already holds more than a header.
        Err(WireError::Malformed) if is_cut(bytes) => Err(Missing),
        Err(error) => Ok(Read::Wrong(error)),
    }
}

/// Returns `true` if the fields at the front of `bytes` are incomplete.
fn is_cut(bytes: &[u8]) -> bool {
    let mut from = Reader::new(bytes);
    let mut walk = || -> Result<(), Missing> {
        from.bytes(5)?; // kind, number, status
        for _ in 0..from.u8()? {
            let name = from.u8()?;
            from.bytes(name.into())?;
            from.counted()?;
        }
        Ok(())
    };
    bytes.len() <= MAX_HEAD_BYTES + 5 && walk().is_err()
}
