//! Configuration of the server.

use std::{collections::HashSet, sync::Arc};

use crate::{
    auth::{PublicKey, SecretKey},
    login::Login,
    settings::Transport,
    tls::Certificate,
};

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Secret key of the server.
    pub secret: SecretKey,
    /// Clients that are served.
    pub clients: HashSet<PublicKey>,
    /// Hubs that are served. They forward flows of aircraft, and the keys that they name are believed.
    pub hubs: HashSet<PublicKey>,
    /// QUIC transport settings.
    pub transport: Transport,
    /// Name in `proxy-status`: a token of RFC 9110 such as `ground`.
    pub name: String,
    /// Certificate for standard clients, which are refused without one.
    pub certificate: Option<Arc<Certificate>>,
    /// Standard clients that are served.
    pub logins: Vec<Login>,
}

impl ServerConfig {
    /// Creates a configuration with the default settings.
    pub fn new(secret: SecretKey, clients: HashSet<PublicKey>) -> ServerConfig {
        ServerConfig {
            secret,
            clients,
            hubs: HashSet::new(),
            transport: Transport::default(),
            name: "bentpipe".into(),
            certificate: None,
            logins: Vec::new(),
        }
    }
}
