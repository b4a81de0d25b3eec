//! Headers of requests and responses.

use http::header::{
    CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::WireError;
use super::codec::Reader;

/// Maximum size of a header on the wire, bytes.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// Maximum number of fields of a header.
pub const MAX_HEAD_FIELDS: usize = 100;

/// Status and fields of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Status.
    pub status: StatusCode,
    /// End-to-end fields.
    pub headers: HeaderMap,
}

impl Head {
    /// Creates the header of a response without hop-by-hop fields (RFC 9110 section 7.6.1). Returns
    /// `None` if it exceeds the limits of the wire format.
    pub fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let head = Self { status, headers: end_to_end(headers) };
        let mut bytes = Vec::new();
        put_fields(&head.headers, &mut bytes)?;
        Some(head)
    }

    /// Size of the fields on the wire, and approximately in memory.
    pub fn bytes(&self) -> u64 {
        let fields = self.headers.iter();
        fields.map(|(name, value)| (name.as_str().len() + value.len() + 3) as u64).sum()
    }
}

/// Removes hop-by-hop fields, including those that `Connection` names.
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
    let end_to_end_fields = headers.iter().filter(|(name, _)| stays(name));
    end_to_end_fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Encodes the fields: their number in one byte, and for each the length of its name in one byte,
/// the name, the length of its value in two bytes, the value. If the limits are exceeded, returns
/// `None`, and `out` is unusable.
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

/// Parses the output of [`put_fields`]. Fields of the same name must follow each other.
pub(super) fn fields(from: &mut Reader<'_>) -> Result<HeaderMap, WireError> {
    let count = usize::from(from.u8()?);
    if count > MAX_HEAD_FIELDS {
        return Err(WireError::Large);
    }
    let start = from.taken();
    let mut headers = HeaderMap::with_capacity(count);
    let mut previous = None;
    for _ in 0..count {
        let length = from.u8()?;
        let name = from.bytes(length.into())?;
        let name = HeaderName::from_lowercase(name).map_err(|_| WireError::Malformed)?;
        let value = HeaderValue::from_bytes(from.counted()?).map_err(|_| WireError::Malformed)?;
        // The map groups fields by name. In any other order they would have two spellings.
        if previous.as_ref() != Some(&name) && headers.contains_key(&name) {
            return Err(WireError::Malformed);
        }
        headers.append(name.clone(), value);
        previous = Some(name);
    }
    // The number of fields is part of the size.
    if from.taken() - start >= MAX_HEAD_BYTES {
        return Err(WireError::Large);
    }
    if headers != end_to_end(&headers) {
        return Err(WireError::Malformed);
    }
    Ok(headers)
}
