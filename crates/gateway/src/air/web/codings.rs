//! Framing and coding of an answer's body (RFC 9112 §6, §7).

use http::{HeaderMap, HeaderValue, header};

use crate::air::http::head;

/// End of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length,
    /// After the last chunk.
    Chunked,
    /// In codings that we did not ask for (TE), under chunks or until the connection closes.
    Coded,
    /// At the close of the connection.
    Close,
}

/// Reads how the body of an answer is framed, and leaves one way of it in `headers`. `None` if it cannot be read.
pub fn framed(headers: &mut HeaderMap) -> Option<Framing> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        // RFC 9112 §6.3: it overrides the length, which would be wrong.
        headers.remove(header::CONTENT_LENGTH);
        return Some(match of(headers)? {
            Codings::Chunked => Framing::Chunked,
            Codings::Others => Framing::Coded,
        });
    }
    if !headers.contains_key(header::CONTENT_LENGTH) {
        return Some(Framing::Close);
    }
    head::collapse_length(headers).then_some(Framing::Length)
}

/// Meaning of Transfer-Encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codings {
    /// Chunks alone.
    Chunked,
    /// Compression under chunks, or until the connection closes. The chunks are taken off here; the compression
    /// is for the client, as it would be without this gateway.
    Others,
}

/// Codings besides chunks (RFC 9112 §7.2).
const COMPRESSING: [&[u8]; 5] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];

/// Reads Transfer-Encoding in `headers`. Returns `None` if it has no meaning known here.
fn of(headers: &HeaderMap) -> Option<Codings> {
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let names = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let names: Vec<Vec<u8>> = names.map(<[u8]>::to_ascii_lowercase).collect();
    let (last, before) = names.split_last()?;
    let compressing = |name: &Vec<u8>| COMPRESSING.contains(&name.as_slice());
    match last.as_slice() {
        b"chunked" if before.is_empty() => Some(Codings::Chunked),
        b"chunked" if before.iter().all(compressing) => Some(Codings::Others),
        _ if names.iter().all(compressing) => Some(Codings::Others),
        _ => None,
    }
}

/// Transfer-Encoding for the client, if it has to undo a coding. Only HTTP/1.1 can say so.
pub fn for_client(headers: &HeaderMap) -> Option<HeaderValue> {
    (of(headers)? == Codings::Others).then_some(())?;
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let all: Vec<&[u8]> = lines.collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_comes_before_chunks() {
        for (lines, known) in [
            (&["chunked"][..], Some(Codings::Chunked)),
            (&["Chunked"], Some(Codings::Chunked)),
            (&["gzip, chunked"], Some(Codings::Others)),
            (&["GZip", "chunked"], Some(Codings::Others)),
            (&["deflate"], Some(Codings::Others)),
            (&["chunked, gzip"], None),
            (&["chunked, chunked"], None),
            (&["identity, chunked"], None),
            (&["xchunked"], None),
            (&[""], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::TRANSFER_ENCODING, HeaderValue::from_static(line));
            }
            assert_eq!(of(&headers), known, "{lines:?}");
            assert_eq!(for_client(&headers).is_some(), known == Some(Codings::Others), "{lines:?}");
        }
        assert_eq!(of(&HeaderMap::new()), None);
    }
}
