//! The two config files, `air.toml` and `ground.toml`, parsed once into checked values.
//!
//! Quantities are text with their unit. Unknown keys are errors. Every error names
//! the file and the line, shows the line, and says what to write instead.
//!
//! | module | contents |
//! |---|---|
//! | `air`, `ground` | the two files |
//! | `listen`, `dns`, `http`, `classes`, … | one table of the files each |
//! | `auth` | a check of credentials |
//! | `reading`, `source`, `error` | parsing, and errors that show the line |
//! | `least`, `share`, `applies` | checks of values, and of settings against each other |
//! | `which` | which of the two files a text is |

#![forbid(unsafe_code)]

mod aerotcp;
mod air;
mod applies;
mod auth;
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
mod listen;
mod modem;
mod origin;
mod preload;
mod radio;
mod rate;
mod reading;
mod rule;
mod share;
mod site;
mod source;
mod split_http;
mod standard;
mod status;
mod tls;
mod udp;
mod which;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_link::PublicKey;
use bentpipe_units::Span;
use serde::Deserialize;

use bentpipe_relay as relay;
use bentpipe_split_http as pages;
use bentpipe_transport as transport;

pub use crate::transport::Transport;
pub use aerotcp::{AeroTcp, TableRow, WindowKind};
pub use air::{AirConfig, AirLimits, AirLink, PassengerIs, Policy, UsageConfig};
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
pub use listen::{Auth, Listen, Tproxy};
pub use modem::{ModemConfig, ModemDiscovery, ModemSource};
pub use origin::{GroundSite, Upstream};
pub use preload::{DEFAULT_PRELOAD_SOCKET, Preload};
pub use radio::Memory;
pub use rate::LeaseSource;
pub use rule::MAX_RULES;
pub use site::{Loaded as SiteLoaded, Site};
pub use split_http::{AirSplitHttp, GroundSplitHttp};
pub use standard::{Masque, StandardClient, entry as client_entry, token as client_token};
pub use status::{Detail, StatusConfig};
pub use tls::MAX_SITES;
pub use udp::{AirUdp, GroundUdp, Idle, Quic};
pub use which::Which;

use source::Source;

/// A duration setting with its default in seconds.
const fn seconds(seconds: u64) -> Span {
    Span::new(Duration::from_secs(seconds))
}

/// RFC 5382 REQ-5: a middlebox keeps an established connection at least this long.
const DEFAULT_IDLE: Span = seconds(2 * 3600 + 4 * 60);
const DEFAULT_STALL: Span = seconds(300);
const DEFAULT_DRAIN: Span = seconds(30);

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
