//! Proof of possession of X25519 keys, bound to the TLS session. The crate's documentation has the
//! exact bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use blake2::{
    Blake2s256, Blake2sMac256, Digest,
    digest::{KeyInit, Mac},
};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

/// An X25519 public key: 32 bytes, written as base64 by `bentpipe keys`.
pub type PublicKey = [u8; 32];

/// An X25519 secret key. Wiped when dropped.
pub type SecretKey = Zeroizing<[u8; 32]>;

/// Name of the authentication scheme (RFC 9110 §11.7).
pub(crate) const SCHEME: &str = "Bentpipe";

/// Label of the TLS exporter (RFC 8446 §7.5). The context is empty.
pub(crate) const EXPORTER_LABEL: &[u8] = b"EXPORTER-bentpipe-masque";

/// Label that separates this use of the shared secret from others.
const KEY_LABEL: &[u8] = b"bentpipe masque authentication v1";

/// Value of the TLS exporter for one connection.
pub(crate) type Exporter = [u8; 32];

/// Derives the public key of a secret key.
pub fn public_key(secret: &SecretKey) -> PublicKey {
    x25519_dalek::PublicKey::from(&StaticSecret::from(**secret)).to_bytes()
}

/// Side of a connection that proves its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Computes both proofs of a connection, at either peer.
pub(crate) struct Proofs {
    key: Zeroizing<[u8; 32]>,
    exporter: Exporter,
}

impl Proofs {
    /// Returns `None` if the peer's key is a low-order point. The shared secret would be all zero,
    /// and anyone could compute the proofs.
    pub fn new(
        own: &SecretKey,
        own_side: Side,
        peer: &PublicKey,
        exporter: Exporter,
    ) -> Option<Proofs> {
        let secret = StaticSecret::from(**own);
        let own_public = x25519_dalek::PublicKey::from(&secret).to_bytes();
        let shared = secret.diffie_hellman(&x25519_dalek::PublicKey::from(*peer));
        if !shared.was_contributory() {
            return None;
        }
        let (client, server) = match own_side {
            Side::Client => (&own_public, peer),
            Side::Server => (peer, &own_public),
        };
        let mut hash = Blake2s256::new();
        hash.update(KEY_LABEL);
        hash.update(shared.as_bytes());
        hash.update(client);
        hash.update(server);
        let mut key = Zeroizing::new([0; 32]);
        Digest::finalize_into(hash, (&mut *key).into());
        Some(Proofs { key, exporter })
    }

    /// Computes the proof of `side`.
    pub fn prove(&self, side: Side) -> [u8; 32] {
        self.mac(side).finalize().into_bytes().into()
    }

    /// Returns `true` if `proof` is that of `side`. Compares in constant time.
    pub fn verify(&self, side: Side, proof: &[u8; 32]) -> bool {
        self.mac(side).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side) -> Blake2sMac256 {
        // 32 bytes is the key length of BLAKE2s, so this cannot fail.
        let mut mac = <Blake2sMac256 as KeyInit>::new((&*self.key).into());
        mac.update(match side {
            Side::Client => b"client",
            Side::Server => b"server",
        });
        mac.update(&self.exporter);
        mac
    }
}

/// Formats `Bentpipe key="…", proof="…"`.
pub(crate) fn write_authorization(key: &PublicKey, proof: &[u8; 32]) -> String {
    format!("{SCHEME} key=\"{}\", proof=\"{}\"", STANDARD.encode(key), STANDARD.encode(proof))
}

/// Formats `Bentpipe proof="…"`.
pub(crate) fn write_info(proof: &[u8; 32]) -> String {
    format!("{SCHEME} proof=\"{}\"", STANDARD.encode(proof))
}

/// Parses key and proof from `proxy-authorization`.
pub(crate) fn read_authorization(header: &str) -> Option<(PublicKey, [u8; 32])> {
    Some((parameter(header, "key")?, parameter(header, "proof")?))
}

/// Parses the proof from `proxy-authentication-info`.
pub(crate) fn read_info(header: &str) -> Option<[u8; 32]> {
    parameter(header, "proof")
}

fn parameter(header: &str, name: &str) -> Option<[u8; 32]> {
    let (scheme, rest) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let value = rest.split(',').find_map(|part| {
        let (key, value) = part.trim().split_once('=')?;
        key.trim_end().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })?;
    // Exactly 32 bytes are 44 characters. The header's own limit bounds the work.
    STANDARD.decode(value).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SecretKey {
        Zeroizing::new([byte; 32])
    }

    #[test]
    fn both_ends_compute_the_same_proofs() {
        let (client, server) = (secret(1), secret(2));
        let at_client = Proofs::new(&client, Side::Client, &public_key(&server), [9; 32]).unwrap();
        let at_server = Proofs::new(&server, Side::Server, &public_key(&client), [9; 32]).unwrap();
        for side in [Side::Client, Side::Server] {
            assert!(at_server.verify(side, &at_client.prove(side)));
        }
        assert!(!at_server.verify(Side::Client, &at_client.prove(Side::Server)), "no reflection");
    }

    /// A man in the middle has another TLS session on each side, and an impostor another key.
    #[test]
    fn another_session_or_key_proves_nothing() {
        let (client, server, impostor) = (secret(1), secret(2), secret(3));
        let at_client = Proofs::new(&client, Side::Client, &public_key(&server), [9; 32]).unwrap();
        let other_session =
            Proofs::new(&server, Side::Server, &public_key(&client), [8; 32]).unwrap();
        assert!(!at_client.verify(Side::Server, &other_session.prove(Side::Server)));
        let other_key =
            Proofs::new(&impostor, Side::Server, &public_key(&client), [9; 32]).unwrap();
        assert!(!at_client.verify(Side::Server, &other_key.prove(Side::Server)));
    }

    #[test]
    fn low_order_points_are_refused() {
        let mut one = [0; 32];
        one[0] = 1;
        for point in [[0; 32], one] {
            assert!(Proofs::new(&secret(1), Side::Server, &point, [9; 32]).is_none());
        }
    }

    /// The vector of the crate's documentation, for a second implementation to check against.
    #[test]
    fn vector() {
        let proofs =
            Proofs::new(&secret(1), Side::Client, &public_key(&secret(2)), [9; 32]).unwrap();
        let client = write_authorization(&public_key(&secret(1)), &proofs.prove(Side::Client));
        let server = write_info(&proofs.prove(Side::Server));
        assert_eq!((client.as_str(), server.as_str()), VECTOR);
    }

    /// Computed with Python's hashlib and the ladder of RFC 7748, not with this code.
    const VECTOR: (&str, &str) = (
        "Bentpipe key=\"pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk=\", \
         proof=\"ogV1xrzAw1wj6qRU+Y7A6lrdaVMxXAiuovh+YE2HspI=\"",
        "Bentpipe proof=\"GwjU8lO25yeSAMXyfZMRDLxMeVCawrm/taeWzVLQ0k4=\"",
    );

    #[test]
    fn headers_round_trip_and_reject_the_malformed() {
        let header = write_authorization(&[1; 32], &[2; 32]);
        assert_eq!(read_authorization(&header), Some(([1; 32], [2; 32])));
        assert_eq!(read_info(&write_info(&[3; 32])), Some([3; 32]));
        for bad in [
            "",
            "Bentpipe",
            "Basic key=\"\"",
            "Bentpipe key=\"AAAA\", proof=\"AAAA\"",
            "Bentpipe key=\"é\"",
        ] {
            assert_eq!(read_authorization(bad), None, "{bad}");
        }
    }
}
