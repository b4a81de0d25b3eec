//! Standard MASQUE clients of the ground gateway: the server's certificate and the clients' tokens.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bentpipe_link::Class;
use bentpipe_masque::{Certificate, Login, token_hash};
use schemars::JsonSchema;
use serde::Deserialize;

use super::classes::ClassName;
use super::{ConfigError, Placed, Source, least};

/// Concurrent TCP flows of one client, and as many datagram flows: many times what a browser needs.
/// All idle, they take 5 MiB.
const MAX_FLOWS: usize = 1_024;

/// New flows of one client per second.
const FLOWS_PER_SECOND: u32 = 100;

/// `[masque]`: certificate that HTTP/3 presents to clients that do not know our keys.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MasqueTable {
    /// PEM: its own certificate and the chain to the root.
    #[schemars(title = "path")]
    certificate: Placed<PathBuf>,
    /// PEM: its private key.
    #[schemars(title = "path")]
    key: Placed<PathBuf>,
}

/// `[[client]]`: a standard client, with the same rights as an aircraft.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClientTable {
    /// Its user name, also in the log; 1 to 64 visible characters without a colon.
    name: Placed<String>,
    /// BLAKE2s-256 of its token; `bentpipe keys --client NAME` prints it.
    #[serde(deserialize_with = "hash")]
    #[schemars(with = "String", title = "base64")]
    token_hash: Placed<[u8; 32]>,
    /// Most favoured class of its flows, as for an aircraft.
    #[serde(default)]
    highest_class: ClassName,
    /// Its TCP flows at once, as for an aircraft.
    #[serde(default = "max_flows", deserialize_with = "least::one")]
    max_flows: usize,
    /// Its UDP flows at once, as for an aircraft.
    #[serde(default = "max_flows")]
    max_datagram_flows: usize,
    /// Its new flows of each kind, as for an aircraft.
    #[serde(default = "flows_per_second", deserialize_with = "least::one")]
    flows_per_second: u32,
}

/// A standard client, with the same rights as an aircraft.
#[derive(Debug, Clone)]
pub struct StandardClient {
    /// Login data for the server. The name is also the one in the log.
    pub login: Login,
    /// Highest class of the client's flows. Flows that request a higher class get this class.
    pub highest_class: Class,
    /// Concurrent TCP flows.
    pub max_flows: usize,
    /// Concurrent datagram flows, counted separately.
    pub max_datagram_flows: usize,
    /// New flows of each kind per second, on average; bursts of twice as many are allowed.
    pub flows_per_second: u32,
}

const fn max_flows() -> usize {
    MAX_FLOWS
}

const fn flows_per_second() -> u32 {
    FLOWS_PER_SECOND
}

impl MasqueTable {
    pub fn check(self, source: &Source<'_>) -> Result<Arc<Certificate>, ConfigError> {
        let (chain, key) = (source.pem(&self.certificate)?, source.pem_key(&self.key)?);
        let certificate = Certificate::from_pem(&chain, &key).map_err(|error| {
            let help = "certificate is a PEM file of certificates, its own first; key one of the \
                        private key that belongs to it";
            self.certificate.error(source, error.to_string(), help)
        })?;
        Ok(Arc::new(certificate))
    }
}

impl From<ClientTable> for StandardClient {
    fn from(table: ClientTable) -> Self {
        let flows = table.max_flows.saturating_add(table.max_datagram_flows);
        Self {
            login: Login {
                token_hash: *table.token_hash,
                name: table.name.into_inner(),
                max_flows: u32::try_from(flows).unwrap_or(u32::MAX),
            },
            highest_class: table.highest_class.0,
            max_flows: table.max_flows,
            max_datagram_flows: table.max_datagram_flows,
            flows_per_second: table.flows_per_second,
        }
    }
}

/// Checks that clients can be distinguished, and that there is a certificate to present if
/// `has_certificate`.
pub(super) fn check(
    clients: Vec<ClientTable>,
    has_certificate: bool,
    source: &Source<'_>,
) -> Result<Vec<StandardClient>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut hashes = BTreeSet::new();
    for ClientTable { name, token_hash: hash, .. } in &clients {
        let shown = &**name;
        let (place, why, help) = if !has_certificate {
            let help = "write [masque] with certificate = \"FILE\" and key = \"FILE\"";
            (&name.place, format!("{shown:?} has no certificate to verify"), help)
        } else if !is_name(name) {
            let help = "write 1 to 64 visible ASCII characters without a colon";
            (&name.place, format!("{shown:?} cannot be a user's name in HTTP"), help)
        } else if !names.insert(shown) {
            let help = "every client has its own name";
            (&name.place, format!("{shown:?} is the name of another client"), help)
        } else if **hash == token_hash("") {
            let help = "make a token with `bentpipe keys --client NAME --out FILE`";
            (&hash.place, format!("the token of {shown:?} is empty"), help)
        } else if !hashes.insert(**hash) {
            let help = "every client has its own: make one with `bentpipe keys --client NAME`";
            (&hash.place, format!("{shown:?} has the token of another client"), help)
        } else {
            continue;
        };
        return Err(ConfigError::at(source, Some(place.clone()), why, help));
    }
    Ok(clients.into_iter().map(Into::into).collect())
}

/// A username ends at the first colon (RFC 7617 §2).
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b':')
}

/// Encodes 256 random bits as a token that is valid in URLs.
pub fn token(random: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(random)
}

/// Returns the `ground.toml` entry for a client with this token. The error describes a valid
/// `name`.
pub fn entry(name: &str, token: &str) -> Result<String, String> {
    if !is_name(name) {
        return Err(format!("{name:?}: write 1 to 64 visible ASCII characters without a colon"));
    }
    let hash = STANDARD.encode(token_hash(token));
    // For such characters, Debug of a string is valid TOML.
    Ok(format!("[[client]]\nname = {name:?}\ntoken-hash = \"{hash}\"\n"))
}

fn hash<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Placed<[u8; 32]>, D::Error> {
    Placed::<String>::deserialize(from)?.try_map(|text| {
        let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        let wrong =
            "this is not a hash of a token: `bentpipe keys --client NAME --out FILE` prints one";
        bytes.ok_or_else(|| serde::de::Error::custom(wrong))
    })
}

#[cfg(test)]
mod tests;
