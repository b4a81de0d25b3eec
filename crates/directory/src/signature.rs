//! Signatures by the gateways' X25519 keys: XEdDSA, revision 1, of Trevor Perrin.
//!
//! A configuration names each gateway by its X25519 key. The same key signs here, so no configuration
//! needs a second one. A signature is one of Ed25519 (RFC 8032, section 5.1) by the Edwards form of the
//! key whose sign is 0.

use curve25519_dalek::{EdwardsPoint, MontgomeryPoint, Scalar, scalar::clamp_integer};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest, Sha512};
use zeroize::Zeroize;

/// Length of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Beginning of everything that is signed, so that a signature counts for nothing else.
const CONTEXT: &[u8] = b"bentpipe directory 1";

/// Beginning of what is hashed to the nonce: 2^256 − 2, which no encoded point begins with.
const NONCE_CONTEXT: [u8; 32] = {
    let mut bytes = [0xff; 32];
    bytes[0] = 0xfe;
    bytes
};

/// Signs `message` by the private key `secret`. `random` has to be drawn for this signature.
pub fn sign(secret: &[u8; 32], message: &[u8], mut random: [u8; 64]) -> [u8; SIGNATURE_BYTES] {
    let mut own = Scalar::from_bytes_mod_order(clamp_integer(*secret));
    let mut public = EdwardsPoint::mul_base(&own).compress().to_bytes();
    // The Edwards form of a key has two signs. Both ends use the positive one.
    if public[31] & 0x80 != 0 {
        own = -own;
        public[31] &= 0x7f;
    }
    let mut own_bytes = own.to_bytes();
    let mut nonce = hash(&[&NONCE_CONTEXT, &own_bytes, CONTEXT, message, &random]);
    let commitment = EdwardsPoint::mul_base(&nonce).compress().to_bytes();
    let challenge = hash(&[&commitment, &public, CONTEXT, message]);
    let response = nonce + challenge * own;
    let mut signature = [0; SIGNATURE_BYTES];
    signature[..32].copy_from_slice(&commitment);
    signature[32..].copy_from_slice(response.as_bytes());
    own.zeroize();
    own_bytes.zeroize();
    nonce.zeroize();
    random.zeroize();
    signature
}

/// Returns `true` if `signature` of `message` is by the owner of the public key `key`.
pub fn is_signed(key: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    let Some(point) = MontgomeryPoint(*key).to_edwards(0) else { return false };
    // A key of small order has signatures that nobody made.
    if point.is_small_order() {
        return false;
    }
    let public = UnparsedPublicKey::new(&ED25519, point.compress().to_bytes());
    public.verify(&[CONTEXT, message].concat(), signature).is_ok()
}

/// SHA-512 of all `parts` together, as a scalar.
fn hash(parts: &[&[u8]]) -> Scalar {
    let mut hash = Sha512::new();
    parts.iter().for_each(|part| hash.update(part));
    let mut wide: [u8; 64] = hash.finalize().into();
    let scalar = Scalar::from_bytes_mod_order_wide(&wide);
    wide.zeroize();
    scalar
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn public(secret: [u8; 32]) -> [u8; 32] {
        MontgomeryPoint::mul_base_clamped(secret).to_bytes()
    }

    proptest! {
        /// `ring` verifies, which shares no code with the signing here. Half of the keys have the
        /// negative sign.
        #[test]
        fn only_the_owner_of_a_key_signs(
            secret: [u8; 32], other: [u8; 32], random: [u8; 64], message: Vec<u8>, flip in 0..512usize
        ) {
            let (key, signature) = (public(secret), sign(&secret, &message, random));
            prop_assert!(is_signed(&key, &message, &signature));
            prop_assert!(!is_signed(&public(other), &message, &signature));
            prop_assert!(!is_signed(&key, &[&message[..], &[0]].concat(), &signature));
            let mut broken = signature;
            broken[flip / 8] ^= 1 << (flip % 8);
            prop_assert!(!is_signed(&key, &message, &broken));
        }

        #[test]
        fn no_key_or_signature_panics(key: [u8; 32], message: Vec<u8>, signature: Vec<u8>) {
            prop_assert!(!is_signed(&key, &message, &signature));
        }
    }

    #[test]
    fn a_nonce_is_never_used_for_two_messages() {
        let nonce = |message: &[u8], random| sign(&[7; 32], message, random)[..32].to_vec();
        assert_ne!(nonce(b"a", [1; 64]), nonce(b"b", [1; 64]), "even if the random bytes repeat");
        assert_ne!(nonce(b"a", [1; 64]), nonce(b"a", [2; 64]));
    }

    #[test]
    fn keys_of_small_order_sign_nothing() {
        // The identity as commitment and 0 as response fit every message for the neutral element.
        let mut signature = [0; SIGNATURE_BYTES];
        signature[0] = 1;
        let one = std::array::from_fn(|at| u8::from(at == 0));
        for key in [[0; 32], one] {
            assert!(!is_signed(&key, b"", &signature));
        }
    }
}
