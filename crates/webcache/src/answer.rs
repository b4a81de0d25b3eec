//! Form of a stored response for one client: 200, 206, 304 or 416.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, DATE, ETAG,
    EXPIRES, HeaderName, LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::body::Body;
use crate::fill::Fill;
use crate::head::Head;
use crate::range::{RangeRequest, Slice};
use crate::store::Pieces;
use crate::validate;

/// Fields of a 304 (RFC 9110 §15.4.5), and Last-Modified for clients without an ETag.
const IN_304: [HeaderName; 7] =
    [CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, VARY, LAST_MODIFIED];

/// Source of the body.
pub enum Content<'a> {
    /// No body is needed. Contains its length.
    Unread(u64),
    /// In memory.
    Whole(Bytes),
    /// On disk.
    Pieces(Pieces),
    /// Arriving, with its length if that is known.
    Filling(&'a std::sync::Arc<Fill>, Option<u64>),
}

impl Content<'_> {
    fn length(&self) -> Option<u64> {
        match self {
            Self::Unread(length) => Some(*length),
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Pieces(pieces) => Some(pieces.length()),
            Self::Filling(_, length) => *length,
        }
    }

    /// Reads from byte `first` to byte `last` (inclusive). Returns `None` if these bytes are no
    /// longer in memory.
    fn read(self, first: u64, last: Option<u64>) -> Option<Body> {
        match self {
            Self::Unread(_) => Some(Body::empty()),
            Self::Whole(bytes) => {
                // Both are within the length, so they fit into `usize`.
                let end = last.map_or(bytes.len(), |last| last as usize + 1);
                Some(Body::bytes(bytes.slice(first as usize..end)))
            }
            Self::Pieces(pieces) => Some(Body::stored(pieces.read(first, last))),
            Self::Filling(fill, length) => {
                let left = last.map(|last| last - first + 1).or(length);
                Some(Body::filling(fill.read(first, last)?, left))
            }
        }
    }
}

/// Builds the response of `head` and `content` to a request with this method and these fields.
/// `age` becomes the Age field. Returns `None` if the content is no longer in memory.
pub fn answer(
    head: &Head,
    content: Content<'_>,
    (method, request): (&Method, &HeaderMap),
    age: Option<Duration>,
) -> Option<Response<Body>> {
    let plain = head.status == StatusCode::OK;
    if plain && validate::client_has_it(request, head) {
        return Some(not_modified(head, age));
    }
    let length = content.length();
    let is_ranged = plain && *method == Method::GET && validate::range_holds(request, head);
    let slice = match length.filter(|_| is_ranged) {
        Some(length) => RangeRequest::of(request).within(length),
        None => Slice::Whole,
    };
    let mut headers = head.headers.clone();
    headers.remove(CONTENT_LENGTH);
    let (status, body) = match slice {
        Slice::Whole if *method == Method::HEAD => (head.status, Body::empty()),
        Slice::Whole => (head.status, content.read(0, None)?),
        Slice::Part { first, last } => {
            headers.insert(CONTENT_RANGE, content_range(&format!("{first}-{last}"), length));
            (StatusCode::PARTIAL_CONTENT, content.read(first, Some(last))?)
        }
        Slice::Beyond => {
            headers.insert(CONTENT_RANGE, content_range("*", length));
            (StatusCode::RANGE_NOT_SATISFIABLE, Body::empty())
        }
    };
    let content_length = match slice {
        Slice::Whole => length,
        Slice::Part { first, last } => Some(last - first + 1),
        Slice::Beyond => Some(0),
    };
    // A 204 has no Content-Length (RFC 9110 §8.6).
    if let Some(content_length) = content_length.filter(|_| head.status != StatusCode::NO_CONTENT) {
        headers.insert(CONTENT_LENGTH, content_length.into());
    }
    if plain && length.is_some() {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    if let Some(age) = age {
        headers.insert(AGE, age.as_secs().into());
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(response)
}

fn not_modified(head: &Head, age: Option<Duration>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    for name in IN_304 {
        for value in head.headers.get_all(&name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    if let Some(age) = age {
        response.headers_mut().insert(AGE, age.as_secs().into());
    }
    response
}

fn content_range(range: &str, length: Option<u64>) -> HeaderValue {
    let length = length.map_or("*".to_owned(), |length| length.to_string());
    HeaderValue::from_str(&format!("bytes {range}/{length}")).expect("it is ASCII")
}
