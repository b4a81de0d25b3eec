//! Authentication and secrecy: the Noise handshake, its denial-of-service guards, packet keys.

mod cipher;
#[cfg(test)]
mod erasure_tests;
mod handshake;
mod keychain;
mod keys;
mod mac;
mod replay;

pub(crate) use handshake::PROLOGUE;
pub use handshake::{InitPayload, Initiator, ReceivedInit, ResponsePayload, respond};
pub use keychain::{Aged, Keychain, MIN_REJECT_AFTER, reject_after};
pub use keys::{Keys, MAX_PACKETS_PER_KEY};
pub use mac::{CookieJar, CookieMonitor, MAC_BYTES, MacKey, mac1_of};
pub use replay::ReplayWindow;

/// A strong generator, seeded by the edge, that everything random in a session comes from.
pub type Rng = rand_chacha::ChaCha20Rng;
