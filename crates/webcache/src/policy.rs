//! Storing and reuse of answers (RFC 9111 §3, §4; RFC 5861).

use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, DATE, EXPIRES, SET_COOKIE, VARY};
use http::{HeaderMap, Method, StatusCode};

use crate::directives::Directives;
use crate::head::{Head, Moment, Rules, guessable, http_date, kept, may_keep_error};
use crate::key::Key;
use crate::vary::Selection;

/// Statuses whose meaning for storing is known here; what says must-understand is kept with no other.
fn understood(status: StatusCode) -> bool {
    guessable(status) || matches!(status.as_u16(), 302 | 303 | 307)
}

/// Fields of browsers' GETs to which origins may answer without naming them in Vary. A field that
/// is not here may be one from which an origin builds answers, or for which it refuses, without
/// knowing that caches exist.
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
    // What Windows tells its own servers apart by.
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
    // A number for each film, in what Apple's players ask.
    "x-playback-session-id",
];

/// A longer request head is nothing that all origins take: one that refuses it may say so in the answer. Bytes.
const MAX_ORDINARY_HEAD: usize = 8 * 1024;

/// Returns `true` if `request` has a field that no browser sends by itself and by which `response`
/// does not vary, or a larger head than browsers send. Many origins build answers from fields like
/// X-Forwarded-Host and do not know that they do. A stored answer would give everybody what one
/// client put in there (web cache poisoning).
fn is_odd(request: &HeaderMap, response: &HeaderMap) -> bool {
    let varies_by = |name: &str| {
        let lists = response.get_all(VARY).iter();
        let mut names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
        names.any(|one| one.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    // An answer that lets one site read it must say so to each (RFC 6454, Fetch), unless it says so to all.
    let allowed = response.get("access-control-allow-origin");
    let for_all = allowed.is_none_or(|value| value.as_bytes() == b"*");
    let ordinary = |name: &str, value: &[u8]| match name {
        "origin" => for_all,
        // Android's views of pages name their application. Scripts ask for a part of a page by it.
        "x-requested-with" => !value.eq_ignore_ascii_case(b"XMLHttpRequest"),
        // Who asks for titles between the sound gets them where there are any.
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

/// Returns `true` if `response` may depend on the client, or on the form of its request, so that it
/// says nothing of others' answers.
pub fn is_about_who_asks(request: &HeaderMap, response: &HeaderMap) -> bool {
    [COOKIE, AUTHORIZATION].iter().any(|name| request.contains_key(name))
        || Directives::of_request(request).no_store
        || is_odd(request, response)
}

/// Returns `true` if `head` has only heuristic freshness and the request shows a cookie. Only the
/// origin's own statement can say that a client with a cookie gets what others get.
pub fn is_anothers_guess(head: &Head, request: &HeaderMap, rules: &Rules) -> bool {
    request.contains_key(COOKIE) && !head.lifetime(rules).explicit
}

/// The head under which `response`, the answer to a GET of `key` with the fields `request`, may be
/// stored, or `None` where it may not (§3).
///
/// Stricter than the RFC: nothing that carries Set-Cookie, nothing that was asked for with
/// Authorization, and, where a Cookie went along, only what says `public` or `s-maxage`; nor where the
/// request said something that browsers do not and Vary does not name; and of errors only 404 and 410.
pub fn storable(
    key: &Key,
    request: &HeaderMap,
    (status, response): (StatusCode, &HeaderMap),
    (requested_at, received_at): (Moment, Moment),
) -> Option<Head> {
    let asked = Directives::of_request(request);
    let said = Directives::of_response(response);
    let no_store = said.no_store && !(said.must_understand && understood(status));
    let shared = said.public || said.s_maxage.is_some();
    let expires = response.contains_key(EXPIRES) && !said.is_targeted;
    let explicit = shared || said.max_age.is_some() || expires;
    let refused = asked.no_store
        || no_store
        || said.private
        || (said.must_understand && !understood(status))
        || request.contains_key(AUTHORIZATION)
        || (request.contains_key(COOKIE) && !shared)
        || is_odd(request, response)
        || response.contains_key(SET_COOKIE)
        || response.contains_key("set-cookie2")
        || response.contains_key(http::header::WWW_AUTHENTICATE)
        // Parts are never put together here, and the others are about one exchange.
        || status.is_informational()
        || ((status.is_client_error() || status.is_server_error()) && !may_keep_error(status))
        || matches!(status.as_u16(), 206 | 304 | 401 | 407 | 416)
        || !(explicit || guessable(status));
    if refused {
        return None;
    }
    let selection = Selection::new(response, request)?;
    let mut headers = kept(response);
    if !headers.contains_key(DATE) {
        headers.insert(DATE, http_date(received_at));
    }
    let guessable = !key.as_str().contains('?');
    let head = Head {
        status,
        headers,
        selection,
        requested_at,
        received_at,
        guessable,
        invalidated: false,
        pinned: false,
    };
    // What is never fresh and cannot be confirmed is of no use, unless it may be used stale.
    let useful = head.lifetime(&Rules::default()).fresh > Duration::ZERO
        || crate::validate::has_validator(&head.headers)
        || said.stale_while_revalidate.or(said.stale_if_error).is_some();
    useful.then_some(head)
}

/// Possible use of a stored answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It answers.
    Fresh,
    /// It answers, and is asked for anew behind that (RFC 5861 §3).
    StaleMeanwhile,
    /// It answers although it is stale: the client said so (`max-stale`).
    StaleAsked,
    /// The origin is asked whether it still holds.
    Validate {
        /// It answers when the origin fails (RFC 5861 §4).
        if_error: bool,
        /// It answers when the ground cannot be reached (RFC 9111 §4.2.4).
        if_offline: bool,
    },
}

/// Possible use of `head` at `now`, for a request with the fields `request` that it fits (§4).
pub fn usable(head: &Head, request: &HeaderMap, rules: &Rules, now: Moment) -> Use {
    let asked = Directives::of_request(request);
    let said = head.directives();
    let remaining = head.remaining(rules, now);
    let stale = if remaining < 0 { remaining.unsigned_abs() } else { 0 };
    let within = |bound: Option<u64>| bound.is_some_and(|bound| stale <= bound);
    let known_age = head.age(now).filter(|_| !head.invalidated);
    // What says that there is nothing is of no use once there may be something.
    let never = said.never_stale() || known_age.is_none() || head.is_error();
    let validate = || Use::Validate {
        if_error: !never && within(said.stale_if_error.max(asked.stale_if_error)),
        if_offline: !never && stale <= rules.offline_stale.as_secs(),
    };
    let age = known_age.unwrap_or(Duration::MAX);
    let guessed = is_anothers_guess(head, request, rules);
    let too_old = asked.max_age.is_some_and(|most| age > Duration::from_secs(most));
    if asked.no_cache || said.no_cache || guessed || too_old {
        return validate();
    }
    if remaining > 0 {
        let left = remaining.unsigned_abs();
        return if asked.min_fresh.is_none_or(|least| left >= least) {
            Use::Fresh
        } else {
            validate()
        };
    }
    if never || asked.min_fresh.is_some() {
        return validate();
    }
    if within(asked.max_stale) {
        return Use::StaleAsked;
    }
    // One that sets a bound of its own to the age wants no more than that.
    if asked.max_age.is_none() && within(said.stale_while_revalidate) {
        return Use::StaleMeanwhile;
    }
    validate()
}

/// Returns `true` if an answer with `status` to `method` means that the stored answer has changed
/// (§4.4).
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE);
    !safe && (status.is_success() || status.is_redirection())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_fields_are_found() {
        assert!(ORDINARY.is_sorted());
    }
}
