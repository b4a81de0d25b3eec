//! `[[site]]` of `air.toml`: names that the gateway serves itself with the operator's certificate.

use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_classify::Name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};
use schemars::JsonSchema;
use serde::Deserialize;

use super::origin::{OriginKeys, Upstream, check_each};
use super::tls::provider;
use super::{ConfigError, Placed, Source};
use bentpipe_flow::Target;

/// A name that the gateway serves itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SiteTable {
    /// Connections to port 443 with this visible name end at this gateway; all other TLS passes
    /// through untouched.
    #[schemars(title = "name")]
    name: Placed<String>,
    /// PEM: the certificate for that name and the chain to the root.
    #[schemars(title = "path")]
    certificate: Placed<PathBuf>,
    /// PEM: its private key.
    #[schemars(title = "path")]
    key: Placed<PathBuf>,
    /// Origin server, without a user name. The ground resolves and dials it by its own `[dial]`,
    /// which must allow an origin outside public networks.
    #[schemars(
        title = "`\"https://host:port\"` or `\"http://host:port\"`",
        extend("x-default" = "`https://` and the name")
    )]
    origin: Option<Placed<String>>,
    /// PEM: the authority for the origin's certificate.
    #[schemars(title = "path", extend("x-default" = "the system's root certificates"))]
    origin_ca: Option<Placed<PathBuf>>,
    /// Brings its pages whole from the ground. The ground then reads these pages and their objects,
    /// and needs a `[[site]]` of that name too. Needs `[split-http]`.
    #[serde(default)]
    split_http: bool,
}

/// A name that the gateway serves itself.
#[derive(Debug, Clone)]
pub struct Site {
    /// Name of the site.
    pub name: Name,
    /// TLS configuration for clients: HTTP/2 and HTTP/1.1.
    pub server: Arc<ServerConfig>,
    /// Address from which content that is not cached is fetched.
    pub origin: Target,
    /// TLS configuration for the origin; if absent, requests are plain HTTP.
    pub client: Option<Arc<ClientConfig>>,
    /// `true` if the ground gateway fetches whole pages, which lets it read requests and responses.
    pub split_http: bool,
}

/// Checks all sites.
pub(super) fn check(sites: Vec<SiteTable>, source: &Source<'_>) -> Result<Vec<Site>, ConfigError> {
    let sites = sites.into_iter().map(|site| (site.name.place.clone(), site));
    check_each(sites, source, |site: &Site| &site.name, |site| site.check(source))
}

impl SiteTable {
    fn check(self, source: &Source<'_>) -> Result<Site, ConfigError> {
        let (origin, origin_ca) = (self.origin.as_ref(), self.origin_ca.as_ref());
        let Upstream { name, origin, client } =
            OriginKeys { name: &self.name, origin, origin_ca }.check(source)?;
        let server = self.server(source, &name)?;
        Ok(Site { name, server, origin, client, split_http: self.split_http })
    }

    /// Loads the certificate and its key, and checks that they match each other and the name.
    fn server(&self, source: &Source<'_>, name: &Name) -> Result<Arc<ServerConfig>, ConfigError> {
        let wrong = |path: &Placed<PathBuf>, why: String| {
            let help = "certificate is a PEM file of certificates, its own first; key one of the private \
                        key that belongs to it";
            let why = format!("{}: {why}", path.display());
            path.error(source, why, help)
        };
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&source.pem(&self.certificate)?).collect();
        let chain = chain.map_err(|error| wrong(&self.certificate, error.to_string()))?;
        let Some(own) = chain.first() else {
            return Err(wrong(&self.certificate, "there is no certificate in it".to_owned()));
        };
        let for_name = rustls::pki_types::ServerName::try_from(name.as_str().to_owned())
            .map_err(|error| wrong(&self.certificate, error.to_string()))?;
        let is_for_name = rustls::server::ParsedCertificate::try_from(own)
            .and_then(|parsed| rustls::client::verify_server_name(&parsed, &for_name));
        if is_for_name.is_err() {
            let why = format!("this certificate is not for {}", name.as_str());
            return Err(wrong(&self.certificate, why));
        }
        let key = PrivateKeyDer::from_pem_slice(&source.pem_key(&self.key)?)
            .map_err(|error| wrong(&self.key, error.to_string()))?;
        let certified =
            CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
                .map_err(|error| wrong(&self.key, error.to_string()))?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(certified));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&self.certificate, error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
