//! Rules for storing and reusing responses (RFC 9111 §3 and §4, RFC 5861).

use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, DATE, EXPIRES, SET_COOKIE, VARY};
use http::{HeaderMap, Method, StatusCode};

use crate::directives::Directives;
use crate::head::{
    Head, Moment, Rules, http_date, is_heuristically_cacheable, may_keep_error, stored_fields,
};
use crate::key::Key;
use crate::vary::Selection;

/// Returns `true` for a status whose caching rules are known. Responses with `must-understand` and
/// another status are not stored.
fn understood(status: StatusCode) -> bool {
    is_heuristically_cacheable(status) || matches!(status.as_u16(), 302 | 303 | 307)
}

/// Fields of browsers' GET requests that an origin may use without naming them in Vary. Any other
/// field is suspicious: an origin may build its response from it, or refuse the request because of
/// it, unaware that caches exist. Sorted.
const ORDINARY: [&str; 59] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "connection",
    "content-length",
    "cookie",
    "device-memory",
    "dnt",
    "downlink",
    "dpr",
    "ect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    // Distinguishes Windows clients for Microsoft's servers.
    "ms-cv",
    "pragma",
    "priority",
    "purpose",
    "range",
    "referer",
    "rtt",
    "save-data",
    "sec-ch-device-memory",
    "sec-ch-dpr",
    "sec-ch-prefers-color-scheme",
    "sec-ch-prefers-reduced-motion",
    "sec-ch-prefers-reduced-transparency",
    "sec-ch-save-data",
    "sec-ch-ua",
    "sec-ch-ua-arch",
    "sec-ch-ua-bitness",
    "sec-ch-ua-form-factors",
    "sec-ch-ua-full-version",
    "sec-ch-ua-full-version-list",
    "sec-ch-ua-mobile",
    "sec-ch-ua-model",
    "sec-ch-ua-platform",
    "sec-ch-ua-platform-version",
    "sec-ch-ua-wow64",
    "sec-ch-viewport-height",
    "sec-ch-viewport-width",
    "sec-ch-width",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-storage-access",
    "sec-fetch-user",
    "sec-gpc",
    "sec-purpose",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    // A number per film, sent by Apple's players.
    "x-playback-session-id",
];

/// Maximum size of an ordinary request header, bytes. An origin may refuse a longer one, and the
/// refusal must not reach other clients.
const MAX_ORDINARY_HEAD: usize = 8 * 1024;

/// Returns `true` if `request` has a field that browsers do not send and by which `response` does
/// not vary, or has a larger header than browsers send. Many origins unknowingly build responses
/// from fields like X-Forwarded-Host. If such a response were stored, one client could choose what
/// all others get (web cache poisoning).
fn is_odd(request: &HeaderMap, response: &HeaderMap) -> bool {
    let varies_by = |name: &str| {
        let lists = response.get_all(VARY).iter();
        let mut names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
        names.any(|one| one.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    // A response that allows one site to read it must be generated per site (RFC 6454, Fetch),
    // unless it allows all sites.
    let allowed = response.get("access-control-allow-origin");
    let for_all = allowed.is_none_or(|value| value.as_bytes() == b"*");
    let ordinary = |name: &str, value: &[u8]| match name {
        "origin" => for_all,
        // Android's WebView sends its application's name. Scripts send XMLHttpRequest to get a
        // fragment.
        "x-requested-with" => !value.eq_ignore_ascii_case(b"XMLHttpRequest"),
        // Requests song titles inside an audio stream. Harmless if the response has none.
        "icy-metadata" => !response.contains_key("icy-metaint"),
        _ => ORDINARY.binary_search(&name).is_ok(),
    };
    let field_bytes = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    let head_bytes: usize = request.iter().map(field_bytes).sum();
    head_bytes > MAX_ORDINARY_HEAD
        || request.iter().any(|(name, value)| {
            let name = name.as_str();
            !ordinary(name, value.as_bytes()) && !varies_by(name)
        })
}

/// Returns `true` if `response` may depend on the client or on the form of its request. It then
/// says nothing about the responses that other clients would get.
pub fn depends_on_client(request: &HeaderMap, response: &HeaderMap) -> bool {
    [COOKIE, AUTHORIZATION].iter().any(|name| request.contains_key(name))
        || Directives::of_request(request).no_store
        || is_odd(request, response)
}

/// Returns `true` if `head` has only heuristic freshness and the request has a cookie. Only
/// explicit freshness shows that a client with a cookie gets the same response as others.
pub fn needs_explicit_freshness(head: &Head, request: &HeaderMap, rules: &Rules) -> bool {
    request.contains_key(COOKIE) && !head.lifetime(rules).explicit
}

/// Decides if `response`, the answer to a GET of `key` with the fields `request`, may be stored
/// (§3). Returns its stored header, or `None`.
///
/// Stricter than the RFC: it refuses
///
/// - responses with Set-Cookie;
/// - responses to requests with Authorization;
/// - responses to requests with Cookie, unless they say `public` or `s-maxage`;
/// - responses to requests with fields that browsers do not send, unless Vary names these fields;
/// - errors other than 404 and 410.
pub fn storable(
    key: &Key,
    request: &HeaderMap,
    (status, response): (StatusCode, &HeaderMap),
    (requested_at, received_at): (Moment, Moment),
) -> Option<Head> {
    let wanted = Directives::of_request(request);
    let stated = Directives::of_response(response);
    let no_store = stated.no_store && !(stated.must_understand && understood(status));
    let shared = stated.public || stated.s_maxage.is_some();
    let expires = response.contains_key(EXPIRES) && !stated.is_targeted;
    let explicit = shared || stated.max_age.is_some() || expires;
    let refused = wanted.no_store
        || no_store
        || stated.private
        || (stated.must_understand && !understood(status))
        || request.contains_key(AUTHORIZATION)
        || (request.contains_key(COOKIE) && !shared)
        || is_odd(request, response)
        || response.contains_key(SET_COOKIE)
        || response.contains_key("set-cookie2")
        || response.contains_key(http::header::WWW_AUTHENTICATE)
        // Partial responses are never combined, and the other statuses concern one exchange only.
        || status.is_informational()
        || ((status.is_client_error() || status.is_server_error()) && !may_keep_error(status))
        || matches!(status.as_u16(), 206 | 304 | 401 | 407 | 416)
        || !(explicit || is_heuristically_cacheable(status));
    if refused {
        return None;
    }
    let selection = Selection::new(response, request)?;
    let mut headers = stored_fields(response);
    if !headers.contains_key(DATE) {
        headers.insert(DATE, http_date(received_at));
    }
    let heuristic_ok = !key.as_str().contains('?');
    let head = Head {
        status,
        headers,
        selection,
        requested_at,
        received_at,
        heuristic_ok,
        invalidated: false,
        pinned: false,
    };
    // A response that is never fresh, cannot be validated and may not be used stale is useless.
    let useful = head.lifetime(&Rules::default()).fresh > Duration::ZERO
        || crate::validate::has_validator(&head.headers)
        || stated.stale_while_revalidate.or(stated.stale_if_error).is_some();
    useful.then_some(head)
}

/// Permitted use of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Serve it.
    Fresh,
    /// Serve it, and revalidate it in the background (RFC 5861 §3).
    StaleWhileRevalidate,
    /// Serve it although it is stale, because the client allows that (`max-stale`).
    MaxStale,
    /// Validate it first.
    Validate {
        /// `true` if it may be served when the origin fails (RFC 5861 §4).
        if_error: bool,
        /// `true` if it may be served when the origin cannot be reached (RFC 9111 §4.2.4).
        if_offline: bool,
    },
}

/// Decides how `head` may be used at `now` for a request with these fields, which its selection
/// matches (§4).
pub fn usable(head: &Head, request: &HeaderMap, rules: &Rules, now: Moment) -> Use {
    let wanted = Directives::of_request(request);
    let stated = head.directives();
    let remaining = head.remaining(rules, now);
    let stale = if remaining < 0 { remaining.unsigned_abs() } else { 0 };
    let within = |bound: Option<u64>| bound.is_some_and(|bound| stale <= bound);
    let known_age = head.age(now).filter(|_| !head.invalidated);
    // An error must not be used stale, because the object may exist by now.
    let never = stated.never_stale() || known_age.is_none() || head.is_error();
    let validate = || Use::Validate {
        if_error: !never && within(stated.stale_if_error.max(wanted.stale_if_error)),
        if_offline: !never && stale <= rules.max_offline_staleness.as_secs(),
    };
    let age = known_age.unwrap_or(Duration::MAX);
    let guessed = needs_explicit_freshness(head, request, rules);
    let too_old = wanted.max_age.is_some_and(|most| age > Duration::from_secs(most));
    if wanted.no_cache || stated.no_cache || guessed || too_old {
        return validate();
    }
    if remaining > 0 {
        let left = remaining.unsigned_abs();
        return if wanted.min_fresh.is_none_or(|least| left >= least) {
            Use::Fresh
        } else {
            validate()
        };
    }
    if never || wanted.min_fresh.is_some() {
        return validate();
    }
    if within(wanted.max_stale) {
        return Use::MaxStale;
    }
    // A client that limits the age does not want a stale response.
    if wanted.max_age.is_none() && within(stated.stale_while_revalidate) {
        return Use::StaleWhileRevalidate;
    }
    validate()
}

/// Returns `true` if a response with `status` to `method` invalidates the stored response (§4.4).
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
    !safe && (status.is_success() || status.is_redirection())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_fields_are_sorted() {
        assert!(ORDINARY.is_sorted());
    }
}
