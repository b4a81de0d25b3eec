//! Air-to-ground direction of the protocol: a page's request, then cancellations.

use http::HeaderMap;

use super::codec::{Reader, put_counted};
use super::head::{fields, put_fields};
use super::{MAX_HEAD_BYTES, VERSION, VERSION_CONDITIONAL, WireError};
use crate::MAX_OBJECTS;
use crate::address::{Address, MAX_URL_BYTES};
use crate::digest::{self, CacheDigest};
use crate::eligible::{CONDITIONS, FORWARDED, FORWARDED_WITH_PAGES};

/// Maximum size of a request before compression.
pub const MAX_REQUEST_BYTES: usize = MAX_HEAD_BYTES + MAX_URL_BYTES + digest::MAX_BYTES + 16;

/// Common text of browsers' requests, which shortens the first request. It is part of the protocol:
/// another text needs another version.
const DICTIONARY: &[u8] = include_bytes!("dictionary.txt");

const LEVEL: i32 = 3;

const KIND_CANCEL: u8 = 2;

/// Request for a page: always GET, and without cookies or authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Address of the page.
    pub page: Address,
    /// Fields of the passenger's request that are in [`FORWARDED`] or [`FORWARDED_WITH_PAGES`], and the
    /// [`CONDITIONS`] of the air gateway's cache.
    pub headers: HeaderMap,
    /// Bytes of objects that may be pushed, according to the air gateway's budget.
    pub allowance_bytes: u32,
    /// Digest of the air gateway's cache.
    pub digest: CacheDigest,
}

/// Message from the air gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpMessage {
    /// Request for the page. Sent first, and once.
    Request(Box<Request>),
    /// The air gateway has this object, or does not want it any more.
    Cancel(u16),
}

/// Parser of the messages from the air gateway.
#[derive(Debug, Default)]
pub struct UpReader {
    bytes: Vec<u8>,
    is_asked: bool,
}

impl Request {
    /// Creates a request for `page` with those of the passenger's `headers` that may cross the
    /// link. Conditions cross too, so they must be the cache's own ([`crate::eligible::is_page`]).
    pub fn new(page: Address, headers: &HeaderMap, allowance: u64, digest: CacheDigest) -> Self {
        let carried =
            FORWARDED.into_iter().chain(FORWARDED_WITH_PAGES).chain(CONDITIONS).filter_map(
                |name| {
                    let value = headers.get(&name)?.clone();
                    Some((name, value))
                },
            );
        let allowance_bytes = u32::try_from(allowance).unwrap_or(u32::MAX);
        Self { page, headers: carried.collect(), allowance_bytes, digest }
    }

    /// Encodes the request: the version in one byte, which depends on the presence of a condition;
    /// the length of the rest in two bytes; and, compressed with the protocol's dictionary, the
    /// allowance in four bytes, the URL, the digest and the fields. Returns `None` if the fields
    /// are too large.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut plain = Vec::new();
        plain.extend(self.allowance_bytes.to_be_bytes());
        put_counted(&mut plain, self.page.as_str().as_bytes());
        put_counted(&mut plain, &self.digest.encode());
        put_fields(&self.headers, &mut plain)?;
        let mut packer = zstd::bulk::Compressor::with_dictionary(LEVEL, DICTIONARY).ok()?;
        // Both peers know the zstd parameters, so they are not sent.
        packer.include_contentsize(false).ok()?;
        packer.include_dictid(false).ok()?;
        let packed = packer.compress(&plain).ok()?;
        let mut out = vec![self.version()];
        out.extend(u16::try_from(packed.len()).ok()?.to_be_bytes());
        out.extend(packed);
        Some(out)
    }

    fn version(&self) -> u8 {
        let is_conditional = CONDITIONS.iter().any(|name| self.headers.contains_key(name));
        if is_conditional { VERSION_CONDITIONAL } else { VERSION }
    }

    fn decode(version: u8, packed: &[u8]) -> Result<Self, WireError> {
        let unpacker = zstd::bulk::Decompressor::with_dictionary(DICTIONARY);
        let mut unpacker = unpacker.map_err(|_| WireError::Packed)?;
        let plain =
            unpacker.decompress(packed, MAX_REQUEST_BYTES).map_err(|_| WireError::Packed)?;
        let request = Self::parse(&plain)?;
        // Each request has one encoding.
        if request.version() == version { Ok(request) } else { Err(WireError::Malformed) }
    }

    /// Parses the decompressed bytes.
    pub(crate) fn parse(plain: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader::new(plain);
        let allowance_bytes = from.u32()?;
        let text = std::str::from_utf8(from.counted()?).map_err(|_| WireError::Malformed)?;
        let page = Address::parse(text).map_err(|_| WireError::Malformed)?;
        let digest = CacheDigest::decode(from.counted()?).map_err(|_| WireError::Malformed)?;
        let headers = fields(&mut from)?;
        let is_carried = headers.keys().all(|name| {
            FORWARDED.contains(name)
                || FORWARDED_WITH_PAGES.contains(name)
                || CONDITIONS.contains(name)
        });
        if !from.is_empty() || page.as_str() != text || !is_carried {
            return Err(WireError::Malformed);
        }
        Ok(Self { page, headers, allowance_bytes, digest })
    }
}

impl UpMessage {
    /// Encodes a cancellation.
    pub fn cancel(id: u16) -> [u8; 3] {
        let [high, low] = id.to_be_bytes();
        [KIND_CANCEL, high, low]
    }
}

impl UpReader {
    /// Appends the messages that `bytes` complete to `out`. After an error nothing more can be
    /// parsed.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<UpMessage>) -> Result<(), WireError> {
        self.bytes.extend_from_slice(bytes);
        while let Some((up, taken)) = self.next()? {
            self.bytes.drain(..taken);
            self.is_asked = true;
            out.push(up);
        }
        Ok(())
    }

    fn next(&self) -> Result<Option<(UpMessage, usize)>, WireError> {
        let mut from = Reader::new(&self.bytes);
        let Ok(kind) = from.u8() else { return Ok(None) };
        let up = match (self.is_asked, kind) {
            (false, version @ (VERSION | VERSION_CONDITIONAL)) => {
                let Ok(packed) = from.counted() else { return Ok(None) };
                UpMessage::Request(Box::new(Request::decode(version, packed)?))
            }
            (false, version) => return Err(WireError::Version(version)),
            (true, KIND_CANCEL) => {
                let Ok(id) = from.u16() else { return Ok(None) };
                if !(1..=MAX_OBJECTS).contains(&usize::from(id)) {
                    return Err(WireError::Malformed);
                }
                UpMessage::Cancel(id)
            }
            (true, _) => return Err(WireError::Malformed),
        };
        Ok(Some((up, from.taken())))
    }
}
