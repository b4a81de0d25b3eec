//! Extracts the name from a client's first bytes.

use super::visible::Visible;
use super::{host, sni};

/// Extracts the name from `first`, a client's first bytes. Accepts arbitrary input without
/// panicking.
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
