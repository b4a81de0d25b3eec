//! Proof of a server's identity, and of the client's.

use std::fmt;

use http::HeaderValue;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
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

/// A proxy cannot be described like this.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxy {
    /// No certificate can have this name.
    #[error("{0:?} is neither the name of a host nor an address")]
    Name(String),
    /// A field cannot have the authorization as its value.
    #[error("the authorization has characters that no field of HTTP may have")]
    Authorization,
}

/// Port that `:authority` leaves out.
const HTTPS: u16 = 443;

impl Proxy {
    /// A proxy whose certificate names `name` and is issued by one of `authorities`. It gets
    /// `authorization` as `proxy-authorization` with each request (RFC 9110, section 11.7.2).
    pub fn new(
        name: &str,
        authorities: Vec<CertificateDer<'static>>,
        authorization: Option<Zeroizing<String>>,
    ) -> Result<Self, InvalidProxy> {
        let parsed = ServerName::try_from(name.to_owned());
        let name = parsed.map_err(|_| InvalidProxy::Name(name.to_owned()))?;
        let is_value = |it: &Zeroizing<String>| HeaderValue::from_str(it).is_ok();
        if !authorization.as_ref().is_none_or(is_value) {
            return Err(InvalidProxy::Authorization);
        }
        Ok(Self { name, authorities, authorization })
    }

    /// Returns `true` if requests have an authorization.
    pub fn is_authorized(&self) -> bool {
        self.authorization.is_some()
    }

    /// Name in the certificate.
    pub(crate) fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// Name and `port` of the proxy in requests to itself.
    pub(crate) fn authority(&self, port: u16) -> String {
        let host = match &self.name {
            ServerName::IpAddress(IpAddr::V6(_)) => format!("[{}]", self.name()),
            _ => self.name(),
        };
        if port == HTTPS { host } else { format!("{host}:{port}") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_has_brackets_and_a_port_where_they_are_needed() {
        let of = |name: &str, port| Proxy::new(name, Vec::new(), None).unwrap().authority(port);
        assert_eq!(of("proxy.example", 443), "proxy.example");
        assert_eq!(of("proxy.example", 4443), "proxy.example:4443");
        assert_eq!(of("2001:db8::1", 4443), "[2001:db8::1]:4443");
    }

    #[test]
    fn bad_names_and_values_are_refused() {
        let of = |name: &str, value: &str| {
            Proxy::new(name, Vec::new(), Some(Zeroizing::new(value.to_owned()))).err()
        };
        assert_eq!(of("proxy.example", "Bearer x"), None);
        assert_eq!(of("proxy.example", "Bearer x\r\n"), Some(InvalidProxy::Authorization));
        assert_eq!(of("-", ""), Some(InvalidProxy::Name("-".into())));
    }
}
