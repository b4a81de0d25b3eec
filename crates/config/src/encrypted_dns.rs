//! `[dns.encrypted]` of `air.toml`: DNS over TLS and HTTPS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_classify::Name;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tls::provider;
use super::{ConfigError, Placed, Source};

/// DNS over TLS and HTTPS, with the operator's certificate. At least one address is needed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EncryptedTable {
    /// Addresses for DNS over TLS: port 853.
    #[serde(default)]
    #[schemars(title = "list of addresses")]
    tls: Vec<SocketAddr>,
    /// Addresses for DNS over HTTPS, HTTP/2 and HTTP/1.1, at `/dns-query`.
    #[serde(default)]
    #[schemars(title = "list of addresses")]
    https: Vec<SocketAddr>,
    /// Name of the resolver, for which the certificate must be valid; announced to devices that ask
    /// for encrypted resolvers (docs/dns.md#announcing-encrypted-dns).
    #[schemars(title = "name")]
    name: Option<Placed<String>>,
    /// PEM: the certificate of the resolver's name and the chain to the root.
    #[schemars(title = "path")]
    certificate: Placed<PathBuf>,
    /// PEM: its private key.
    #[schemars(title = "path")]
    key: Placed<PathBuf>,
}

/// DNS over TLS and HTTPS, with the operator's certificate.
#[derive(Debug, Clone)]
pub struct Encrypted {
    /// Addresses of DNS over TLS (RFC 7858).
    pub tls: Vec<SocketAddr>,
    /// Addresses of DNS over HTTPS (RFC 8484), at `/dns-query`.
    pub https: Vec<SocketAddr>,
    /// Name of the resolver for discovery of its encrypted endpoints, if configured.
    pub name: Option<Name>,
    server: Arc<ServerConfig>,
}

impl Encrypted {
    /// TLS configuration of a server that speaks one of `protocols` (RFC 7301).
    pub fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let mut server = ServerConfig::clone(&self.server);
        server.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(server)
    }
}

impl EncryptedTable {
    pub fn check(self, source: &Source<'_>) -> Result<Encrypted, ConfigError> {
        if self.tls.is_empty() && self.https.is_empty() {
            let why = "nobody is shown this certificate";
            let help = "write tls = [\"10.0.0.1:853\"] or https = [\"10.0.0.1:443\"], or leave out \
                        [dns.encrypted]";
            return Err(self.certificate.error(source, why, help));
        }
        let (chain, key) = (source.pem(&self.certificate)?, source.pem_key(&self.key)?);
        let server = server(&chain, &key).map_err(|why| {
            let help = "certificate is a PEM file of certificates, its own first; key one of the \
                        private key that belongs to it";
            self.certificate.error(source, why, help)
        })?;
        let name = self.name.map(|name| named(source, &name, &chain)).transpose()?;
        Ok(Encrypted { tls: self.tls, https: self.https, name, server: Arc::new(server) })
    }
}

/// Parses `name` and checks that the certificate covers it.
fn named(source: &Source<'_>, name: &Placed<String>, chain: &[u8]) -> Result<Name, ConfigError> {
    let wrong = |why: String| {
        let help = "write the name that the certificate is for, or leave it out: devices are told of the \
                    encrypted resolver by it";
        name.error(source, why, help)
    };
    let parsed: Name = name.parse().map_err(|error| wrong(format!("{error}")))?;
    let for_name = ServerName::try_from(parsed.as_str().to_owned());
    let for_name = for_name.map_err(|error| wrong(error.to_string()))?;
    let own = CertificateDer::pem_slice_iter(chain).find_map(Result::ok);
    let is_for_name = own.is_some_and(|own| {
        ParsedCertificate::try_from(&own)
            .and_then(|parsed| rustls::client::verify_server_name(&parsed, &for_name))
            .is_ok()
    });
    if !is_for_name {
        return Err(wrong(format!("the certificate is not for {}", parsed.as_str())));
    }
    Ok(parsed)
}

fn server(chain: &[u8], key: &[u8]) -> Result<ServerConfig, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| format!("reading the certificate: {error}"))?;
    if chain.is_empty() {
        return Err("there is no CERTIFICATE in the certificate's file".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|error| format!("reading the certificate's key: {error}"))?;
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| error.to_string())
}
