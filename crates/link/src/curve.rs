//! X25519 (RFC 7748). All curve arithmetic of the crate is here, so that tests can count it.

use x25519_dalek::{PublicKey, StaticSecret};

/// Returns the public key of a private one.
pub fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    count();
    PublicKey::from(&StaticSecret::from(*secret)).to_bytes()
}

/// Returns the shared secret of a private key and a public one.
pub fn shared(secret: &[u8; 32], public: [u8; 32]) -> [u8; 32] {
    count();
    StaticSecret::from(*secret).diffie_hellman(&PublicKey::from(public)).to_bytes()
}

#[cfg(not(test))]
const fn count() {}

#[cfg(test)]
fn count() {
    tests::OPERATIONS.with(|operations| operations.set(operations.get() + 1));
}

#[cfg(test)]
pub use tests::operations;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    thread_local! {
        pub static OPERATIONS: Cell<u64> = const { Cell::new(0) };
    }

    /// Number of curve operations of this thread so far; each test has a thread of its own.
    pub fn operations() -> u64 {
        OPERATIONS.with(Cell::get)
    }
}
