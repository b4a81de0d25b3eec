//! `[[site]]` of `air.toml`: names that the gateway serves itself with the operator's certificate.

use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_classify::Name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;
use toml::Spanned;

use super::origin::{Upstream, Written, load_each};
use super::tls::provider;
use super::{ConfigError, Source};
use bentpipe_flow::Target;

/// A name that the gateway serves itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Site {
    name: Spanned<String>,
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
    origin: Option<Spanned<String>>,
    origin_ca: Option<Spanned<PathBuf>>,
    #[serde(default)]
    split_http: bool,
    #[serde(skip)]
    loaded: Option<Loaded>,
}

/// Loaded and checked settings of a site.
#[derive(Debug, Clone)]
pub struct Loaded {
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

impl Site {
    /// Loaded and checked settings.
    pub fn loaded(&self) -> &Loaded {
        // AirConfig::parse, the only constructor, has set it.
        self.loaded.as_ref().expect("a parsed config holds its sites")
    }

    fn load(&mut self, source: &Source<'_>) -> Result<Name, ConfigError> {
        let (origin, origin_ca) = (self.origin.as_ref(), self.origin_ca.as_ref());
        let Upstream { name, origin, client } =
            Written { name: &self.name, origin, origin_ca }.load(source)?;
        let server = self.server(source, &name)?;
        let split_http = self.split_http;
        let loaded = Loaded { name, server, origin, client, split_http };
        Ok(self.loaded.insert(loaded).name.clone())
    }

    /// Loads the certificate and its key, and checks that they match each other and the name.
    fn server(&self, source: &Source<'_>, name: &Name) -> Result<Arc<ServerConfig>, ConfigError> {
        let wrong = |path: &Spanned<PathBuf>, why: String| {
            let help = "certificate is a PEM file of certificates, its own first; key one of the private \
                        key that belongs to it";
            let why = format!("{}: {why}", path.get_ref().display());
            ConfigError::at(source, Some(path.span()), why, help.to_owned())
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

/// Loads all sites.
pub(super) fn load(sites: &mut [Site], source: &Source<'_>) -> Result<(), ConfigError> {
    let place = |site: &Site| site.name.span();
    load_each(sites, source, place, |site| site.load(source))
}
