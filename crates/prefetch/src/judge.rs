//! Which answers may travel to the cabin unasked: what any passenger without a name would be given.

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::scan::Urgency;

/// The request's fields that go across the link with a page's request, and on to the origins with
/// those for its objects. No cookie, no authorization, no condition.
pub const CARRIED: [HeaderName; 6] = [
    http::header::ACCEPT,
    http::header::ACCEPT_LANGUAGE,
    http::header::USER_AGENT,
    HeaderName::from_static("dnt"),
    HeaderName::from_static("sec-gpc"),
    HeaderName::from_static("save-data"),
];

/// Why an answer stays at the ground.
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
    /// It sets a cookie, so the next passenger should have another.
    #[error("it sets a cookie")]
    Cookie,
    /// It depends on something that only the passenger's own request will say.
    #[error("it varies with what the request for it will say")]
    Vary,
    /// It came encoded although plain bytes were asked for.
    #[error("it came encoded")]
    Encoded,
}

/// Whether this answer to a request for an object may go to the cabin before it is asked for; if so,
/// the urgency that its origin gives it (RFC 9218 section 5), where it does.
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

/// Whether a page may be searched for objects: it is plain, and its origin does not forbid it.
pub fn may_scan(status: StatusCode, headers: &HeaderMap) -> bool {
    status == StatusCode::OK && !has_directive(headers, &["no-transform"]) && !is_encoded(headers)
}

/// Whether it says `Content-Encoding` other than `identity`.
fn is_encoded(headers: &HeaderMap) -> bool {
    words(headers, &CONTENT_ENCODING).any(|word| word != "identity")
}

/// Whether one of `names` is among the directives of `Cache-Control` (RFC 9111 section 5.2). With an
/// argument (`private="set-cookie"`) it counts as if it had none: the safer reading.
fn has_directive(headers: &HeaderMap, names: &[&str]) -> bool {
    words(headers, &CACHE_CONTROL).any(|word| {
        let name = word.split('=').next().unwrap_or_default().trim_ascii();
        names.contains(&name)
    })
}

/// What requests for objects say as the page's did, so that it will not differ; the encoding is always
/// `identity`, which everybody takes.
fn is_known(name: &str) -> bool {
    let said = [http::header::ACCEPT_LANGUAGE, http::header::USER_AGENT];
    name == "accept-encoding" || said.iter().any(|carried| carried == name)
}

fn urgency(headers: &HeaderMap) -> Option<Urgency> {
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
    }
}
