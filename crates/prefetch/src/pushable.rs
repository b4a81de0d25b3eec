//! Responses that may be pushed: those that any anonymous client would get.

use std::time::Duration;

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::scan::Urgency;

/// Reason why a response is not pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// The status is not 200. Errors and redirects are for clients that ask.
    #[error("its status is not 200")]
    Status,
    /// `Cache-Control` has `private` or `no-store`.
    #[error("it is private, or not to be stored")]
    Private,
    /// `Cache-Control` has `no-transform`.
    #[error("its origin wants it left as it is")]
    NoTransform,
    /// The response sets a cookie, so each passenger should get another one. Or its page sets one,
    /// and the origin does not state a freshness lifetime for all clients.
    #[error("it sets a cookie")]
    Cookie,
    /// The response varies by a field that only the passenger's own request will have.
    #[error("it varies with what the request for it will say")]
    Vary,
    /// The response is encoded although plain bytes were requested.
    #[error("it came encoded")]
    Encoded,
}

/// Decides if the response to a request for an object may be pushed. Returns the urgency that its
/// origin gives it (RFC 9218 section 5), if any.
pub fn may_push(status: StatusCode, headers: &HeaderMap) -> Result<Option<Urgency>, Withheld> {
    if status != StatusCode::OK {
        return Err(Withheld::Status);
    }
    if has_directive(headers, &["private", "no-store"]) {
        return Err(Withheld::Private);
    }
    if has_directive(headers, &["no-transform"]) {
        return Err(Withheld::NoTransform);
    }
    if headers.contains_key(SET_COOKIE) {
        return Err(Withheld::Cookie);
    }
    if !words(headers, &VARY).all(|word| is_known(&word)) {
        return Err(Withheld::Vary);
    }
    if is_encoded(headers) {
        return Err(Withheld::Encoded);
    }
    Ok(urgency(headers))
}

/// Returns `true` if a page may be scanned for objects: it is not encoded, and its origin allows
/// it.
pub fn may_scan(status: StatusCode, headers: &HeaderMap) -> bool {
    status == StatusCode::OK && !has_directive(headers, &["no-transform"]) && !is_encoded(headers)
}

/// Returns `true` if the response sets a cookie, which later requests will carry.
pub fn sets_cookie(headers: &HeaderMap) -> bool {
    headers.contains_key(SET_COOKIE)
}

/// Returns `true` if a response that has just arrived may be served to requests with a cookie,
/// although it was requested without one. Its origin must state a freshness lifetime, as for shared
/// caches (RFC 9111 section 4). The response must also pass [`may_push`]: public, without
/// `Set-Cookie`, and independent of the cookie.
pub fn is_for_any_cookie(headers: &HeaderMap) -> bool {
    !fresh_for(headers).is_zero()
}

/// Maximum size of a document that is scanned.
pub const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// Maximum size of a response other than HTML that counts as a page.
pub const MAX_PLAIN_BYTES: u64 = 1 << 20;

/// Returns `true` if the response to a page request is a download according to its header: longer
/// than a page, or not HTML and without a length. Both gateways then forward it as it arrives,
/// because a second request might find nothing.
pub fn is_download(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_html = is_type(headers, "text/html");
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        // The length is that of another response (RFC 9110 section 8.6).
        _ if status == StatusCode::NOT_MODIFIED => false,
        Some(bytes) if is_html => bytes > MAX_DOCUMENT_BYTES,
        Some(bytes) => bytes > MAX_PLAIN_BYTES,
        None => status == StatusCode::OK && !is_html,
    }
}

/// Returns `true` if the response has this media type, ignoring parameters.
pub fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(wanted)
}

/// Returns `true` if the response has one of JavaScript's media types.
pub fn is_script(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    ["text/", "application/"].into_iter().any(|begin| {
        let name = essence.strip_prefix(begin).map(|name| name.trim_start_matches("x-"));
        matches!(name, Some("javascript" | "ecmascript"))
    })
}

/// Time for which a response that has just arrived may be reused: the freshness lifetime in
/// `Cache-Control` (RFC 9111 section 4.2.1), minus the response's age. Zero if the origin states
/// none, or wants validation each time.
pub fn fresh_for(headers: &HeaderMap) -> Duration {
    if has_directive(headers, &["no-cache", "no-store", "private"]) {
        return Duration::ZERO;
    }
    let lifetime = seconds(headers, "s-maxage").or_else(|| seconds(headers, "max-age"));
    lifetime.unwrap_or_default().saturating_sub(age(headers))
}

/// Maximum age in seconds (RFC 9111 section 1.2.2).
const MAX_AGE_S: u64 = 1 << 31;

/// Age of a response that came from a cache.
pub fn age(headers: &HeaderMap) -> Duration {
    // The first of several values counts. An invalid one is ignored (§5.1).
    let first = headers.get(AGE).and_then(|value| value.to_str().ok()?.split(',').next());
    let digits = first.map(str::trim_ascii).filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
    let seconds = match digits {
        None | Some("") => 0,
        Some(digits) => digits.parse().map_or(MAX_AGE_S, |seconds: u64| seconds.min(MAX_AGE_S)),
    };
    Duration::from_secs(seconds)
}

/// Smallest value of the directive `name`. An invalid value counts as zero.
fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    let values = words(headers, &CACHE_CONTROL).filter_map(|word| {
        let (directive, argument) = word.split_once('=')?;
        let is_it = directive.trim_ascii() == name;
        is_it.then(|| argument.trim_ascii().trim_matches('"').parse().unwrap_or(0))
    });
    values.min().map(Duration::from_secs)
}

/// Returns `true` if `Content-Encoding` is anything but `identity`.
fn is_encoded(headers: &HeaderMap) -> bool {
    words(headers, &CONTENT_ENCODING).any(|word| word != "identity")
}

/// Returns `true` if `Cache-Control` has one of the directives `names` (RFC 9111 section 5.2). A
/// directive with an argument (`private="set-cookie"`) counts like one without, which is the safer
/// reading.
fn has_directive(headers: &HeaderMap, names: &[&str]) -> bool {
    words(headers, &CACHE_CONTROL).any(|word| {
        let name = word.split('=').next().unwrap_or_default().trim_ascii();
        names.contains(&name)
    })
}

/// Fields that are equal in the requests for the page and for its objects, so that the response does
/// not differ. The encoding is always `identity`, which all clients accept.
fn is_known(name: &str) -> bool {
    let names = [http::header::ACCEPT_LANGUAGE, http::header::USER_AGENT];
    name == "accept-encoding" || names.iter().any(|carried| carried == name)
}

/// Urgency in `Priority` (RFC 9218 section 5) of a request or a response.
pub fn urgency(headers: &HeaderMap) -> Option<Urgency> {
    let priority = HeaderName::from_static("priority");
    words(headers, &priority).find_map(|word| {
        let level = word.strip_prefix("u=")?.split(';').next()?.trim_ascii();
        Urgency::new(level.parse().ok()?)
    })
}

/// Comma-separated words of all fields called `name`, in lower case. A field that is not text becomes
/// an unknown word.
fn words<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = String> + 'a {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("\u{fffd}").split(','))
        .map(|word| word.trim_ascii().to_ascii_lowercase())
        .filter(|word| !word.is_empty())
}

/// Content-Length, if it is a number.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[(&'static str, &'static str)]) -> Result<Option<u8>, Withheld> {
        let pairs = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        may_push(StatusCode::OK, &pairs.collect()).map(|urgency| urgency.map(Urgency::level))
    }

    #[test]
    fn public_responses_are_pushable() {
        assert_eq!(judged(&[]), Ok(None));
        assert_eq!(judged(&[("cache-control", "public, max-age=60")]), Ok(None));
        assert_eq!(judged(&[("vary", "Accept-Encoding, User-Agent")]), Ok(None));
        assert_eq!(judged(&[("content-encoding", "identity")]), Ok(None));
        assert_eq!(judged(&[("priority", "u=1, i")]), Ok(Some(1)));
        assert_eq!(judged(&[("priority", "i,u=9")]), Ok(None));
    }

    #[test]
    fn age_is_bounded() {
        let headers = |age: &str| HeaderMap::from_iter([(AGE, age.parse().unwrap())]);
        assert_eq!(age(&headers("60")), Duration::from_secs(60));
        assert_eq!(age(&headers("60, 70")), Duration::from_secs(60));
        for large in ["18446744073709551615", "9999999999999999999999999"] {
            assert_eq!(age(&headers(large)), Duration::from_secs(MAX_AGE_S), "{large}");
        }
        assert_eq!(age(&headers("-1")), Duration::ZERO);
    }

    #[test]
    fn other_responses_are_not_pushable() {
        assert_eq!(judged(&[("cache-control", "max-age=1,PRIVATE")]), Err(Withheld::Private));
        assert_eq!(judged(&[("cache-control", "private=\"x\"")]), Err(Withheld::Private));
        assert_eq!(judged(&[("cache-control", "No-Store")]), Err(Withheld::Private));
        assert_eq!(judged(&[("cache-control", "no-transform")]), Err(Withheld::NoTransform));
        assert_eq!(judged(&[("set-cookie", "a=b")]), Err(Withheld::Cookie));
        assert_eq!(judged(&[("vary", "*")]), Err(Withheld::Vary));
        assert_eq!(judged(&[("vary", "accept-encoding, Cookie")]), Err(Withheld::Vary));
        assert_eq!(judged(&[("vary", "Origin")]), Err(Withheld::Vary));
        assert_eq!(judged(&[("content-encoding", "gzip")]), Err(Withheld::Encoded));
        let none = HeaderMap::new();
        assert_eq!(may_push(StatusCode::NOT_FOUND, &none), Err(Withheld::Status));
        assert_eq!(may_push(StatusCode::PARTIAL_CONTENT, &none), Err(Withheld::Status));
        assert!(!may_scan(StatusCode::FOUND, &none) && may_scan(StatusCode::OK, &none));
        let cookie = HeaderMap::from_iter([(SET_COOKIE, http::HeaderValue::from_static("a=b"))]);
        assert!(may_scan(StatusCode::OK, &cookie) && sets_cookie(&cookie));
    }

    #[test]
    fn freshness_is_the_origins_statement() {
        let fresh = |lines: &[(&'static str, &'static str)]| {
            let pairs = lines.iter().map(|(name, value)| {
                (HeaderName::from_static(name), http::HeaderValue::from_static(value))
            });
            fresh_for(&pairs.collect()).as_secs()
        };
        assert_eq!(fresh(&[]), 0);
        assert_eq!(fresh(&[("cache-control", "public, max-age=60")]), 60);
        assert_eq!(fresh(&[("cache-control", "max-age=60, S-MaxAge=\"9\"")]), 9);
        assert_eq!(fresh(&[("cache-control", "max-age=60"), ("age", "45")]), 15);
        assert_eq!(fresh(&[("cache-control", "max-age=60"), ("age", "90")]), 0);
        assert_eq!(fresh(&[("cache-control", "max-age=60, no-cache")]), 0);
        assert_eq!(fresh(&[("cache-control", "max-age=60, max-age=-1")]), 0);
        assert_eq!(fresh(&[("cache-control", "max-age")]), 0);
    }
}
