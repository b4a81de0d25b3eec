//! The name that a client says in its first bytes.

use super::{Name, host, sni};

/// Name that the first bytes of a TCP flow show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visible {
    /// No name, and more bytes will not bring one.
    Nothing,
    /// The beginning of a message that may say a name further on.
    Partial,
    /// The name in a ClientHello, or of an HTTP request.
    Name(Name),
    /// The outer name of a ClientHello that has, or pretends to have, an encrypted one inside
    /// (Encrypted Client Hello, RFC 9849): browsers send that extension at random contents to every
    /// server (GREASE), and nobody between can tell the difference.
    Outer(Name),
}

/// Reads the name in `first`, a client's first bytes; whatever they are, this ends and never panics.
pub fn visible(first: &[u8]) -> Visible {
    match first {
        [] => Visible::Nothing,
        [sni::HANDSHAKE, ..] => sni::visible(first),
        [b'A'..=b'Z', ..] => host::visible(first),
        _ => Visible::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), tls: bool) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut().filter(|_| tls) {
                *first = sni::HANDSHAKE;
            }
            let _ = visible(&bytes);
        }
    }
}
