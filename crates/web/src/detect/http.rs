//! Detects HTTP that this gateway supports on intercepted connections to port 80. Everything else
//! is carried unchanged.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::message::framing::MAX_HEAD_BYTES;

/// Silence after which the client is assumed to wait for its server to speak first. It is much
/// longer than for other protocols, because browsers open connections before they have requests.
const SILENCE: Duration = Duration::from_secs(3);

/// Longest partial request line we buffer before giving up.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Maximum length of a method.
const MAX_METHOD_BYTES: usize = 24;

/// Classification of a connection's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// A request of HTTP/1.0 or 1.1.
    Http,
    /// Another protocol, or an upgrade request.
    Other,
    /// Undecided so far.
    Unclear,
}

/// First bytes of a client.
pub enum First {
    /// The client speaks HTTP.
    Http(Bytes),
    /// The client speaks another protocol.
    Other(Bytes),
}

/// Waits until the protocol can be decided; the complete header must arrive within `patience`.
pub async fn first(tcp: &TcpStream, patience: Duration) -> First {
    let began = Instant::now();
    let mut read = BytesMut::new();
    loop {
        match look(&read) {
            Look::Http => return First::Http(read.freeze()),
            Look::Other => return First::Other(read.freeze()),
            Look::Unclear => {}
        }
        let until = began + if read.is_empty() { SILENCE.min(patience) } else { patience };
        match timeout_at(until, tcp.readable()).await {
            Ok(Ok(())) => {}
            // Use the bytes received so far; an error will occur again when they are carried.
            _ => return First::Other(read.freeze()),
        }
        read.reserve(4096);
        match tcp.try_read_buf(&mut (&mut read).limit(MAX_HEAD_BYTES)) {
            Ok(1..) => {}
            // The socket may be reported as readable without data.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return First::Other(read.freeze()),
        }
    }
}

fn look(bytes: &[u8]) -> Look {
    let Some(end) = bytes.iter().position(|byte| *byte == b' ') else {
        let may_be = bytes.is_empty() || (is_word(bytes) && bytes.len() <= MAX_METHOD_BYTES);
        return if may_be { Look::Unclear } else { Look::Other };
    };
    let method = &bytes[..end];
    if !is_word(method) || method == b"CONNECT" || method == b"TRACE" || method == b"PRI" {
        return Look::Other;
    }
    let Some(line) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < MAX_LINE_BYTES { Look::Unclear } else { Look::Other };
    };
    let first = bytes[..line].trim_ascii_end();
    if !first.ends_with(b" HTTP/1.1") && !first.ends_with(b" HTTP/1.0") {
        return Look::Other;
    }
    match end_of_head(bytes) {
        // Without fields, the header ends with its first line.
        Some(end) => match bytes.get(line + 1..end) {
            Some(fields) if asks_to_upgrade(fields) => Look::Other,
            _ => Look::Http,
        },
        // Overlong headers are refused by the HTTP parser.
        None if bytes.len() >= MAX_HEAD_BYTES => Look::Http,
        None => Look::Unclear,
    }
}

/// Returns `true` if `bytes` may be intended as a method. The request parser refuses one that is
/// not a token.
fn is_word(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.iter().all(u8::is_ascii_graphic)
}

/// Position of the first empty line, for any line endings.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let ends = |window: &[u8]| matches!(window, b"\n\n" | b"\n\r");
    bytes.windows(2).position(ends)
}

fn asks_to_upgrade(fields: &[u8]) -> bool {
    let mut names = fields.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some(&line[..colon])
    });
    names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn http_is_told_from_all_else() {
        for (said, seen) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Look::Http),
            ("POST /x HTTP/1.0\r\n\r\nbody", Look::Http),
            ("GET / HTTP/1.1\nHost: a\n\n", Look::Http),
            ("GET / HTTP/1.1\r\nHost: a\r\n", Look::Unclear),
            ("GE", Look::Unclear),
            ("", Look::Unclear),
            ("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", Look::Other),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Look::Other),
            ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", Look::Other),
            ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", Look::Other),
            ("GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", Look::Http),
            ("GE(T /", Look::Unclear),
            ("{\"a\"", Look::Other),
            ("{\"a\": 1}", Look::Other),
            ("SSH-2.0-x OpenSSH\r\n", Look::Other),
            ("\u{16}\u{3}\u{1}", Look::Other),
            ("GET / HTTP/3.0\r\n", Look::Other),
            ("GET /\r\n", Look::Other),
            ("SUMMARIZE-EVERYTHING-AT-ONCE", Look::Other),
        ] {
            assert_eq!(look(said.as_bytes()), seen, "{said:?}");
        }
        let long = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(MAX_HEAD_BYTES));
        assert_eq!(look(long.as_bytes()), Look::Http);
        assert_eq!(look("a ".repeat(MAX_LINE_BYTES).as_bytes()), Look::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            look(&bytes);
        }

        #[test]
        fn whatever_follows_a_first_line_ends(rest in "[\r\nA-Za-z: ]{0,40}") {
            look(format!("GET / HTTP/1.1{rest}").as_bytes());
        }
    }
}
