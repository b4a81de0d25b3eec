//! `[[site]]` of `air.toml`: names whose certificate the operator has, so that the gateway itself may
//! answer for them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Source};
use crate::classify::Name;
use bentpipe_link::{Host, Target};

/// The most sites: they are looked through for each connection to port 443.
pub const MAX_SITES: usize = 64;

/// The port of HTTPS.
const HTTPS: u16 = 443;

/// A name that the gateway answers for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Site {
    name: Spanned<String>,
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
    origin: Option<Spanned<String>>,
    origin_ca: Option<Spanned<PathBuf>>,
    #[serde(skip)]
    loaded: Option<Loaded>,
}

/// What a site's files come to.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The name.
    pub name: Name,
    /// How clients are served: HTTP/2 and HTTP/1.1.
    pub server: Arc<ServerConfig>,
    /// Where what is not here is asked for.
    pub origin: Target,
    /// How it is known there; without it, it is asked in clear.
    pub client: Option<Arc<ClientConfig>>,
}

impl Site {
    /// What its files come to.
    pub fn loaded(&self) -> &Loaded {
        // AirConfig::parse, the only maker of this type, has filled it.
        self.loaded.as_ref().expect("a parsed config holds its sites")
    }

    fn load(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        let place = Some(self.name.span());
        let name: Name =
            self.name.get_ref().parse().map_err(|error: crate::classify::DomainError| {
                let help =
                    "write the name in the certificate: name = \"portal.example\"".to_owned();
                ConfigError::at(source, place, error.to_string(), help)
            })?;
        let server = self.server(source, &name)?;
        let (origin, in_clear) = self.origin(source, &name)?;
        let client = if in_clear { None } else { Some(self.client(source)?) };
        self.loaded = Some(Loaded { name, server, origin, client });
        Ok(())
    }

    /// The certificate and its key, which have to belong to each other and to the name.
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
        let key = PrivateKeyDer::from_pem_slice(&source.pem(&self.key)?)
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

    /// Where its origin is, and whether it is asked in clear.
    fn origin(&self, source: &Source<'_>, name: &Name) -> Result<(Target, bool), ConfigError> {
        let Some(written) = &self.origin else {
            let host = Host::Name(name.as_str().to_owned());
            return Ok((Target { host, port: HTTPS }, false));
        };
        let parsed = written.get_ref().parse::<Uri>().ok().and_then(|uri| {
            let in_clear = match uri.scheme_str()? {
                "http" => true,
                "https" => false,
                _ => return None,
            };
            let bare = matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("/"));
            let host = uri.host().filter(|_| bare)?.parse().ok()?;
            let port = uri.port_u16().unwrap_or(if in_clear { 80 } else { HTTPS });
            Some((Target { host, port }, in_clear))
        });
        parsed.ok_or_else(|| {
            let why = format!("{:?} is not where an origin is", written.get_ref());
            let help = "write origin = \"https://origin.example\", or \"http://10.0.0.5:8080\"";
            ConfigError::at(source, Some(written.span()), why, help.to_owned())
        })
    }

    /// Whom to believe that the origin is the origin.
    fn client(&self, source: &Source<'_>) -> Result<Arc<ClientConfig>, ConfigError> {
        let mut roots = RootCertStore::empty();
        let (place, certificates) = match &self.origin_ca {
            Some(path) => {
                let parsed: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(&source.pem(path)?).collect();
                (path.span(), parsed.unwrap_or_default())
            }
            None => (self.name.span(), rustls_native_certs::load_native_certs().certs),
        };
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            let why =
                format!("nobody says which origin of {} is the right one", self.name.get_ref());
            let help = "install the system's root certificates (package ca-certificates), or write \
                        origin-ca = \"ca.pem\"";
            return Err(ConfigError::at(source, Some(place), why, help.to_owned()));
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                ConfigError::at(source, Some(place), error.to_string(), String::new())
            })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Loads all of them.
pub(super) fn load(sites: &mut [Site], source: &Source<'_>) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    for (at, site) in sites.iter_mut().enumerate() {
        let place = Some(site.name.span());
        if at == MAX_SITES {
            let why = format!("there are more than {MAX_SITES} sites");
            return Err(ConfigError::at(source, place, why, "remove some".to_owned()));
        }
        site.load(source)?;
        if !names.insert(site.loaded().name.as_str().to_owned()) {
            let why = format!("{} is written twice", site.loaded().name.as_str());
            return Err(ConfigError::at(source, place, why, "remove one of them".to_owned()));
        }
    }
    Ok(())
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
