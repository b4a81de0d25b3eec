//! Shared definitions for the TLS that a gateway terminates itself.

use std::sync::Arc;

/// Maximum number of sites, because each connection to port 443 is compared with all of them.
pub const MAX_SITES: usize = 64;

/// Cryptography provider for TLS.
pub(super) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
