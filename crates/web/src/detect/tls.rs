//! Detects the name in a TLS ClientHello.

use std::time::Duration;

use bentpipe_classify::{Visible, visible};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Time limit for the rest of a hello.
const HELLO: Duration = Duration::from_secs(1);

/// Maximum size of a hello.
const MAX_HELLO_BYTES: usize = 16 * 1024;

/// Returns the client's first bytes, and the name in them.
pub async fn hello(tcp: &TcpStream, read: Bytes) -> (Bytes, Option<String>) {
    let mut read = bytes::BytesMut::from(&read[..]);
    let until = Instant::now() + HELLO;
    loop {
        match visible(&read) {
            // A browser that sends a GREASE extension means the outer name. If a client with a real
            // encrypted name uses a site's outer name, the site makes it repeat the name openly.
            Visible::Name(name) | Visible::Outer(name) => {
                return (read.freeze(), Some(name.as_str().to_owned()));
            }
            Visible::Nothing if !read.is_empty() => return (read.freeze(), None),
            Visible::Nothing | Visible::Partial => {}
        }
        if read.len() >= MAX_HELLO_BYTES
            || !matches!(timeout_at(until, tcp.readable()).await, Ok(Ok(())))
        {
            return (read.freeze(), None);
        }
        read.reserve(4096);
        match tcp.try_read_buf(&mut read) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => return (read.freeze(), None),
        }
    }
}
