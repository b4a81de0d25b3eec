//! Proof of a server's identity, and of the client's.

use std::fmt;

use rustls::pki_types::{CertificateDer, ServerName};
use zeroize::Zeroizing;

use crate::auth::{PublicKey, SecretKey};

/// Proof of a server's identity, and of the client's.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The server is a gateway. Both prove that they have their keys.
    Keys {
        /// Public key of the server.
        server_key: PublicKey,
        /// Secret key of the client. The server must know its public key.
        secret: SecretKey,
    },
    /// The server is any MASQUE proxy, and is verified as in HTTPS.
    Certificate(Proxy),
}

/// A MASQUE proxy that need not be a gateway.
#[derive(Clone)]
pub struct Proxy {
    name: ServerName<'static>,
    authorities: Vec<CertificateDer<'static>>,
    authorization: Option<Zeroizing<String>>,
}

/// No certificate can have this name.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither the name of a host nor an address")]
pub struct InvalidName(String);

impl Proxy {
    /// A proxy whose certificate names `name` and is issued by one of `authorities`. It gets
    /// `authorization` as `proxy-authorization` with each request (RFC 9110, section 11.7.2).
    pub fn new(
        name: &str,
        authorities: Vec<CertificateDer<'static>>,
        authorization: Option<Zeroizing<String>>,
    ) -> Result<Self, InvalidName> {
        let parsed = ServerName::try_from(name.to_owned());
        let name = parsed.map_err(|_| InvalidName(name.to_owned()))?;
        Ok(Self { name, authorities, authorization })
    }

    /// Name in the certificate.
    pub(crate) fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    pub(crate) fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    pub(crate) fn authorization(&self) -> Option<&str> {
        self.authorization.as_ref().map(|value| value.as_str())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("name", &self.name).finish_non_exhaustive()
    }
}
