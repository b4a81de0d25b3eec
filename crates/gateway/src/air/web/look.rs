//! Detection of intercepted connections to port 80 that speak HTTP that is understood here.
//! Everything else is carried untouched.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::framing::MOST_HEAD_BYTES;

/// Silence after which a client is assumed to wait for its server to speak. Browsers open
/// connections ahead of their requests, so this is much longer than elsewhere.
const SILENCE: Duration = Duration::from_secs(3);

/// The longest first line of which it is waited for the end.
const MOST_LINE_BYTES: usize = 8 * 1024;

/// The longest method.
const MOST_METHOD_BYTES: usize = 24;

/// Beginning of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// A request of HTTP/1.0 or 1.1.
    Http,
    /// Something else, or a request to speak something else.
    Other,
    /// Nothing that tells, so far.
    Unclear,
}

/// First bytes of a client.
pub enum First {
    /// HTTP.
    Http(Bytes),
    /// Something else.
    Other(Bytes),
}

/// Waits for what tells, and within `patience` for the rest of it.
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
            // What is there will do; an error shows again when it is carried.
            _ => return First::Other(read.freeze()),
        }
        read.reserve(4096);
        match tcp.try_read_buf(&mut (&mut read).limit(MOST_HEAD_BYTES)) {
            Ok(1..) => {}
            // Readiness may be announced before there is anything to read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return First::Other(read.freeze()),
        }
    }
}

fn look(bytes: &[u8]) -> Look {
    let Some(end) = bytes.iter().position(|byte| *byte == b' ') else {
        let may_be = bytes.is_empty() || (is_word(bytes) && bytes.len() <= MOST_METHOD_BYTES);
        return if may_be { Look::Unclear } else { Look::Other };
    };
    let method = &bytes[..end];
    if !is_word(method) || method == b"CONNECT" || method == b"TRACE" || method == b"PRI" {
        return Look::Other;
    }
    let Some(line) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < MOST_LINE_BYTES { Look::Unclear } else { Look::Other };
    };
    let first = bytes[..line].trim_ascii_end();
    if !first.ends_with(b" HTTP/1.1") && !first.ends_with(b" HTTP/1.0") {
        return Look::Other;
    }
    match end_of_head(bytes) {
        // Without fields the head ends with its first line.
        Some(end) => match bytes.get(line + 1..end) {
            Some(fields) if asks_to_upgrade(fields) => Look::Other,
            _ => Look::Http,
        },
        // What it is belongs to those who refuse it.
        None if bytes.len() >= MOST_HEAD_BYTES => Look::Http,
        None => Look::Unclear,
    }
}

/// Tells if `bytes` may be meant as a method. One that is not a token is refused when the request is read.
fn is_word(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.iter().all(u8::is_ascii_graphic)
}

/// End of the first empty line, however lines end.
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
        let long = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(MOST_HEAD_BYTES));
        assert_eq!(look(long.as_bytes()), Look::Http);
        assert_eq!(look("a ".repeat(MOST_LINE_BYTES).as_bytes()), Look::Other);
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
