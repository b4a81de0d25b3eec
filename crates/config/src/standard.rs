//! Standard MASQUE clients of the ground gateway: the server's certificate and the clients' tokens.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bentpipe_link::Class;
use bentpipe_masque::{Certificate, Login, token_hash};
use serde::Deserialize;
use toml::Spanned;

use super::classes::{class, default_class};
use super::{ConfigError, Source, least};

/// Concurrent TCP flows of one client, and as many datagram flows: many times what a browser needs.
/// All idle, they take 5 MiB.
const MAX_FLOWS: usize = 1_024;

/// New flows of one client per second.
const FLOWS_PER_SECOND: u32 = 100;

/// `[masque]`: certificate that HTTP/3 presents to clients that do not know our keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Masque {
    /// Certificate chain, PEM.
    certificate: Spanned<PathBuf>,
    /// Private key of the certificate, PEM.
    key: Spanned<PathBuf>,
    #[serde(skip)]
    loaded: Option<Arc<Certificate>>,
}

/// `[[client]]`: a standard client, with the same rights as an aircraft.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StandardClient {
    name: Spanned<String>,
    #[serde(deserialize_with = "hash")]
    token_hash: Spanned<[u8; 32]>,
    /// Highest class of the client's flows. Flows that request a higher class get this class.
    #[serde(default = "default_class", deserialize_with = "class")]
    pub highest_class: Class,
    /// Concurrent TCP flows.
    #[serde(default = "max_flows", deserialize_with = "least::one")]
    pub max_flows: usize,
    /// Concurrent datagram flows, counted separately.
    #[serde(default = "max_flows")]
    pub max_datagram_flows: usize,
    /// New flows of each kind per second, on average; bursts of twice as many are allowed.
    #[serde(default = "flows_per_second", deserialize_with = "least::one")]
    pub flows_per_second: u32,
}

const fn max_flows() -> usize {
    MAX_FLOWS
}

const fn flows_per_second() -> u32 {
    FLOWS_PER_SECOND
}

impl Masque {
    /// The certificate with its key.
    pub fn certificate(&self) -> Arc<Certificate> {
        // GroundConfig::parse, the only constructor, has set it.
        self.loaded.clone().expect("a parsed config holds its certificate")
    }

    pub(super) fn load(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        let (chain, key) = (source.pem(&self.certificate)?, source.pem_key(&self.key)?);
        let certificate = Certificate::from_pem(&chain, &key).map_err(|error| {
            let help = "certificate is a PEM file of certificates, its own first; key one of the \
                        private key that belongs to it";
            let place = Some(self.certificate.span());
            ConfigError::at(source, place, error.to_string(), help.to_owned())
        })?;
        self.loaded = Some(Arc::new(certificate));
        Ok(())
    }
}

impl StandardClient {
    /// Name in the log, which is also its username.
    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// Login data for the server.
    pub fn login(&self) -> Login {
        let flows = self.max_flows.saturating_add(self.max_datagram_flows);
        Login {
            name: self.name().to_owned(),
            token_hash: *self.token_hash.get_ref(),
            max_flows: u32::try_from(flows).unwrap_or(u32::MAX),
        }
    }
}

/// Checks that clients can be distinguished, and that there is a certificate to present.
pub(super) fn check(
    clients: &[StandardClient],
    masque: Option<&Masque>,
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    let mut hashes = BTreeSet::new();
    for client in clients {
        let name = client.name();
        let (place, why, help) = if masque.is_none() {
            let help = "write [masque] with certificate = \"FILE\" and key = \"FILE\"";
            (client.name.span(), format!("{name:?} has no certificate to verify"), help)
        } else if !is_name(name) {
            let help = "write 1 to 64 visible ASCII characters without a colon";
            (client.name.span(), format!("{name:?} cannot be a user's name in HTTP"), help)
        } else if !names.insert(name) {
            let help = "every client has its own name";
            (client.name.span(), format!("{name:?} is the name of another client"), help)
        } else if *client.token_hash.get_ref() == token_hash("") {
            let help = "make a token with `bentpipe keys --client NAME --out FILE`";
            (client.token_hash.span(), format!("the token of {name:?} is empty"), help)
        } else if !hashes.insert(client.token_hash.get_ref()) {
            let help = "every client has its own: make one with `bentpipe keys --client NAME`";
            (client.token_hash.span(), format!("{name:?} has the token of another client"), help)
        } else {
            continue;
        };
        return Err(ConfigError::at(source, Some(place), why, help.to_owned()));
    }
    Ok(())
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

fn hash<'de, D>(from: D) -> Result<Spanned<[u8; 32]>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let text = Spanned::<String>::deserialize(from)?;
    let bytes = STANDARD.decode(text.get_ref()).ok().and_then(|bytes| bytes.try_into().ok());
    let wrong = "this is no hash of a token: `bentpipe keys --client NAME --out FILE` prints one";
    let hash = bytes.ok_or_else(|| serde::de::Error::custom(wrong))?;
    Ok(Spanned::new(text.span(), hash))
}

#[cfg(test)]
mod tests;
