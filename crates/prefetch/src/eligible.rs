//! Requests that Split HTTP may answer: GETs without anything personal.
//!
//! A request crosses the link with the fields in [`FORWARDED`] and [`FORWARDED_WITH_PAGES`]. The fields in
//! [`DROPPED`] are dropped. A request with any other field is not eligible, because nobody here
//! knows its meaning to the origin. It then crosses the link as if Split HTTP did not exist.

use std::time::Duration;

use http::header::{self, HeaderMap};
use http::{HeaderName, Method};

use crate::address::Address;

/// Fields of a page's request that cross the link, and go to the origins of the page and of its
/// objects. Neither cookies nor authorization nor a client's conditions.
pub const FORWARDED: [HeaderName; 9] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::USER_AGENT,
    HeaderName::from_static("dnt"),
    HeaderName::from_static("sec-gpc"),
    HeaderName::from_static("save-data"),
    // Browsers send these to every origin over TLS.
    HeaderName::from_static("sec-ch-ua"),
    HeaderName::from_static("sec-ch-ua-mobile"),
    HeaderName::from_static("sec-ch-ua-platform"),
];

/// Fields that go with the page's request only. Requests for its objects have their own.
pub const FORWARDED_WITH_PAGES: [HeaderName; 3] =
    [header::REFERER, header::UPGRADE_INSECURE_REQUESTS, HeaderName::from_static("priority")];

/// Fields that are dropped: those of one connection, those that the ground gateway sets itself, and
/// those about the initiator in the browser.
pub const DROPPED: [HeaderName; 14] = [
    header::ACCEPT_ENCODING,
    header::CACHE_CONTROL, // used below
    header::CONNECTION,
    header::HOST,
    header::PRAGMA, // used below
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::VIA,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("sec-fetch-dest"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-user"),
];

/// Fields that make a GET conditional (RFC 9110 section 13.1). A client that sends them for an
/// object gets the full object. With a page's request they cross the link only if they are the air
/// gateway's cache's own.
pub const CONDITIONS: [HeaderName; 2] = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];

/// Owner of a request's condition, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The passenger's browser, about its own copy.
    OfClient,
    /// The air gateway's cache, about its own copy. The response is for the cache.
    OfCache,
}

/// Returns `true` for a page that the ground gateway may fetch: a GET of a whole document without
/// personal fields, without conditions except the cache's own, and that does not demand a newer
/// copy than any cached one.
pub fn is_page(method: &Method, headers: &HeaderMap, condition: Condition) -> bool {
    let may_ask = |name: &HeaderName| condition == Condition::OfCache && CONDITIONS.contains(name);
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let contains = |name, word| field(name).map(|value| value.to_ascii_lowercase().contains(word));
    method == Method::GET
        && contains("accept", "text/html") == Some(true)
        && contains("sec-fetch-dest", "document") != Some(false)
        && max_age(headers).is_some()
        && headers.keys().all(|name| is_known(name) || may_ask(name))
}

/// Returns `true` if a request for `address` may be answered with a response for any client. A
/// request with a cookie gets only what a shared cache may serve to such requests
/// ([`crate::pushable::is_for_any_cookie`]).
pub fn is_object(method: &Method, address: &Address, headers: &HeaderMap) -> bool {
    let is_fine = |name: &HeaderName| {
        is_known(name)
            || CONDITIONS.contains(name)
            || *name == header::COOKIE
            || *name == header::ORIGIN && is_own_origin(address, headers)
    };
    method == Method::GET && max_age(headers).is_some() && headers.keys().all(is_fine)
}

/// Maximum age of a response to a request with these fields (RFC 9111 section 5.2.1). `None` if it
/// must come from the origin.
pub fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let mut age = Duration::MAX;
    for value in headers.get_all(header::CACHE_CONTROL) {
        for directive in value.to_str().ok()?.split(',') {
            let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
            match &name.trim_ascii().to_ascii_lowercase()[..] {
                "no-cache" | "no-store" | "min-fresh" => return None,
                "max-age" => age = age.min(Duration::from_secs(argument.trim().parse().ok()?)),
                _ => {}
            }
        }
    }
    // `Pragma` counts if there is no Cache-Control (RFC 9111 section 5.4).
    let is_http_1_0 = headers.contains_key(header::PRAGMA) && age == Duration::MAX;
    (!is_http_1_0).then_some(age)
}

fn is_known(name: &HeaderName) -> bool {
    FORWARDED.contains(name) || FORWARDED_WITH_PAGES.contains(name) || DROPPED.contains(name)
}

/// Returns `true` if Origin names the origin of `address`. Some browsers send it to that origin
/// itself.
fn is_own_origin(address: &Address, headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok());
    let origin = origin.and_then(|origin| Address::parse(origin).ok());
    origin.is_some_and(|origin| origin.origin() == address.origin())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    /// Fields that Chromium sends over TLS.
    const CHROMIUM: [(&str, &str); 14] = [
        ("host", "site.test"),
        ("connection", "keep-alive"),
        ("sec-ch-ua", "\"Chromium\";v=\"156\""),
        ("sec-ch-ua-mobile", "?0"),
        ("sec-ch-ua-platform", "\"Linux\""),
        ("upgrade-insecure-requests", "1"),
        ("user-agent", "Mozilla/5.0"),
        ("accept", "text/html,*/*;q=0.8"),
        ("sec-fetch-site", "none"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("accept-language", "en-US,en;q=0.9"),
        ("priority", "u=0, i"),
    ];

    fn page_with(more: &[(&'static str, &'static str)]) -> bool {
        let mut all = headers(&CHROMIUM);
        for (name, value) in headers(more) {
            all.insert(name.expect("each is named once"), value);
        }
        is_page(&Method::GET, &all, Condition::OfClient)
    }

    fn object_with(more: &[(&'static str, &'static str)]) -> bool {
        let address = Address::parse("https://site.test/f.woff2").unwrap();
        is_object(&Method::GET, &address, &headers(more))
    }

    #[test]
    fn anonymous_page_requests_are_eligible() {
        assert!(page_with(&[]));
        assert!(page_with(&[("referer", "https://search.test/"), ("cache-control", "max-age=0")]));
        let all = headers(&CHROMIUM);
        let is_it = |method, all| is_page(&method, all, Condition::OfClient);
        assert!(!is_it(Method::POST, &all) && !is_it(Method::HEAD, &all));
        assert!(!is_it(Method::GET, &headers(&[("accept", "*/*")])));
    }

    #[test]
    fn pages_with_the_caches_condition_are_eligible() {
        let mut all = headers(&CHROMIUM);
        all.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"x\""));
        all.insert(header::IF_MODIFIED_SINCE, HeaderValue::from_static("yesterday"));
        assert!(is_page(&Method::GET, &all, Condition::OfCache));
        assert!(!is_page(&Method::GET, &all, Condition::OfClient));
        all.insert(header::RANGE, HeaderValue::from_static("bytes=0-"));
        assert!(!is_page(&Method::GET, &all, Condition::OfCache));
    }

    #[test]
    fn requests_with_other_fields_are_not_eligible() {
        for other in [
            ("cookie", "a=b"),
            ("authorization", "Basic x"),
            ("range", "bytes=0-"),
            ("if-none-match", "\"x\""),
            ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("sec-fetch-dest", "image"),
            ("cache-control", "no-cache"),
            ("cache-control", "max-age=x"),
            ("pragma", "no-cache"),
            ("x-requested-with", "XMLHttpRequest"),
            ("sec-purpose", "prefetch"),
            ("sec-ch-ua-arch", "arm"),
            ("rsc", "1"),
        ] {
            assert!(!page_with(&[other]), "{other:?}");
        }
    }

    #[test]
    fn object_requests_may_have_conditions_and_their_own_origin() {
        assert!(object_with(&[]) && object_with(&[("cookie", "a=b")]));
        assert!(object_with(&[("if-none-match", "\"x\""), ("origin", "https://site.test")]));
        for other in [
            ("origin", "https://other.test"),
            ("origin", "null"),
            ("authorization", "Basic x"),
            ("range", "bytes=0-"),
            ("cache-control", "max-age=60, No-Cache"),
            ("pragma", "no-cache"),
            ("x-api-key", "1"),
        ] {
            assert!(!object_with(&[other]), "{other:?}");
        }
    }

    #[test]
    fn max_age_is_parsed() {
        let age = |value| max_age(&headers(&[("cache-control", value)]));
        assert_eq!(age("max-stale"), Some(Duration::MAX));
        assert_eq!(age("Max-Age=5, max-age=7"), Some(Duration::from_secs(5)));
        assert_eq!(age("min-fresh=3"), None);
        let both = headers(&[("pragma", "no-cache"), ("cache-control", "max-age=3")]);
        assert_eq!(max_age(&both), Some(Duration::from_secs(3)));
    }
}
