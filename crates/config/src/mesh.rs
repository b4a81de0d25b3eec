//! Several gateways on the ground: `[[hub]]` in both files, and `[[egress]]` in `ground.toml`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bentpipe_choice::Site;
use bentpipe_flow::{Host, Target};
use bentpipe_link::PublicKey;
use bentpipe_masque::Proxy;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::placed::placed_text;
use super::{Beam, ConfigError, GroundLink, Placed, Source, key, least};

/// Maximum number of further hubs of an aircraft. Each is called in turn.
pub const MAX_HUBS: usize = 8;
/// Maximum number of egresses of a hub, and of hubs of an egress.
pub const MAX_EGRESSES: usize = 64;
/// Maximum number of sites of an egress.
pub const MAX_SITES: usize = 256;

/// A further hub.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AirHubTable {
    /// Address of the hub.
    #[serde(deserialize_with = "least::somewhere")]
    #[schemars(with = "String", title = "host and port")]
    peer: Target,
    /// Public key of the hub.
    #[serde(deserialize_with = "placed_text")]
    #[schemars(with = "String", title = "key")]
    peer_public_key: Placed<PublicKey>,
}

/// A gateway on the ground that an aircraft may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AirHub {
    /// Its address.
    pub peer: Target,
    /// Its public key.
    pub public_key: PublicKey,
}

/// A hub that forwards flows of aircraft to this egress.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HubTable {
    /// Public key of the hub.
    #[serde(deserialize_with = "placed_text")]
    #[schemars(with = "String", title = "key")]
    public_key: Placed<PublicKey>,
}

/// An egress that dials for this hub.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EgressTable {
    /// Its address: `masque-listen` there, or `listen` if `transport` is `"link"`. For a proxy it is the
    /// name in its certificate, and its UDP port.
    #[serde(deserialize_with = "least::placed_somewhere")]
    #[schemars(with = "String", title = "host and port")]
    peer: Placed<Target>,
    /// Transport to a gateway. `"masque"` is HTTP/3. `"link"` is the radio transport with a learned rate,
    /// which fills long paths with losses, to a Bentpipe gateway without `[beam]`.
    #[serde(default)]
    #[schemars(schema_with = "transport")]
    transport: Option<Placed<LegTransport>>,
    /// Public key of the egress, if it is a Bentpipe gateway. Without it, the egress is a MASQUE proxy of
    /// any maker.
    #[serde(default, deserialize_with = "optional_key")]
    #[schemars(with = "Option<String>", title = "key", extend("x-default" = "none: a proxy"))]
    public_key: Option<Placed<PublicKey>>,
    /// PEM: the authorities of a proxy's certificate.
    #[schemars(title = "path", extend("x-default" = "the system's root certificates"))]
    ca: Option<Placed<PathBuf>>,
    /// File with one line, which a proxy gets as `proxy-authorization` with each request, as in
    /// `Bearer TOKEN`. It is a secret.
    #[schemars(title = "path", extend("x-default" = "no authorization"))]
    authorization_file: Option<Placed<PathBuf>>,
    /// Sites that this egress dials whenever it is up: domains, and networks of addresses, as in
    /// `["example.com", "198.51.100.0/24"]`. At most 256.
    #[serde(default, deserialize_with = "sites")]
    #[schemars(with = "Vec<String>", title = "list of domains and networks")]
    sites: Vec<Site>,
}

fn optional_key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Placed<PublicKey>>, D::Error> {
    placed_text(from).map(Some)
}

/// Transport between a hub and an egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LegTransport {
    /// HTTP/3 CONNECT.
    #[default]
    Masque,
    /// The radio transport with a learned rate.
    Link,
}

fn transport(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["masque", "link"], "default": "masque" })
}

/// Reads the sites of an egress.
fn sites<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Site>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    if texts.len() > MAX_SITES {
        let count = texts.len();
        return Err(D::Error::custom(format!(
            "{count} sites are too many: write at most {MAX_SITES}"
        )));
    }
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// An egress that dials for a hub.
#[derive(Debug, Clone)]
pub struct EgressConfig {
    /// Its address.
    pub peer: Target,
    /// Gateway or proxy.
    pub kind: EgressKind,
    /// Sites that it dials whenever it is up.
    pub sites: Vec<Site>,
}

/// Kind of an egress.
#[derive(Debug, Clone)]
pub enum EgressKind {
    /// A Bentpipe gateway.
    Gateway {
        /// Transport to it.
        transport: LegTransport,
        /// Its public key.
        public_key: PublicKey,
    },
    /// A MASQUE proxy of any maker.
    Proxy(Proxy),
}

impl EgressKind {
    /// Public key of a gateway; `None` for a proxy.
    pub fn public_key(&self) -> Option<&PublicKey> {
        match self {
            Self::Gateway { public_key, .. } => Some(public_key),
            Self::Proxy(_) => None,
        }
    }
}

/// Checks the further hubs of an aircraft, whose first has the key `first`.
pub(super) fn air_hubs(
    tables: Vec<AirHubTable>,
    own: PublicKey,
    first: PublicKey,
    source: &Source<'_>,
) -> Result<Vec<AirHub>, ConfigError> {
    let keys = tables.iter().map(|table| &table.peer_public_key);
    distinct(keys, "hub", MAX_HUBS, &[own, first], source)?;
    let hub = |table: AirHubTable| AirHub { peer: table.peer, public_key: *table.peer_public_key };
    Ok(tables.into_iter().map(hub).collect())
}

/// Checks the hubs of an egress. No key may be one of `taken`.
pub(super) fn hubs(
    tables: &[HubTable],
    taken: &[PublicKey],
    source: &Source<'_>,
) -> Result<Vec<PublicKey>, ConfigError> {
    distinct(tables.iter().map(|table| &table.public_key), "hub", MAX_EGRESSES, taken, source)?;
    Ok(tables.iter().map(|table| *table.public_key).collect())
}

/// Rejects an egress whose hubs have no way to it: the sessions of `listen` share a beam, which hubs are
/// not part of.
pub(super) fn check_beam(
    beam: &Placed<Beam>,
    link: &GroundLink,
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    if link.masque_listen.is_some() {
        return Ok(());
    }
    let why = "the aircraft share a beam, and hubs have no part of it";
    let help = "write masque-listen = \"[::]:4433\" under [link], by which the hubs come then";
    Err(beam.error(source, why, help))
}

/// Checks the egresses of a hub. No key may be one of `taken`, and no two may have one peer.
pub(super) fn egresses(
    tables: Vec<EgressTable>,
    taken: &[PublicKey],
    source: &Source<'_>,
) -> Result<Vec<EgressConfig>, ConfigError> {
    if tables.len() > MAX_EGRESSES {
        return Err(too_many("egress", tables.len(), MAX_EGRESSES, source));
    }
    let keys: Vec<_> = tables.iter().filter_map(|it| it.public_key.as_ref()).collect();
    distinct(keys.into_iter(), "egress", MAX_EGRESSES, taken, source)?;
    let mut peers = BTreeSet::new();
    let egress = |table: EgressTable| {
        let EgressTable { peer, transport, public_key, ca, authorization_file, sites } = table;
        if !peers.insert(peer.to_string()) {
            let why = "another [[egress]] has this peer too";
            let help = "remove one of them, or write the address at which the other egress listens";
            return Err(peer.error(source, why, help));
        }
        let peer = peer.into_inner();
        let kind = match public_key {
            Some(key) => {
                if let Some(path) = ca.or(authorization_file) {
                    let why = "a Bentpipe gateway is known by its public-key, and a proxy by its certificate";
                    let help =
                        "leave this out, or public-key if the egress is a proxy of another maker";
                    return Err(path.error(source, why, help));
                }
                let transport = transport.map(Placed::into_inner).unwrap_or_default();
                EgressKind::Gateway { transport, public_key: *key }
            }
            None => {
                if let Some(link) = transport.filter(|it| **it == LegTransport::Link) {
                    let why = "transport = \"link\" needs the public-key of a Bentpipe gateway";
                    let help = "write public-key, or leave transport out for a MASQUE proxy";
                    return Err(link.error(source, why, help));
                }
                EgressKind::Proxy(proxy(&peer, ca.as_ref(), authorization_file.as_ref(), source)?)
            }
        };
        Ok(EgressConfig { peer, kind, sites })
    };
    tables.into_iter().map(egress).collect()
}

/// Reads the certificates and the authorization for the proxy at `peer`.
fn proxy(
    peer: &Target,
    ca: Option<&Placed<PathBuf>>,
    authorization: Option<&Placed<PathBuf>>,
    source: &Source<'_>,
) -> Result<Proxy, ConfigError> {
    let name = match &peer.host {
        Host::Ip(address) => address.to_string(),
        Host::Name(name) => name.clone(),
        // No text is a service.
        Host::Service(_) => String::new(),
    };
    let authorities = match ca {
        Some(path) => {
            let read: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(&source.pem(path)?).collect();
            read.unwrap_or_default()
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    if roots.is_empty() {
        let why = format!("there is no certificate of an authority for the proxy {peer}");
        let help = "write ca = \"ca.pem\", a PEM file of certificates, or install the system's root \
                    certificates (package ca-certificates)";
        return Err(ConfigError::at(source, ca.map(|path| path.place.clone()), why, help));
    }
    let value = authorization.map(|path| authorization_of(path, source)).transpose()?;
    Proxy::new(&name, authorities, value).map_err(|error| {
        let place = authorization.or(ca).map(|path| path.place.clone());
        let help = "peer is the name in the proxy's certificate, and authorization-file has one line of \
                    visible characters, as in Bearer TOKEN";
        ConfigError::at(source, place, format!("the proxy {peer}: {error}"), help)
    })
}

/// Reads the only line of the file at `path`, which no error shows.
fn authorization_of(
    path: &Placed<PathBuf>,
    source: &Source<'_>,
) -> Result<Zeroizing<String>, ConfigError> {
    let full = source.beside(path);
    let shown = full.display();
    let bytes = key::secret_bytes(&full).map_err(|error| {
        let why = format!("{shown} cannot be read: {error}");
        path.error(source, why, "name a file that this user may read")
    })?;
    let line = std::str::from_utf8(&bytes).ok().map(str::trim_end);
    let line = line.filter(|line| !line.is_empty() && !line.contains(['\n', '\r']));
    line.map(|line| Zeroizing::new(line.to_owned())).ok_or_else(|| {
        let why = format!("{shown} is not one line of text");
        path.error(source, why, "write the value of proxy-authorization there: Bearer TOKEN")
    })
}

fn too_many(table: &str, count: usize, max: usize, source: &Source<'_>) -> ConfigError {
    let why = format!("there are {count} tables [[{table}]]");
    ConfigError::at(source, None, why, format!("write at most {max}"))
}

/// Rejects too many keys, a key that is there twice, and one of `taken`.
fn distinct<'a>(
    keys: impl ExactSizeIterator<Item = &'a Placed<PublicKey>>,
    table: &str,
    max: usize,
    taken: &[PublicKey],
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    if keys.len() > max {
        return Err(too_many(table, keys.len(), max, source));
    }
    let mut seen: BTreeSet<PublicKey> = taken.iter().copied().collect();
    for key in keys {
        if !seen.insert(**key) {
            let why = "this key belongs to another gateway of this file, or to this one";
            let help = "every gateway has its own: `bentpipe keys --show` prints it there";
            return Err(key.error(source, why, help));
        }
    }
    Ok(())
}
