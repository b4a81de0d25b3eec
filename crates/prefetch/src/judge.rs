//! Answers that may travel to the cabin unasked: those that any passenger without a name would be
//! given.

use std::time::Duration;

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, SET_COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::scan::Urgency;

/// Reason for which an answer stays at the ground.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Withheld {
    /// Anything but 200: errors and redirects are for those who ask.
    #[error("its status is not 200")]
    Status,
    /// `Cache-Control: private` or `no-store`: it is for one person, or for nobody to keep.
    #[error("it is private, or not to be stored")]
    Private,
    /// `Cache-Control: no-transform`: its origin wants nothing done with it.
    #[error("its origin wants it left as it is")]
    NoTransform,
    /// It sets a cookie, so the next passenger should have another; or its page does, and its origin does not
    /// say for how long anybody may have it.
    #[error("it sets a cookie")]
    Cookie,
    /// It depends on something that only the passenger's own request will say.
    #[error("it varies with what the request for it will say")]
    Vary,
    /// It came encoded although plain bytes were asked for.
    #[error("it came encoded")]
    Encoded,
}

/// Decides if this answer to a request for an object may go to the cabin before it is requested.
/// Returns the urgency that its origin gives it (RFC 9218 section 5), if any.
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

/// Returns `true` if a page may be searched for objects: it is plain, and its origin does not
/// forbid it.
pub fn may_scan(status: StatusCode, headers: &HeaderMap) -> bool {
    status == StatusCode::OK && !has_directive(headers, &["no-transform"]) && !is_encoded(headers)
}

/// True if the answer sets a cookie, which the requests that follow it will bear.
pub fn sets_cookie(headers: &HeaderMap) -> bool {
    headers.contains_key(SET_COOKIE)
}

/// Returns whether an answer that came just now, to a request without a cookie, may be given to a request with one: its
/// origin says for how long anybody may have it. A shared cache may do so too (RFC 9111 section 4). The answer
/// must be one that [`may_push`] lets go: public, without `Set-Cookie`, and the same whatever the cookie.
pub fn is_for_any_cookie(headers: &HeaderMap) -> bool {
    !fresh_for(headers).is_zero()
}

/// The longest document that is searched.
pub const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// The longest answer without HTML that counts as a page.
pub const MAX_PLAIN_BYTES: u64 = 1 << 20;

/// Returns `true` if the answer to a page's request is a download, as far as its head says: longer
/// than a page, or not HTML and without a length. Both halves pass it on as it arrives, because a
/// second request could use up what an origin gives once.
pub fn is_download(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_html = is_type(headers, "text/html");
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        // Its length is another answer's (RFC 9110 section 8.6).
        _ if status == StatusCode::NOT_MODIFIED => false,
        Some(bytes) if is_html => bytes > MAX_DOCUMENT_BYTES,
        Some(bytes) => bytes > MAX_PLAIN_BYTES,
        None => status == StatusCode::OK && !is_html,
    }
}

/// Returns `true` if the answer has this media type, whatever its parameters.
pub fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(wanted)
}

/// True if the answer says that it is a script in JavaScript, by any of its media types.
pub fn is_script(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    ["text/", "application/"].into_iter().any(|begin| {
        let name = essence.strip_prefix(begin).map(|name| name.trim_start_matches("x-"));
        matches!(name, Some("javascript" | "ecmascript"))
    })
}

/// For how long an answer that came just now may be given again and again: as long as its origin says
/// that it is fresh (RFC 9111 section 4.2.1), less the age that it came with. Zero where the origin does
/// not say so in `Cache-Control`, or wants to be asked each time.
pub fn fresh_for(headers: &HeaderMap) -> Duration {
    if has_directive(headers, &["no-cache", "no-store", "private"]) {
        return Duration::ZERO;
    }
    let told = seconds(headers, "s-maxage").or_else(|| seconds(headers, "max-age"));
    told.unwrap_or_default().saturating_sub(age(headers))
}

/// The greatest age there is (RFC 9111 section 1.2.2).
const MOST_AGE_S: u64 = 1 << 31;

/// The age that an answer came with: caches before us say so.
pub fn age(headers: &HeaderMap) -> Duration {
    let told = headers.get(AGE).and_then(|value| value.to_str().ok()?.trim_ascii().parse().ok());
    Duration::from_secs(told.unwrap_or(0).min(MOST_AGE_S))
}

/// The least that a directive called `name` says; nothing it can mean counts as zero.
fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    let told = words(headers, &CACHE_CONTROL).filter_map(|word| {
        let (directive, argument) = word.split_once('=')?;
        let is_it = directive.trim_ascii() == name;
        is_it.then(|| argument.trim_ascii().trim_matches('"').parse().unwrap_or(0))
    });
    told.min().map(Duration::from_secs)
}

/// Returns `true` if it has a `Content-Encoding` other than `identity`.
fn is_encoded(headers: &HeaderMap) -> bool {
    words(headers, &CONTENT_ENCODING).any(|word| word != "identity")
}

/// Returns `true` if one of `names` is among the directives of `Cache-Control` (RFC 9111 section
/// 5.2). With an argument (`private="set-cookie"`) it counts as if it had none: the safer reading.
fn has_directive(headers: &HeaderMap, names: &[&str]) -> bool {
    words(headers, &CACHE_CONTROL).any(|word| {
        let name = word.split('=').next().unwrap_or_default().trim_ascii();
        names.contains(&name)
    })
}

/// Fields in which requests for objects equal the page's, so that the answer will not differ. The
/// encoding is always `identity`, which everybody accepts.
fn is_known(name: &str) -> bool {
    let said = [http::header::ACCEPT_LANGUAGE, http::header::USER_AGENT];
    name == "accept-encoding" || said.iter().any(|carried| carried == name)
}

/// Urgency in `Priority` (RFC 9218 section 5) of a request or an answer.
pub fn urgency(headers: &HeaderMap) -> Option<Urgency> {
    let priority = HeaderName::from_static("priority");
    words(headers, &priority).find_map(|word| {
        let level = word.strip_prefix("u=")?.split(';').next()?.trim_ascii();
        Urgency::new(level.parse().ok()?)
    })
}

/// The comma-separated words of all fields called `name`, in lower case; a field that is no text is a
/// word nobody knows.
fn words<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = String> + 'a {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("\u{fffd}").split(','))
        .map(|word| word.trim_ascii().to_ascii_lowercase())
        .filter(|word| !word.is_empty())
}

/// The length that an answer says its body has.
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
    fn what_anybody_would_get_may_go() {
        assert_eq!(judged(&[]), Ok(None));
        assert_eq!(judged(&[("cache-control", "public, max-age=60")]), Ok(None));
        assert_eq!(judged(&[("vary", "Accept-Encoding, User-Agent")]), Ok(None));
        assert_eq!(judged(&[("content-encoding", "identity")]), Ok(None));
        assert_eq!(judged(&[("priority", "u=1, i")]), Ok(Some(1)));
        assert_eq!(judged(&[("priority", "i,u=9")]), Ok(None));
    }

    #[test]
    fn no_age_is_too_great_to_be_added_to() {
        let headers = |age: &str| HeaderMap::from_iter([(AGE, age.parse().unwrap())]);
        assert_eq!(age(&headers("60")), Duration::from_secs(60));
        assert_eq!(age(&headers("18446744073709551615")), Duration::from_secs(MOST_AGE_S));
    }

    #[test]
    fn all_else_stays() {
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
    fn how_long_an_answer_is_fresh_is_its_origins_word() {
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
