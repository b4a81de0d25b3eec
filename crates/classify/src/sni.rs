//! Server name in a TLS ClientHello (RFC 6066 §3).

use tls_parser::{
    SNIType, TlsExtension, TlsExtensionType, TlsMessage, TlsMessageHandshake, TlsRecordType,
    parse_tls_client_hello_extensions, parse_tls_message_handshake, parse_tls_record_header,
};

use super::{Name, Visible};

/// First byte of a TLS connection: the content type of handshake records (RFC 8446 §5.1).
pub(super) const HANDSHAKE: u8 = 22;

/// Type of the first handshake message (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;

const RECORD_HEADER_BYTES: usize = 5;

/// Maximum content of one record (RFC 8446 §5.1).
const MAX_RECORD_BYTES: usize = 1 << 14;

/// Extension numbers of encrypted_client_hello (RFC 9849 §5) and of the earlier draft
/// encrypted_server_name.
const ENCRYPTED: [TlsExtensionType; 2] = [TlsExtensionType(0xfe0d), TlsExtensionType(0xffce)];

/// Extracts the name from the ClientHello at the start of `first`. The hello may span several
/// records.
pub(super) fn visible(first: &[u8]) -> Visible {
    let Some(messages) = handshake(first) else { return Visible::Nothing };
    let [CLIENT_HELLO, a, b, c, body @ ..] = &messages[..] else {
        let begins = messages.first().is_none_or(|kind| *kind == CLIENT_HELLO);
        return if begins { Visible::Partial } else { Visible::Nothing };
    };
    if body.len() < u32::from_be_bytes([0, *a, *b, *c]) as usize {
        return Visible::Partial;
    }
    match parse_tls_message_handshake(&messages) {
        Ok((_, TlsMessage::Handshake(TlsMessageHandshake::ClientHello(hello)))) => {
            hello.ext.map_or(Visible::Nothing, name)
        }
        _ => Visible::Nothing,
    }
}

/// Content of the records in `first`; the last one may be incomplete. Returns `None` if `first`
/// does not consist of handshake records.
fn handshake(mut first: &[u8]) -> Option<Vec<u8>> {
    let mut messages = Vec::with_capacity(first.len());
    while first.len() >= RECORD_HEADER_BYTES {
        let (rest, header) = parse_tls_record_header(first).ok()?;
        let length = usize::from(header.len);
        let good = header.record_type == TlsRecordType::Handshake
            && header.version.0 >> 8 == 3
            && (1..=MAX_RECORD_BYTES).contains(&length);
        if !good {
            return None;
        }
        let (content, rest) = rest.split_at(length.min(rest.len()));
        messages.extend_from_slice(content);
        first = rest;
    }
    Some(messages)
}

fn name(extensions: &[u8]) -> Visible {
    let Ok((_, extensions)) = parse_tls_client_hello_extensions(extensions) else {
        return Visible::Nothing;
    };
    let encrypted = extensions.iter().any(|one| ENCRYPTED.contains(&TlsExtensionType::from(one)));
    let names = extensions.iter().filter_map(|extension| match extension {
        TlsExtension::SNI(names) => Some(names),
        _ => None,
    });
    let mut names = names.flatten();
    let name = names.next().filter(|(kind, _)| *kind == SNIType::HostName);
    let name = name.and_then(|(_, bytes)| std::str::from_utf8(bytes).ok()?.parse::<Name>().ok());
    match (name, names.next()) {
        // RFC 6066 allows one name of each type.
        (Some(name), None) if encrypted => Visible::Outer(name),
        (Some(name), None) => Visible::Name(name),
        _ => Visible::Nothing,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a ClientHello with these extensions, in one record.
    pub fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, body)| [&kind.to_be_bytes()[..], &prefixed(2, body)].concat())
            .collect();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &prefixed(1, &[9; 32]),
            &prefixed(2, &[0x13, 1, 0x13, 2]),
            &prefixed(1, &[0]),
            &prefixed(2, &extensions),
        ]
        .concat();
        record(&[&[1][..], &prefixed(3, &body)].concat())
    }

    pub fn sni(name: &str) -> (u16, Vec<u8>) {
        (0, prefixed(2, &[&[0][..], &prefixed(2, name.as_bytes())].concat()))
    }

    fn record(content: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE, 3, 1][..], &prefixed(2, content)].concat()
    }

    fn prefixed(bytes: usize, content: &[u8]) -> Vec<u8> {
        [&content.len().to_be_bytes()[8 - bytes..], content].concat()
    }

    fn named(text: &str) -> Visible {
        Visible::Name(text.parse().unwrap())
    }

    #[test]
    fn the_name_of_a_hello() {
        assert_eq!(
            visible(&hello(&[(10, vec![0, 2, 0, 29]), sni("WWW.Gov.UK")])),
            named("www.gov.uk")
        );
        assert_eq!(visible(&hello(&[])), Visible::Nothing);
        for wrong in ["", "192.0.2.7", "a..b", "caf\u{e9}"] {
            assert_eq!(visible(&hello(&[sni(wrong)])), Visible::Nothing, "{wrong}");
        }
        assert_eq!(visible(&hello(&[sni("a.test"), sni("b.test")])), Visible::Nothing);
    }

    #[test]
    fn an_encrypted_hello_is_told_apart() {
        let outer = Visible::Outer("public.test".parse().unwrap());
        for kind in [0xfe0d, 0xffce] {
            assert_eq!(visible(&hello(&[sni("public.test"), (kind, vec![0; 200])])), outer);
        }
    }

    #[test]
    fn a_hello_in_pieces_and_in_records() {
        // As long as a hello with a post-quantum key share.
        let whole = hello(&[(51, vec![0; 1216]), sni("gov.uk")]);
        for cut in 1..whole.len() {
            assert_eq!(visible(&whole[..cut]), Visible::Partial, "{cut}");
        }
        assert_eq!(visible(&whole), named("gov.uk"));
        let content = &whole[RECORD_HEADER_BYTES..];
        let records: Vec<u8> = content.chunks(100).flat_map(record).collect();
        assert_eq!(visible(&records), named("gov.uk"));
        assert_eq!(visible(&records[..records.len() - 1]), Visible::Partial);
    }

    #[test]
    fn data_that_is_not_a_client_hello() {
        for nothing in [
            vec![HANDSHAKE, 3, 1, 0, 0],
            vec![HANDSHAKE, 3, 1, 0xff, 0xff],
            vec![HANDSHAKE, 9, 1, 0, 5, 1],
            record(&[2, 0, 0, 4, 3, 3, 0, 0]),
            [record(&[1, 0, 0, 9]), vec![23, 3, 1, 0, 1, 0]].concat(),
        ] {
            assert_eq!(visible(&nothing), Visible::Nothing, "{nothing:?}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_hello_does_no_harm(at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
            let mut bytes = hello(&[(10, vec![0, 2, 0, 29]), sni("gov.uk"), (0xfe0d, vec![1; 9])]);
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = visible(&bytes);
        }
    }
}
