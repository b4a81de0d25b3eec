//! Grounds for tests.

use bentpipe_flow::Target;
use curve25519_dalek::MontgomeryPoint;

use crate::Key;
use crate::entry::{Entry, MAX_LIFETIME, Place, Statement};

/// Private and public key of a ground.
pub fn ground(number: u32) -> ([u8; 32], Key) {
    let mut secret = [7; 32];
    secret[..4].copy_from_slice(&number.to_be_bytes());
    (secret, MontgomeryPoint::mul_base_clamped(secret).to_bytes())
}

/// A statement with everything in it.
pub fn statement() -> Statement {
    let address: Target = "192.0.2.1:4433".parse().unwrap_or_else(|_| unreachable!("a target"));
    Statement {
        is_hub: true,
        is_egress: false,
        is_leaving: false,
        load: 40,
        place: Place::new(50.05, 8.57),
        addresses: vec![address],
    }
}

/// An entry of a ground.
pub fn entry_of(number: u32, version: u64) -> Entry {
    let (secret, key) = ground(number);
    Entry::sign((&secret, key), version, MAX_LIFETIME, &statement(), [1; 64])
}
