//! One address of the manifest: its request, and the meaning of a failure.

use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Key, OriginError, PreloadError};
use http::{HeaderMap, HeaderValue, Request, header};

use super::manifest::key_of;
use crate::request_error::RequestError;
use crate::via::add_via;

/// `Accept-Encoding` of browsers over cleartext HTTP, and over TLS. A response that varies by it has to
/// fit their requests.
const ENCODINGS: &str = "gzip, deflate";
const ENCODINGS_TLS: &str = "gzip, deflate, br, zstd";

/// An address, and its request.
pub struct Item {
    pub address: Address,
    pub key: Key,
    pub request: Request<()>,
}

impl Item {
    /// Creates the item of `address`; `None` if no request can name it.
    pub fn new(address: &Address) -> Option<Self> {
        let key = key_of(address)?;
        let encodings = if address.is_secure() { ENCODINGS_TLS } else { ENCODINGS };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(address.authority()).ok()?);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encodings));
        let agent = concat!("bentpipe/", env!("CARGO_PKG_VERSION"), " (preload)");
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        // A cache between the ground and the origin must not answer in its place.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
        add_via(&mut headers, http::Version::HTTP_11);
        let mut request = Request::get(address.path_and_query()).body(()).ok()?;
        *request.headers_mut() = headers;
        Some(Self { address: address.clone(), key, request })
    }
}

/// Returns `true` if another attempt would change nothing.
pub fn is_lasting(error: &PreloadError) -> bool {
    match error {
        PreloadError::Failed(_) | PreloadError::Busy => false,
        PreloadError::Status { status, .. } => {
            !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429))
        }
        _ => true,
    }
}

/// The error as the command shows it.
pub fn shown(error: &PreloadError) -> String {
    match error {
        PreloadError::Failed(OriginError::Failed(error)) => match error.downcast_ref() {
            Some(error @ RequestError::Tls) => error.to_string(),
            _ => format!("the origin gave no answer: {error}"),
        },
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_failures_are_retried() {
        let status =
            |code: u16| PreloadError::Status { status: code.try_into().unwrap(), to: None };
        for passes in [PreloadError::Busy, status(503), status(429)] {
            assert!(!is_lasting(&passes), "{passes}");
        }
        for lasts in [PreloadError::Room, PreloadError::Budget, status(404), status(302)] {
            assert!(is_lasting(&lasts), "{lasts}");
        }
    }
}
