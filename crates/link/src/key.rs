//! Keys of gateways: X25519, in base64 as WireGuard writes them.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore;
use zeroize::Zeroize;

use crate::curve;

/// Length of either key.
pub const KEY_BYTES: usize = 32;

/// A gateway's private key. It is erased when dropped, and `Debug` never shows it.
#[derive(Clone)]
pub struct SecretKey {
    bytes: [u8; KEY_BYTES],
    /// Computed once, because each handshake needs it.
    public: OnceLock<PublicKey>,
}

/// A gateway's public key, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// Text that is not a usable key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not a key at all.
    #[error(
        "{written:?} is not a key: a key is 32 bytes in base64 (44 characters); make one with `bentpipe keys`"
    )]
    Malformed {
        /// The text; empty for a secret, which no message should repeat.
        written: String,
    },
    /// A public key of small order: with any private key the shared secret is zero, which everybody
    /// knows (RFC 7748, section 6.1). A handshake with it never succeeds.
    #[error(
        "{written:?} is nobody's key: write the one that `bentpipe keys` made for that gateway"
    )]
    Nobodys {
        /// The text.
        written: String,
    },
}

impl SecretKey {
    /// Generates a key from `rng`, which must be cryptographically strong outside simulations.
    pub fn generate(rng: &mut impl RngCore) -> Self {
        let mut bytes = [0; KEY_BYTES];
        rng.fill_bytes(&mut bytes);
        Self::from_bytes(bytes)
    }

    /// Creates a key from its bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self { bytes, public: OnceLock::new() }
    }

    /// Returns the key's bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        *self.public.get_or_init(|| PublicKey(curve::public_of(&self.bytes)))
    }

    /// Returns the text of a key file.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.bytes)
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for SecretKey {}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

impl PublicKey {
    /// Creates a key from its bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the key's bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    STANDARD.decode(text.trim()).ok()?.try_into().ok()
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let written = || text.trim().to_owned();
        let key = decode(text).ok_or_else(|| KeyError::Malformed { written: written() })?;
        // Private keys are multiples of eight, so that any of them reveals points of small order.
        let any = x25519_dalek::StaticSecret::from([1; KEY_BYTES]);
        if any.diffie_hellman(&x25519_dalek::PublicKey::from(key)).was_contributory() {
            Ok(Self(key))
        } else {
            Err(KeyError::Nobodys { written: written() })
        }
    }
}

impl FromStr for SecretKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self::from_bytes).ok_or(KeyError::Malformed { written: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_the_public_key_is_x25519s() {
        // RFC 7748, section 5.2: one step of the iterated test, from the base point.
        let mut base = [0; KEY_BYTES];
        base[0] = 9;
        let secret = SecretKey::from_bytes(base);
        let public: String =
            secret.public().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(public, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
        assert_eq!(secret.public().to_string().parse(), Ok(secret.public()));
        assert_eq!(secret.to_base64().parse(), Ok(secret));
    }

    #[test]
    fn points_of_small_order_are_refused() {
        let (mut one, mut prime) = ([0; KEY_BYTES], [0xff; KEY_BYTES]);
        one[0] = 1;
        (prime[0], prime[31]) = (0xed, 0x7f);
        for point in [[0; KEY_BYTES], one, prime] {
            let text = PublicKey::from_bytes(point).to_string();
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError::Nobodys { written: text.clone() }));
        }
    }

    #[test]
    fn the_error_for_a_wrong_key_says_how_to_make_one() {
        let error = "hello".parse::<PublicKey>().unwrap_err().to_string();
        assert!(error.contains("bentpipe keys"), "{error}");
        let error = "c2VjcmV0".parse::<SecretKey>().unwrap_err().to_string();
        assert!(!error.contains("c2VjcmV0"), "a secret must not be repeated: {error}");
    }
}
