//! Settings of a recorder.

use std::net::IpAddr;
use std::sync::Arc;

use crate::site::{Authority, Ports};

/// Settings of a recorder.
#[derive(Debug, Clone)]
pub struct RecorderSettings {
    /// Signer of the certificates that the browser sees.
    pub authority: Authority,
    /// Accepted root certificates for the sites' own certificates.
    pub roots: Arc<rustls::RootCertStore>,
    /// Additional names with their addresses, which the system cannot resolve.
    pub hosts: Vec<(String, IpAddr)>,
    /// Ports of the sites that receive the requests to ports 80 and 443.
    pub ports: Ports,
}

impl RecorderSettings {
    /// Root certificates, names and ports of the system.
    pub fn of_this_system(authority: Authority) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        // Certificates that TLS does not accept are useless here and left out.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self { authority, roots: Arc::new(roots), hosts: Vec::new(), ports: Ports::default() }
    }
}
