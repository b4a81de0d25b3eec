//! Heads of requests and answers: fields as `http` has them.

use http::header::{
    CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::WireError;
use super::codec::Reader;

/// The most bytes of one head on the wire.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// The most fields of one head.
pub const MAX_HEAD_FIELDS: usize = 100;

/// The first lines of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, without those that concern one connection alone.
    pub headers: HeaderMap,
}

impl Head {
    /// The head of an answer, less what does not outlive its connection (RFC 9110 section 7.6.1).
    /// `None` where it does not fit the wire, and so cannot be sent.
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let head = Self { status, headers: end_to_end(headers) };
        let mut bytes = Vec::new();
        put_fields(&head.headers, &mut bytes)?;
        Some(head)
    }

    /// Length of its fields, on the wire and about as long in memory.
    pub fn bytes(&self) -> u64 {
        let fields = self.headers.iter();
        fields.map(|(name, value)| (name.as_str().len() + value.len() + 3) as u64).sum()
    }
}

/// `headers` without those of one hop, those that `Connection` names among them.
pub(super) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect();
    let of_hop = [
        CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    let stays =
        |name: &HeaderName| !of_hop.contains(name) && !named.iter().any(|own| name.as_str() == own);
    let kept = headers.iter().filter(|(name, _)| stays(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// One byte for their number, and for each the length of its name in one byte, the name, the length
/// of its value in two, the value. `None`, and nothing sensible in `out`, where they are too many.
pub(super) fn put_fields(headers: &HeaderMap, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    if headers.len() > MAX_HEAD_FIELDS {
        return None;
    }
    out.push(headers.len() as u8);
    for (name, value) in headers {
        out.push(u8::try_from(name.as_str().len()).ok()?);
        out.extend(name.as_str().as_bytes());
        out.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
        out.extend(value.as_bytes());
    }
    (out.len() - start <= MAX_HEAD_BYTES).then_some(())
}

/// Reads what [`put_fields`] wrote.
pub(super) fn fields(from: &mut Reader<'_>) -> Result<HeaderMap, WireError> {
    let count = usize::from(from.u8()?);
    if count > MAX_HEAD_FIELDS {
        return Err(WireError::Large);
    }
    let start = from.taken();
    let mut headers = HeaderMap::with_capacity(count);
    for _ in 0..count {
        let length = from.u8()?;
        let name = from.bytes(length.into())?;
        let name = HeaderName::from_lowercase(name).map_err(|_| WireError::Malformed)?;
        let value = HeaderValue::from_bytes(from.counted()?).map_err(|_| WireError::Malformed)?;
        headers.append(name, value);
    }
    // The count of the fields is one of the bytes.
    if from.taken() - start >= MAX_HEAD_BYTES {
        return Err(WireError::Large);
    }
    if headers != end_to_end(&headers) {
        return Err(WireError::Malformed);
    }
    Ok(headers)
}
