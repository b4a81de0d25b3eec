//! Requests that Split HTTP may answer: GETs that contain nothing but what anybody's would.
//!
//! A request crosses with the fields in [`CARRIED`] and [`OF_PAGES`]. What else it says is either known
//! to be harmless, and is left behind, or nobody here knows what it means to the origin: then the
//! request goes its own way, as if there were no Split HTTP.

use std::time::Duration;

use http::header::{self, HeaderMap};
use http::{HeaderName, Method};

use crate::address::Address;

/// The request's fields that go across the link with a page's request, and on to the origins with
/// it and with those for its objects. No cookie, no authorization, no client's condition.
pub const CARRIED: [HeaderName; 9] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::USER_AGENT,
    HeaderName::from_static("dnt"),
    HeaderName::from_static("sec-gpc"),
    HeaderName::from_static("save-data"),
    // What browsers say of themselves to every origin over TLS.
    HeaderName::from_static("sec-ch-ua"),
    HeaderName::from_static("sec-ch-ua-mobile"),
    HeaderName::from_static("sec-ch-ua-platform"),
];

/// Those that go with the request for the page alone; requests for its objects have their own.
pub const OF_PAGES: [HeaderName; 3] =
    [header::REFERER, header::UPGRADE_INSECURE_REQUESTS, HeaderName::from_static("priority")];

/// Fields that are left behind: those of one connection, those that the ground says itself, and those
/// that say where in a browser a request came from.
pub const HARMLESS: [HeaderName; 14] = [
    header::ACCEPT_ENCODING,
    header::CACHE_CONTROL, // heeded below
    header::CONNECTION,
    header::HOST,
    header::PRAGMA, // heeded below
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

/// Fields that make a GET conditional (RFC 9110 section 13.1). A client's objects are answered in
/// full all the same. With a page's request they cross only if our own cache checks its copy.
pub const CONDITIONS: [HeaderName; 2] = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];

/// Origin of a request's condition, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The passenger's browser, about what it has.
    OfClient,
    /// The cache on board, about what it has: what is answered is for the cache.
    OfCache,
}

/// Returns `true` for a page that the ground may fetch: a GET of a whole document by anybody,
/// without conditions except the cache's own, and not restricted to what is newer than any copy.
pub fn is_page(method: &Method, headers: &HeaderMap, condition: Condition) -> bool {
    let may_ask = |name: &HeaderName| condition == Condition::OfCache && CONDITIONS.contains(name);
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let says = |name, word| said(name).map(|value| value.to_ascii_lowercase().contains(word));
    method == Method::GET
        && says("accept", "text/html") == Some(true)
        && says("sec-fetch-dest", "document") != Some(false)
        && wanted_age(headers).is_some()
        && headers.keys().all(|name| is_known(name) || may_ask(name))
}

/// Returns `true` if a request for `address` may be answered with what anybody would be given. If
/// it shows a cookie, only with what a shared cache may give to such requests
/// ([`crate::judge::is_for_any_cookie`]).
pub fn is_object(method: &Method, address: &Address, headers: &HeaderMap) -> bool {
    let is_fine = |name: &HeaderName| {
        is_known(name)
            || CONDITIONS.contains(name)
            || *name == header::COOKIE
            || *name == header::ORIGIN && is_own_origin(address, headers)
    };
    method == Method::GET && wanted_age(headers).is_some() && headers.keys().all(is_fine)
}

/// Maximum age of an answer for a request with these fields (RFC 9111 section 5.2.1): `None` if it
/// must come from the origin.
pub fn wanted_age(headers: &HeaderMap) -> Option<Duration> {
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
    // RFC 9111 section 5.4: where HTTP/1.0 says the same.
    let is_http_1_0 = headers.contains_key(header::PRAGMA) && age == Duration::MAX;
    (!is_http_1_0).then_some(age)
}

fn is_known(name: &HeaderName) -> bool {
    CARRIED.contains(name) || OF_PAGES.contains(name) || HARMLESS.contains(name)
}

/// Some browsers name the origin of a page also to that origin.
fn is_own_origin(address: &Address, headers: &HeaderMap) -> bool {
    let said = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok());
    let said = said.and_then(|said| Address::parse(said).ok());
    said.is_some_and(|said| said.origin() == address.origin())
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

    /// As Chromium asks over TLS.
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
    fn pages_are_asked_for_as_anybody_would() {
        assert!(page_with(&[]));
        assert!(page_with(&[("referer", "https://search.test/"), ("cache-control", "max-age=0")]));
        let all = headers(&CHROMIUM);
        let is_it = |method, all| is_page(&method, all, Condition::OfClient);
        assert!(!is_it(Method::POST, &all) && !is_it(Method::HEAD, &all));
        assert!(!is_it(Method::GET, &headers(&[("accept", "*/*")])));
    }

    #[test]
    fn the_caches_own_conditions_do_not_keep_a_page_from_being_one() {
        let mut all = headers(&CHROMIUM);
        all.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"x\""));
        all.insert(header::IF_MODIFIED_SINCE, HeaderValue::from_static("yesterday"));
        assert!(is_page(&Method::GET, &all, Condition::OfCache));
        assert!(!is_page(&Method::GET, &all, Condition::OfClient));
        all.insert(header::RANGE, HeaderValue::from_static("bytes=0-"));
        assert!(!is_page(&Method::GET, &all, Condition::OfCache));
    }

    #[test]
    fn what_says_more_goes_its_own_way() {
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
    fn objects_may_be_confirmed_and_name_their_own_origin() {
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
    fn an_age_may_be_wanted() {
        let age = |value| wanted_age(&headers(&[("cache-control", value)]));
        assert_eq!(age("max-stale"), Some(Duration::MAX));
        assert_eq!(age("Max-Age=5, max-age=7"), Some(Duration::from_secs(5)));
        assert_eq!(age("min-fresh=3"), None);
        let both = headers(&[("pragma", "no-cache"), ("cache-control", "max-age=3")]);
        assert_eq!(wanted_age(&both), Some(Duration::from_secs(3)));
    }
}
