//! Configuration of a client.

use std::{net::SocketAddr, time::Duration};

use crate::{
    auth::{PublicKey, SecretKey},
    settings::Transport,
    trust::{Proxy, Trust},
};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Address of the server.
    pub server: SocketAddr,
    /// Further addresses of the server, tried in turn if the one before does not answer.
    pub others: Vec<SocketAddr>,
    /// Proof of the server's identity, and of the client's.
    pub trust: Trust,
    /// QUIC transport settings.
    pub transport: Transport,
    /// Maximum time that a flow waits for a connection. After it the flow is reset as unreachable.
    pub open_timeout: Duration,
    /// Pause before the first reconnection. It doubles with each failure.
    pub reconnect_min: Duration,
    /// Maximum pause between two attempts.
    pub reconnect_max: Duration,
}

impl ClientConfig {
    /// Creates a configuration with the default settings, for a server that is a gateway.
    pub fn new(server: SocketAddr, server_key: PublicKey, secret: SecretKey) -> ClientConfig {
        Self::with(server, Trust::Keys { server_key, secret })
    }

    /// Creates a configuration with the default settings, for any MASQUE proxy.
    pub fn proxy(server: SocketAddr, proxy: Proxy) -> ClientConfig {
        Self::with(server, Trust::Certificate(proxy))
    }

    fn with(server: SocketAddr, trust: Trust) -> ClientConfig {
        ClientConfig {
            server,
            others: Vec::new(),
            trust,
            transport: Transport::default(),
            open_timeout: Duration::from_secs(30),
            reconnect_min: Duration::from_secs(1),
            reconnect_max: Duration::from_secs(30),
        }
    }
}
