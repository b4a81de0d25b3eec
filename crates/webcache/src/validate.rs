//! Conditional requests: the cache's own to origins, and those of clients that the cache answers
//! (RFC 9111 §4.3, RFC 9110 §13).

use http::header::{
    ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue};

use crate::head::{Head, date};

/// Returns `true` if a response with these fields can be validated.
pub fn has_validator(headers: &HeaderMap) -> bool {
    headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED)
}

/// Makes a request unconditional.
pub fn unconditional(request: &mut HeaderMap) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE] {
        request.remove(name);
    }
}

/// Makes `request` ask the origin to validate `head` (§4.3.1). Returns `false` if `head` has no
/// validator.
pub fn make_conditional(request: &mut HeaderMap, head: &Head) -> bool {
    unconditional(request);
    if let Some(etag) = head.headers.get(ETAG) {
        request.insert(IF_NONE_MATCH, etag.clone());
    }
    if let Some(changed) = head.headers.get(LAST_MODIFIED) {
        request.insert(IF_MODIFIED_SINCE, changed.clone());
    }
    has_validator(&head.headers)
}

/// Returns `true` if a 304 with these fields is about `head` (§4.3.4). It may also be about a
/// response that is not stored here.
pub fn confirms(newer: &HeaderMap, head: &Head) -> bool {
    let same = |name| match (newer.get(&name), head.headers.get(&name)) {
        (Some(newer), Some(ours)) => weakly_equal(newer.as_bytes(), ours.as_bytes()),
        (Some(_), None) => false,
        (None, _) => true,
    };
    if newer.contains_key(ETAG) { same(ETAG) } else { same(LAST_MODIFIED) }
}

/// Returns `true` if the answer to a HEAD with these fields is about the same object as `head`,
/// whose body has `body_bytes` (§4.3.5).
pub fn same_object(newer: &HeaderMap, head: &Head, body_bytes: u64) -> bool {
    let agrees = |name: http::HeaderName| match (newer.get(&name), head.headers.get(&name)) {
        (Some(newer), Some(ours)) => newer == ours,
        _ => true,
    };
    let length = newer.get(http::header::CONTENT_LENGTH);
    let same_length =
        length.is_none_or(|length| length.as_bytes() == body_bytes.to_string().as_bytes());
    agrees(ETAG) && agrees(LAST_MODIFIED) && same_length
}

/// Returns `true` if a request has a precondition that only the origin may evaluate (RFC 9111
/// §4.3.2).
pub fn is_for_the_origin(request: &HeaderMap) -> bool {
    request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE)
}

/// Returns `true` if a request asks only for content that the client does not have yet.
pub fn is_conditional(request: &HeaderMap) -> bool {
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Returns `true` if the client already has the content of `head`, so that the response is 304 (RFC
/// 9110 §13.1.2, §13.1.3).
pub fn client_has_it(request: &HeaderMap, head: &Head) -> bool {
    if request.contains_key(IF_NONE_MATCH) {
        let Some(ours) = head.headers.get(ETAG) else { return false };
        let mut theirs = request.get_all(IF_NONE_MATCH).iter();
        return theirs.any(|value| lists(value, ours.as_bytes()));
    }
    let Some(since) = date(request, &IF_MODIFIED_SINCE) else { return false };
    date(&head.headers, &LAST_MODIFIED).is_some_and(|changed| changed <= since)
}

/// Returns `true` if the client's If-Range allows a range of `head` (RFC 9110 §13.1.5). The
/// comparison is strong.
pub fn range_holds(request: &HeaderMap, head: &Head) -> bool {
    let Some(wanted) = request.get(IF_RANGE) else { return true };
    let wanted = wanted.as_bytes().trim_ascii();
    if wanted.first() == Some(&b'"') {
        return head.headers.get(ETAG).is_some_and(|ours| ours.as_bytes() == wanted);
    }
    // A weak tag never matches. A date matches if it is equal to Last-Modified, and Last-Modified
    // is at least a minute before Date, which makes it strong (RFC 9110 §8.8.2.2).
    let (Some(changed), Some(made)) =
        (date(&head.headers, &LAST_MODIFIED), date(&head.headers, &http::header::DATE))
    else {
        return false;
    };
    let same = date(request, &IF_RANGE) == Some(changed);
    same && made.saturating_sub(changed).as_secs() >= 60
}

/// Returns `true` if the list in `value` contains `tag` (weak comparison) or is `*`. Tags may
/// contain commas.
fn lists(value: &HeaderValue, tag: &[u8]) -> bool {
    let mut rest = value.as_bytes().trim_ascii();
    if rest == b"*" {
        return true;
    }
    while let Some(open) = rest.iter().position(|byte| *byte == b'"') {
        let inner = &rest[open + 1..];
        let Some(close) = inner.iter().position(|byte| *byte == b'"') else { return false };
        if weakly_equal(&rest[open..open + close + 2], tag) {
            return true;
        }
        rest = &inner[close + 1..];
    }
    false
}

/// Weak comparison (RFC 9110 §8.8.3.2).
fn weakly_equal(one: &[u8], other: &[u8]) -> bool {
    let strong = |tag: &[u8]| -> Vec<u8> {
        let tag = tag.trim_ascii();
        tag.strip_prefix(b"W/").unwrap_or(tag).to_vec()
    };
    strong(one) == strong(other)
}
