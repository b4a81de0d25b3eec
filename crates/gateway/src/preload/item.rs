//! One address of the manifest: what is asked for it, and what a failure means.

use bentpipe_link::ResetCode;
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Key, NotAhead, STALLED};
use http::{HeaderMap, HeaderValue, Request, header};

use super::manifest::key_of;
use crate::air::http::head::add_via;
use crate::origin_tls::NO_TLS;

/// `Accept-Encoding` of browsers in clear, and over TLS: an answer that varies by it has to fit
/// their requests.
const ENCODINGS: &str = "gzip, deflate";
const ENCODINGS_TLS: &str = "gzip, deflate, br, zstd";

/// An address, and what is asked for it.
pub struct Item {
    /// Its place in the report.
    pub number: usize,
    pub address: Address,
    pub key: Key,
    pub request: Request<()>,
}

impl Item {
    /// Request for `address`; `None` if there can be none.
    pub fn new(number: usize, address: &Address) -> Option<Self> {
        let key = key_of(address)?;
        let encodings = if address.is_secure() { ENCODINGS_TLS } else { ENCODINGS };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(address.authority()).ok()?);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encodings));
        let agent = concat!("bentpipe/", env!("CARGO_PKG_VERSION"), " (preload)");
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        // Whatever stands between the ground and the origin shall not answer for it.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
        add_via(&mut headers, http::Version::HTTP_11);
        let mut request = Request::get(address.path_and_query()).body(()).ok()?;
        *request.headers_mut() = headers;
        Some(Self { number, address: address.clone(), key, request })
    }
}

/// Returns `true` if another attempt tonight would change nothing.
pub fn is_lasting(error: &NotAhead) -> bool {
    match error {
        NotAhead::Failed(_) | NotAhead::Busy => false,
        NotAhead::Status { status, .. } => {
            !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429))
        }
        _ => true,
    }
}

/// As the report says it.
pub fn shown(error: &NotAhead) -> String {
    match error {
        NotAhead::Failed(failure) if failure.code == STALLED => {
            "the origin stopped in the middle of its answer".to_owned()
        }
        NotAhead::Failed(failure) if failure.code == NO_TLS => {
            "there is no TLS with the origin, or its certificate is not to be trusted".to_owned()
        }
        NotAhead::Failed(failure) => {
            format!("the origin gave no answer: {}", ResetCode::from_u8(failure.code))
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again() {
        let status = |code: u16| NotAhead::Status { status: code.try_into().unwrap(), to: None };
        for passes in [NotAhead::Busy, status(503), status(429)] {
            assert!(!is_lasting(&passes), "{passes}");
        }
        for lasts in [NotAhead::Room, NotAhead::Budget, status(404), status(302)] {
            assert!(is_lasting(&lasts), "{lasts}");
        }
    }
}
