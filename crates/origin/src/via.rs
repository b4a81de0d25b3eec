//! The gateway's name in messages that it forwards.

use http::header::{self, HeaderMap, HeaderValue};

/// Name of this proxy in Via and Proxy-Status.
pub const PSEUDONYM: &str = "bentpipe";

/// Adds the Via field of this gateway (RFC 9110 section 7.6.3).
pub fn add_via(headers: &mut HeaderMap, version: http::Version) {
    let protocol = match version {
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        _ => "1.1",
    };
    if let Ok(via) = HeaderValue::from_str(&format!("{protocol} {PSEUDONYM}")) {
        headers.append(header::VIA, via);
    }
}
