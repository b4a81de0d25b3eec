//! Certificates of the encrypted resolver.

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;

use bentpipe_config::Encrypted;

/// TLS acceptors for clients: DNS over TLS, and over HTTPS.
pub struct Certificates(RwLock<[TlsAcceptor; 2]>);

impl Certificates {
    /// Creates acceptors with the certificate of `config`.
    pub fn new(config: &Encrypted) -> Self {
        Self(RwLock::new(acceptors(config)))
    }

    /// Uses the certificate of `config` for new connections; open connections continue.
    pub fn set(&self, config: &Encrypted) {
        *self.0.write() = acceptors(config);
    }

    /// Acceptor of DNS over TLS.
    pub fn tls(&self) -> TlsAcceptor {
        self.0.read()[0].clone()
    }

    /// Acceptor of DNS over HTTPS.
    pub fn https(&self) -> TlsAcceptor {
        self.0.read()[1].clone()
    }
}

fn acceptors(config: &Encrypted) -> [TlsAcceptor; 2] {
    [config.server(&["dot"]), config.server(&["h2", "http/1.1"])].map(TlsAcceptor::from)
}
