//! Settings of a site's servers.

use crate::emu::Congestion;
use crate::site::{Authority, DEFAULT_MAX_STREAMS, Ports, TlsVersion};

/// TLS sessions cached for each of TLS and QUIC: 2 for each connection, enough for two visits to a
/// site of 33 domains. 4 MB.
pub(super) const SESSIONS: usize = 1024;

/// Settings of a site's servers.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Signer of its certificates.
    pub authority: Authority,
    /// The only version of TLS over TCP. QUIC always uses 1.3.
    pub tls: TlsVersion,
    /// Maximum concurrent requests on one connection of HTTP/2 or HTTP/3.
    pub max_streams: u32,
    /// Congestion control of QUIC; TCP uses the kernel's.
    pub congestion: Congestion,
    /// Ports of the servers.
    pub ports: Ports,
}

impl ServerSettings {
    /// TLS 1.3, a hundred streams, CUBIC, the protocols' default ports.
    pub fn new(authority: Authority) -> Self {
        Self {
            authority,
            tls: TlsVersion::Tls13,
            max_streams: DEFAULT_MAX_STREAMS,
            congestion: Congestion::Cubic,
            ports: Ports::default(),
        }
    }
}
