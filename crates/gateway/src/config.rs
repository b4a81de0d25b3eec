//! The two config files, `air.toml` and `ground.toml`, parsed once into checked values.
//!
//! Quantities are text with their unit. Unknown keys are errors. Every error names
//! the file and the line, shows the line, and says what to write instead.

mod aerotcp;
mod air;
mod applies;
mod beam;
mod classes;
mod dial;
mod dns;
mod error;
mod ground;
mod hosts;
mod http;
mod ip;
mod key;
mod least;
mod modem;
mod origin;
mod preload;
mod radio;
mod rule;
mod site;
mod split_http;
mod standard;
mod status;
mod udp;
mod which;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_link::{PublicKey, SecretKey};
use bentpipe_units::Span;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use aerotcp::{AeroTcp, TableRow, WindowKind};
pub use air::{
    AirConfig, AirLimits, AirLink, Auth, LeaseSource, Listen, PassengerIs, Policy, Tproxy,
    Transport, UsageConfig,
};
pub use beam::Beam;
pub use classes::{ClassConfig, Classes};
pub use dial::{Denied, Dial, Nat64};
pub use dns::{AirDns, Encrypted};
pub use error::ConfigError;
pub use ground::{
    AircraftConfig, Dns, GroundConfig, GroundLimits, GroundLink, NameServer, PrivateAddresses,
};
pub use hosts::HostAddresses;
pub use http::{HttpCache, Page};
pub use ip::{AirIp, GroundIp, IpProtocol, Raw};
pub use key::KeyFileError;
pub use modem::{ModemConfig, ModemSource};
pub use origin::{GroundSite, Upstream};
pub use preload::Preload;
pub use radio::Memory;
pub use rule::MAX_RULES;
pub use site::{Loaded as SiteLoaded, MAX_SITES, Site};
pub use split_http::{AirSplitHttp, GroundSplitHttp};
pub use standard::{Masque, StandardClient, entry as client_entry, token as client_token};
pub use status::{Detail, StatusConfig};
pub use udp::{AirUdp, GroundUdp, Quic};
pub use which::Which;

/// A duration setting with its default in seconds.
const fn seconds(seconds: u64) -> Span {
    Span::new(Duration::from_secs(seconds))
}

/// RFC 5382 REQ-5: a middlebox keeps an established connection at least this long.
const DEFAULT_IDLE: Span = seconds(2 * 3600 + 4 * 60);
const DEFAULT_STALL: Span = seconds(300);
const DEFAULT_DRAIN: Span = seconds(30);

/// A file being parsed, for its errors.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(self.text).map_err(|error| ConfigError::from_toml(self, &error))
    }

    /// A path in the file is relative to the file.
    fn beside(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Content of the PEM file that `path` names.
    fn pem(&self, path: &toml::Spanned<PathBuf>) -> Result<Vec<u8>, ConfigError> {
        let full = self.beside(path.get_ref());
        std::fs::read(&full).map_err(|error| {
            let why = format!("{} cannot be read: {error}", full.display());
            let help = "name a PEM file that this user may read".to_owned();
            ConfigError::at(self, Some(path.span()), why, help)
        })
    }

    /// Refuses what cannot be the name of an interface; `example` shows one that can.
    fn interface_name(
        &self,
        name: &toml::Spanned<String>,
        example: &str,
    ) -> Result<(), ConfigError> {
        let text = name.get_ref();
        // The kernel's own rule for names, less what nft would read as syntax.
        let good = (1..16).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b));
        if good {
            return Ok(());
        }
        let why = format!("{text:?} is not the name of a network interface");
        let help = format!("`ip link` lists them: {example}");
        Err(ConfigError::at(self, Some(name.span()), why, help))
    }

    /// Refuses two of the `keys` in `table` to listen at one address.
    fn listen_apart(
        &self,
        table: &str,
        keys: &[(&'static str, Option<SocketAddr>)],
    ) -> Result<(), ConfigError> {
        let set = || keys.iter().filter_map(|(key, at)| Some((*key, (*at)?)));
        for (at, (key, address)) in set().enumerate() {
            let same = |(_, other): &(_, SocketAddr)| {
                let any = other.ip().is_unspecified() || address.ip().is_unspecified();
                other.port() == address.port()
                    && address.port() != 0
                    && (any || other.ip() == address.ip())
            };
            if let Some((first, _)) = set().take(at).find(same) {
                let why = format!("{key} and {first} would listen at the same address");
                let help = "give one of them another port".to_owned();
                let place = applies::place_of(self, table, key)?;
                return Err(ConfigError::at(self, place, why, help));
            }
        }
        Ok(())
    }

    /// Reads the private key that `path` names.
    fn private_key(&self, path: &toml::Spanned<PathBuf>) -> Result<SecretKey, ConfigError> {
        let full = self.beside(path.get_ref());
        key::read(&full).map_err(|error| {
            let help = match &error {
                KeyFileError::Unreadable { source, .. }
                    if source.kind() != std::io::ErrorKind::NotFound =>
                {
                    "it is there: let this user read it, or name another file".to_owned()
                }
                _ => format!("make one with `bentpipe keys --out {}`", full.display()),
            };
            ConfigError::at(self, Some(path.span()), error.to_string(), help)
        })
    }
}

/// The folder that `file` is in.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    Some(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.to_owned())
}

fn read(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, &error))
}

/// Text that parses into `T`, for serde.
fn from_text<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// A public key, and where it stands.
fn spanned_key<'de, D>(from: D) -> Result<toml::Spanned<PublicKey>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let text = toml::Spanned::<String>::deserialize(from)?;
    let key = text.get_ref().parse().map_err(serde::de::Error::custom)?;
    Ok(toml::Spanned::new(text.span(), key))
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod web_tests;
