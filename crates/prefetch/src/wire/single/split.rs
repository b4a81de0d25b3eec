//! Division of a head: the part for the compressor, and the part kept out of it.
//!
//! Who can make a browser ask for addresses of their choice and sees how long the packed requests are
//! can guess at what is in them, piece by piece (RFC 7541 section 7.1). So what is likely to be a secret
//! shares no compressor with an address: the values of all fields but those that say of whom and what
//! browsers ask, what follows a `?` or a `;` (`;jsessionid=`), and of a `Referer` all but its origin. Hosts
//! and the paths before these are in it: a secret among a path's segments can be guessed at.

use std::ops::Range;

use super::MARK;

/// Fields whose values go into the compressor.
const OPEN: [&str; 34] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "dnt",
    "expect",
    "host",
    "if-modified-since",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "range",
    "save-data",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-gpc",
    "te",
    "transfer-encoding",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
];

/// The head as it goes into the compressor, and what was kept out of it, for each [`MARK`] one. `None`
/// where the head itself has such a byte.
pub fn split(head: &[u8]) -> Option<(Vec<u8>, Vec<&[u8]>)> {
    if head.contains(&MARK) {
        return None;
    }
    let (mut text, mut kept) = (Vec::with_capacity(head.len()), Vec::new());
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let said = line.strip_suffix(b"\n").unwrap_or(line);
        let said = said.strip_suffix(b"\r").unwrap_or(said);
        let out = if number == 0 { of_request_line(said) } else { of_field(said) };
        text.extend_from_slice(&line[..out.start]);
        if !out.is_empty() {
            text.push(MARK);
            kept.push(&line[out.clone()]);
        }
        text.extend_from_slice(&line[out.end..]);
    }
    Some((text, kept))
}

/// Part after the first `?` or `;` of the address.
fn of_request_line(line: &[u8]) -> Range<usize> {
    let said = line.iter().position(|byte| matches!(byte, b'?' | b';'));
    let Some(said) = said else { return 0..0 };
    let end = line.iter().rposition(|byte| *byte == b' ').unwrap_or(line.len());
    said + 1..end.max(said + 1)
}

fn of_field(line: &[u8]) -> Range<usize> {
    // What is none goes on the line before, which may be a secret (RFC 9112 section 5.2).
    let is_folded = matches!(line.first(), Some(b' ' | b'\t'));
    let Some(colon) = find(line, b":").filter(|_| !is_folded) else { return 0..line.len() };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let begin = colon + 1 + value.iter().take_while(|byte| **byte == b' ').count();
    if OPEN.iter().any(|open| name.eq_ignore_ascii_case(open.as_bytes())) {
        return 0..0;
    }
    let open = if name.eq_ignore_ascii_case(b"referer") { origin_bytes(&line[begin..]) } else { 0 };
    begin + open..line.len()
}

/// Length of the origin with which the address `value` begins, with the slash after it.
fn origin_bytes(value: &[u8]) -> usize {
    let Some(scheme) = find(value, b"://") else { return 0 };
    let authority = scheme + 3;
    let end = value[authority..].iter().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'@'));
    match end.map(|end| authority + end) {
        Some(end) if value[end] == b'/' => end + 1,
        // Before an `@` stands who asks.
        _ => 0,
    }
}

pub(super) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
