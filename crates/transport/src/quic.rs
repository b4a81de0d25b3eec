//! Detection of QUIC.

/// Port of HTTP/3 and of other QUIC protocols in browsers.
const HTTPS_PORT: u16 = 443;

/// Returns `true` if a flow's first packet is QUIC: it goes to port 443, or begins with a long
/// header (RFC 9000 section 17.2) of an existing version.
pub fn is_quic(port: u16, payload: &[u8]) -> bool {
    port == HTTPS_PORT || has_long_header(payload)
}

/// Returns `true` if a packet begins with a long header of an existing version.
pub fn has_long_header(payload: &[u8]) -> bool {
    let &[first, a, b, c, d, id_length, ..] = payload else { return false };
    let version = u32::from_be_bytes([a, b, c, d]);
    let exists = match version {
        // RFC 9000, RFC 9369.
        1 | 0x6b33_43cf => true,
        // Drafts, and versions that only trigger version negotiation (RFC 9000 section 15).
        _ => version >> 8 == 0x00ff_0000 || version & 0x0f0f_0f0f == 0x0a0a_0a0a,
    };
    // Long form and the fixed bit; a connection ID of these versions has at most 20 bytes.
    first & 0xc0 == 0xc0 && id_length <= 20 && exists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_headers_are_known_on_any_port() {
        let initial = [0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        let second = [0xd3, 0x6b, 0x33, 0x43, 0xcf, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        let draft = [0xc3, 0xff, 0, 0, 29, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        let greased = [0xc3, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        for packet in [initial, second, draft, greased] {
            assert!(is_quic(8443, &packet), "{packet:?}");
        }
        assert!(is_quic(443, b"anything"));
    }

    #[test]
    fn other_protocols_are_not() {
        // DNS, STUN, RTP, WireGuard, DTLS, and truncated headers.
        for packet in [
            &b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"[..],
            b"\x00\x01\x00\x00\x21\x12\xa4\x42",
            b"\x80\x60\x00\x01\x00\x00\x00\x01",
            b"\x01\x00\x00\x00\x00\x00\x00\x01",
            b"\x16\xfe\xfd\x00\x00\x00\x00\x00",
            b"\xc3\x00\x00\x00\x01",
            b"\xc3\x00\x00\x00\x01\x15",
            b"\xc3\x00\x00\x00\x07\x08",
            b"",
        ] {
            assert!(!is_quic(4000, packet), "{packet:?}");
        }
    }
}
