//! Several gateways on the ground: `[[hub]]` in both files, and `[[egress]]` in `ground.toml`.

use std::collections::BTreeSet;

use bentpipe_choice::Site;
use bentpipe_flow::Target;
use bentpipe_link::PublicKey;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::placed::placed_text;
use super::{Beam, ConfigError, GroundLink, Placed, Source, least};

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
    /// Its address: `masque-listen` there, or `listen` if `transport` is `"link"`.
    #[serde(deserialize_with = "least::somewhere")]
    #[schemars(with = "String", title = "host and port")]
    peer: Target,
    /// Transport to it. `"masque"` is HTTP/3. `"link"` is the radio transport with a learned rate, which
    /// fills long paths with losses. The egress has to be a Bentpipe gateway without `[beam]`.
    #[serde(default)]
    #[schemars(schema_with = "transport")]
    transport: LegTransport,
    /// Public key of the egress.
    #[serde(deserialize_with = "placed_text")]
    #[schemars(with = "String", title = "key")]
    public_key: Placed<PublicKey>,
    /// Sites that this egress dials whenever it is up: domains, and networks of addresses, as in
    /// `["example.com", "198.51.100.0/24"]`. At most 256.
    #[serde(default, deserialize_with = "sites")]
    #[schemars(with = "Vec<String>", title = "list of domains and networks")]
    sites: Vec<Site>,
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

/// A gateway that dials for a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    /// Its address.
    pub peer: Target,
    /// Transport to it.
    pub transport: LegTransport,
    /// Its public key.
    pub public_key: PublicKey,
    /// Sites that it dials whenever it is up.
    pub sites: Vec<Site>,
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

/// Checks the egresses of a hub. No key may be one of `taken`.
pub(super) fn egresses(
    tables: Vec<EgressTable>,
    taken: &[PublicKey],
    source: &Source<'_>,
) -> Result<Vec<EgressConfig>, ConfigError> {
    distinct(tables.iter().map(|it| &it.public_key), "egress", MAX_EGRESSES, taken, source)?;
    let egress = |table: EgressTable| {
        let EgressTable { peer, transport, public_key, sites } = table;
        EgressConfig { peer, transport, public_key: *public_key, sites }
    };
    Ok(tables.into_iter().map(egress).collect())
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
        let why = format!("there are {} tables [[{table}]]", keys.len());
        return Err(ConfigError::at(source, None, why, format!("write at most {max}")));
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
