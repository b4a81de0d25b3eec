//! Client state between visits: TLS sessions, and the trusted certificates.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;

use super::Load;
use crate::site::{Authority, AuthorityError, TlsVersion, provider};

/// Servers whose sessions are cached: more than any site here has domains.
const SERVERS: usize = 256;

/// State of a client. A session is resumed only with exactly the configuration that began it, so
/// the configurations are kept with the sessions.
#[derive(Clone)]
pub struct Tickets {
    tls12: ClientConfig,
    tls13: ClientConfig,
    quic: ClientConfig,
}

impl Tickets {
    /// An empty state that trusts `authority`.
    pub fn new(authority: &Authority) -> Result<Self, AuthorityError> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.certificate().clone())?;
        let config = |tls: TlsVersion| -> Result<ClientConfig, AuthorityError> {
            let mut config = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[tls.version()])?
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.resumption = Resumption::in_memory_sessions(SERVERS);
            Ok(config)
        };
        let mut quic = config(TlsVersion::Tls13)?;
        quic.enable_early_data = true;
        Ok(Self { tls12: config(TlsVersion::Tls12)?, tls13: config(TlsVersion::Tls13)?, quic })
    }

    /// TLS configuration over TCP for `load`.
    pub(super) fn tls(&self, load: &Load<'_>, alpn: &[u8]) -> Arc<ClientConfig> {
        let config = match load.tls {
            TlsVersion::Tls12 => &self.tls12,
            TlsVersion::Tls13 => &self.tls13,
        };
        Arc::new(Self::with(config, load, alpn))
    }

    /// TLS configuration within QUIC for `load`.
    pub(super) fn quic(&self, load: &Load<'_>) -> ClientConfig {
        Self::with(&self.quic, load, b"h3")
    }

    fn with(config: &ClientConfig, load: &Load<'_>, alpn: &[u8]) -> ClientConfig {
        let mut config = config.clone();
        config.alpn_protocols = vec![alpn.to_vec()];
        if !load.protocol.resumes() {
            config.resumption = Resumption::disabled();
            config.enable_early_data = false;
        }
        config
    }
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}
