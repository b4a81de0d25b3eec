//! Origin of a site and its authentication: shared settings of `[[site]]` in both files, and all of
//! `[[site]]` in `ground.toml`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_classify::Name;
use bentpipe_flow::{Host, Target};
use bentpipe_net::ip;
use http::Uri;
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use toml::Spanned;

use super::tls::{MAX_SITES, provider};
use super::{ConfigError, Dial, Source};

/// Default port of HTTPS.
const HTTPS: u16 = 443;

/// A name whose pages the ground gateway fetches for the aircraft that serve it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroundSite {
    name: Spanned<String>,
    origin: Option<Spanned<String>>,
    origin_ca: Option<Spanned<PathBuf>>,
    #[serde(skip)]
    loaded: Option<Upstream>,
}

/// A site's origin.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Name of the site.
    pub name: Name,
    /// Address from which content that is not cached is fetched.
    pub origin: Target,
    /// TLS configuration for the origin; if absent, requests are plain HTTP.
    pub client: Option<Arc<ClientConfig>>,
}

/// Settings of one site, as written.
pub(super) struct Written<'a> {
    pub name: &'a Spanned<String>,
    pub origin: Option<&'a Spanned<String>>,
    pub origin_ca: Option<&'a Spanned<PathBuf>>,
}

impl GroundSite {
    /// Checked settings.
    pub fn upstream(&self) -> &Upstream {
        // GroundConfig::parse, the only constructor, has set it.
        self.loaded.as_ref().expect("a parsed config holds its sites")
    }
}

/// Loads all sites of the ground gateway. Their origins are dialled under the rules of `dial`.
pub(super) fn load(
    sites: &mut [GroundSite],
    dial: &Dial,
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let place = |site: &GroundSite| site.name.span();
    load_each(sites, source, place, |site| {
        let (origin, origin_ca) = (site.origin.as_ref(), site.origin_ca.as_ref());
        let upstream = Written { name: &site.name, origin, origin_ca }.load(source)?;
        if let (Some(written), Host::Ip(ip)) = (origin, &upstream.origin.host)
            && dial.permit(*ip, ip::TCP, upstream.origin.port).is_none()
        {
            let name = upstream.name.as_str();
            let (why, help) = if dial.denies(*ip, ip::TCP, upstream.origin.port) {
                let why = format!("{ip}, the origin of {name}, stands in deny under [dial]");
                (why, "remove it there, or write another origin".to_owned())
            } else {
                let why = format!(
                    "{ip}, the origin of {name}, is not on the Internet, and [dial] does not allow it"
                );
                (why, format!("write allow = [\"{}\"] under [dial]", IpNet::from(*ip)))
            };
            return Err(ConfigError::at(source, Some(written.span()), why, help));
        }
        Ok(site.loaded.insert(upstream).name.clone())
    })
}

/// Loads each of `sites` with `load`, which returns the site's name. `place` gives its position for
/// errors. There may be at most [`MAX_SITES`] sites, each with a different name.
pub(super) fn load_each<S>(
    sites: &mut [S],
    source: &Source<'_>,
    place: impl Fn(&S) -> Range<usize>,
    load: impl Fn(&mut S) -> Result<Name, ConfigError>,
) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    for (at, site) in sites.iter_mut().enumerate() {
        let place = Some(place(site));
        if at == MAX_SITES {
            let why = format!("there are more than {MAX_SITES} sites");
            return Err(ConfigError::at(source, place, why, "remove some".to_owned()));
        }
        let name = load(site)?;
        if !names.insert(name.as_str().to_owned()) {
            let why = format!("{} is written twice", name.as_str());
            return Err(ConfigError::at(source, place, why, "remove one of them".to_owned()));
        }
    }
    Ok(())
}

impl Written<'_> {
    /// Checks the settings.
    pub fn load(&self, source: &Source<'_>) -> Result<Upstream, ConfigError> {
        let name: Name =
            self.name.get_ref().parse().map_err(|error: bentpipe_classify::DomainError| {
                let help =
                    "write the name in the certificate: name = \"portal.example\"".to_owned();
                ConfigError::at(source, Some(self.name.span()), error.to_string(), help)
            })?;
        let (origin, in_clear) = self.origin(source, &name)?;
        if let Some(ca) = self.origin_ca.filter(|_| in_clear) {
            let why = "an origin that is asked in clear shows no certificate".to_owned();
            let help = "write origin = \"https://…\", or leave out origin-ca".to_owned();
            return Err(ConfigError::at(source, Some(ca.span()), why, help));
        }
        let client = if in_clear { None } else { Some(self.client(source)?) };
        Ok(Upstream { name, origin, client })
    }

    /// Returns the address of the origin, and `true` if requests are plain HTTP.
    fn origin(&self, source: &Source<'_>, name: &Name) -> Result<(Target, bool), ConfigError> {
        let Some(written) = self.origin else {
            let host = Host::Name(name.as_str().to_owned());
            return Ok((Target { host, port: HTTPS }, false));
        };
        let parsed = written.get_ref().parse::<Uri>().ok();
        let authority = parsed.as_ref().and_then(Uri::authority);
        if authority.is_some_and(|authority| authority.as_str().contains('@')) {
            let why = format!("the origin of {} has a user's name in it", name.as_str());
            let help = "leave out what stands before the @: origins are asked without credentials";
            return Err(ConfigError::at(source, Some(written.span()), why, help.to_owned()));
        }
        let parsed = parsed.and_then(|uri| {
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

    /// Trust anchors for the origin.
    fn client(&self, source: &Source<'_>) -> Result<Arc<ClientConfig>, ConfigError> {
        let mut roots = RootCertStore::empty();
        let (place, certificates) = match self.origin_ca {
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
