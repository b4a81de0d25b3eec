//! Framing and transfer codings of a response body (RFC 9112 §6, §7).

use http::{HeaderMap, HeaderValue, header};

use super::head;

/// Framing of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length,
    /// Chunks.
    Chunked,
    /// Transfer codings that we did not request (TE), within chunks or until the connection closes.
    Coded,
    /// Until the connection closes.
    Close,
}

/// Determines the framing of a response body, and leaves only one kind of framing field in
/// `headers`. Returns `None` if the framing is invalid.
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

/// Coding that this gateway can decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `gzip` or `x-gzip` (RFC 1952).
    Gzip,
    /// `deflate`, which is zlib's format (RFC 1950).
    Deflate,
}

/// Meaning of Transfer-Encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codings {
    /// Chunks only.
    Chunked,
    /// Compression within chunks, or until the connection closes. Chunks are decoded here; the
    /// compression is passed to the client, as without this gateway.
    Others,
}

/// Transfer codings besides chunks (RFC 9112 §7.2).
const COMPRESSING: [&[u8]; 5] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];

/// Parses Transfer-Encoding in `headers`. Returns `None` if it has an unknown coding.
fn of(headers: &HeaderMap) -> Option<Codings> {
    let names = names(headers);
    let (last, before) = names.split_last()?;
    let compressing = |name: &Vec<u8>| COMPRESSING.contains(&name.as_slice());
    match last.as_slice() {
        b"chunked" if before.is_empty() => Some(Codings::Chunked),
        b"chunked" if before.iter().all(compressing) => Some(Codings::Others),
        _ if names.iter().all(compressing) => Some(Codings::Others),
        _ => None,
    }
}

/// Names in Transfer-Encoding, in lower case.
fn names(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let names = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    names.map(<[u8]>::to_ascii_lowercase).collect()
}

/// The only transfer coding besides chunks, if this gateway can decode it.
pub fn decodable(headers: &HeaderMap) -> Option<Coding> {
    let names = names(headers);
    let mut names = names.iter().map(Vec::as_slice);
    let coding = match names.next()? {
        b"gzip" | b"x-gzip" => Coding::Gzip,
        b"deflate" => Coding::Deflate,
        _ => return None,
    };
    matches!((names.next(), names.next()), (None | Some(b"chunked"), None)).then_some(coding)
}

/// Transfer-Encoding for the client, if it must decode a coding. Requires HTTP/1.1.
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

    #[test]
    fn one_coding_is_decodable() {
        for (line, coding) in [
            ("GZIP, chunked", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("deflate,chunked", Some(Coding::Deflate)),
            ("gzip, gzip, chunked", None),
            ("compress, chunked", None),
            ("chunked", None),
        ] {
            let line = (header::TRANSFER_ENCODING, HeaderValue::from_static(line));
            assert_eq!(decodable(&HeaderMap::from_iter([line])), coding);
        }
    }
}
