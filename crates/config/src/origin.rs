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
use schemars::JsonSchema;
use serde::Deserialize;

use super::tls::{MAX_SITES, provider};
use super::{ConfigError, Dial, Placed, Source};

/// Default port of HTTPS.
const HTTPS: u16 = 443;

/// A name whose pages the ground gateway fetches for the aircraft that serve it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GroundSiteTable {
    /// The ground fetches pages of this name over TLS, for aircraft that serve it (their `[[site]]`
    /// with `split-http = true`).
    #[schemars(title = "name")]
    name: Placed<String>,
    /// Origin server, without a user name. An address outside public networks must be in `allow`
    /// under `[dial]`, or the file is refused. The address of a name is checked when it is dialled.
    #[schemars(
        title = "`\"https://host:port\"` or `\"http://host:port\"`",
        extend("x-default" = "`https://` and the name")
    )]
    origin: Option<Placed<String>>,
    /// PEM: the authority for the origin's certificate.
    #[schemars(title = "path", extend("x-default" = "the system's root certificates"))]
    origin_ca: Option<Placed<PathBuf>>,
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

/// Origin of one site, as written.
pub(super) struct OriginKeys<'a> {
    pub name: &'a Placed<String>,
    pub origin: Option<&'a Placed<String>>,
    pub origin_ca: Option<&'a Placed<PathBuf>>,
}

/// Checks all sites of the ground gateway. Their origins are dialled under the rules of `dial`.
pub(super) fn check(
    sites: Vec<GroundSiteTable>,
    dial: &Dial,
    source: &Source<'_>,
) -> Result<Vec<Upstream>, ConfigError> {
    let sites = sites.into_iter().map(|site| (site.name.place.clone(), site));
    check_each(
        sites,
        source,
        |site: &Upstream| &site.name,
        |site| {
            let (origin, origin_ca) = (site.origin.as_ref(), site.origin_ca.as_ref());
            let upstream = OriginKeys { name: &site.name, origin, origin_ca }.check(source)?;
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
                return Err(written.error(source, why, help));
            }
            Ok(upstream)
        },
    )
}

/// Checks each of `sites` with `check`. Each comes with its position for errors; `name` gives the
/// name of a checked site. There may be at most [`MAX_SITES`] sites, each with a different name.
pub(super) fn check_each<T, S>(
    sites: impl Iterator<Item = (Range<usize>, T)>,
    source: &Source<'_>,
    name: impl Fn(&S) -> &Name,
    check: impl Fn(T) -> Result<S, ConfigError>,
) -> Result<Vec<S>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::new();
    for (place, site) in sites {
        let wrong = |why: String, help| Err(ConfigError::at(source, Some(place), why, help));
        if checked.len() == MAX_SITES {
            return wrong(format!("there are more than {MAX_SITES} sites"), "remove some");
        }
        let site = check(site)?;
        let name = name(&site).as_str();
        if !names.insert(name.to_owned()) {
            return wrong(format!("{name} is written twice"), "remove one of them");
        }
        checked.push(site);
    }
    Ok(checked)
}

impl OriginKeys<'_> {
    /// Checks the settings.
    pub fn check(&self, source: &Source<'_>) -> Result<Upstream, ConfigError> {
        let name: Name = self.name.parse().map_err(|error: bentpipe_classify::DomainError| {
            let help = "write the name in the certificate: name = \"portal.example\"";
            self.name.error(source, error.to_string(), help)
        })?;
        let (origin, in_clear) = self.origin(source, &name)?;
        if let Some(ca) = self.origin_ca.filter(|_| in_clear) {
            let why = "an origin that is asked in clear shows no certificate";
            return Err(ca.error(
                source,
                why,
                "write origin = \"https://…\", or leave out origin-ca",
            ));
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
        let parsed = written.parse::<Uri>().ok();
        let authority = parsed.as_ref().and_then(Uri::authority);
        if authority.is_some_and(|authority| authority.as_str().contains('@')) {
            let why = format!("the origin of {} has a user's name in it", name.as_str());
            let help = "leave out what stands before the @: origins are asked without credentials";
            return Err(written.error(source, why, help));
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
            let why = format!("{:?} is not where an origin is", **written);
            let help = "write origin = \"https://origin.example\", or \"http://10.0.0.5:8080\"";
            written.error(source, why, help)
        })
    }

    /// Trust anchors for the origin.
    fn client(&self, source: &Source<'_>) -> Result<Arc<ClientConfig>, ConfigError> {
        let mut roots = RootCertStore::empty();
        let (place, certificates) = match self.origin_ca {
            Some(path) => {
                let parsed: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(&source.pem(path)?).collect();
                (&path.place, parsed.unwrap_or_default())
            }
            None => (&self.name.place, rustls_native_certs::load_native_certs().certs),
        };
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            let why = format!("nobody says which origin of {} is the right one", **self.name);
            let help = "install the system's root certificates (package ca-certificates), or write \
                        origin-ca = \"ca.pem\"";
            return Err(ConfigError::at(source, Some(place.clone()), why, help));
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError::at(source, Some(place.clone()), error.to_string(), ""))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
