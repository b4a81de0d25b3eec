//! Authentication and secrecy: the Noise handshake, its denial-of-service protection, packet keys.

mod aead;
mod cipher;
#[cfg(test)]
pub mod erasure_tests;
mod handshake;
mod keychain;
mod keys;
mod mac;
mod replay;

pub use aead::{Aead, Aeads};
pub(crate) use handshake::PROLOGUE;
pub use handshake::{InitPayload, ReceivedInit, ResponsePayload, SentInit, respond};
pub use keychain::{Aged, Keychain, MIN_REJECT_AFTER, reject_after};
pub use keys::Keys;
pub use mac::{CookieJar, CookieMonitor, MAC_BYTES, MacKey, mac1_of};
pub use replay::ReplayWindow;

/// Strong generator, seeded by the edge, for all randomness of a session.
pub type Rng = rand_chacha::ChaCha20Rng;
