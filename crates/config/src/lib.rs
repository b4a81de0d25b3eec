//! The two config files, `air.toml` and `ground.toml`, parsed once into checked values.
//!
//! A table of a file has one type if its text determines its value. Otherwise it has two: a raw
//! type, `…Table`, and a checked type, which `check` makes of it. The doc comments of the raw
//! fields are the text of `docs/settings.md` and of the JSON Schema.
//!
//! Quantities are text with their unit. Unknown keys are errors. Every error names
//! the file and the line, shows the line, and says what to write instead.
//!
//! | module | contents |
//! |---|---|
//! | `air`, `ground` | the two files |
//! | `air_link`, `listen`, `dns`, `http`, `classes`, … | one table of the files each |
//! | `auth` | a check of credentials |
//! | `reading`, `source`, `placed`, `error` | parsing, and errors that show the line |
//! | `secret` | omission of secrets from messages |
//! | `mistakes` | all mistakes of a file, not the first alone |
//! | `schema` | the JSON Schema of the files |
//! | `service` | files of a service manager: credentials and state |
//! | `least`, `share`, `applies` | checks of values, and of settings against each other |
//! | `which` | which of the two files a text is |

#![forbid(unsafe_code)]

mod aerotcp;
mod air;
mod air_link;
mod aircraft;
mod applies;
mod auth;
mod beam;
mod changes;
mod classes;
mod dial;
mod dns;
mod encrypted_dns;
mod error;
mod ground;
mod ground_dns;
mod ground_link;
mod hosts;
mod http;
mod ip;
mod key;
mod least;
mod limits;
mod listen;
mod mesh;
mod mistakes;
mod modem;
mod network;
mod origin;
mod placed;
mod preload;
mod radio;
mod radio_path;
mod rate;
mod reading;
mod rule;
mod schema;
mod secret;
mod service;
mod share;
mod site;
mod source;
mod split_http;
mod standard;
mod status;
mod tls;
mod udp;
mod usage;
mod which;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_units::Span;
use serde::Deserialize;

pub use aerotcp::{AeroTcp, TableRow, WindowKind};
pub use air::{AirConfig, Policy};
pub use air_link::AirLink;
pub use aircraft::AircraftConfig;
pub use beam::Beam;
pub use bentpipe_transport::Transport;
pub use changes::Changes;
pub use classes::{ClassConfig, Classes};
pub use dial::{Country, Denied, Dial, GeofeedPlace, Nat64, SourceAddress};
pub use dns::{AirDns, InstantNames};
pub use encrypted_dns::Encrypted;
pub use error::ConfigError;
pub use ground::GroundConfig;
pub use ground_dns::{Dns, NameServer, PrivateAddresses};
pub use ground_link::GroundLink;
pub use hosts::HostAddresses;
pub use http::{HttpCache, Page};
pub use ip::{AirIp, GroundIp, IpProtocol, Raw};
pub use key::{KeyFileError, read as read_key};
pub use limits::{AirLimits, GroundLimits, PassengerIs};
pub use listen::{Auth, Listen, Tproxy};
pub use mesh::{AirHub, EgressConfig, EgressKind, LegTransport, MAX_EGRESSES, MAX_HUBS};
pub use mistakes::{MAX_MISTAKES, mistakes};
pub use modem::{ModemConfig, ModemDiscovery, ModemSource};
pub use origin::Upstream;
pub use preload::{DEFAULT_PRELOAD_SOCKET, Preload};
pub use radio::Memory;
pub use radio_path::RadioPath;
pub use rate::LeaseSource;
pub use rule::MAX_RULES;
pub use site::Site;
pub use split_http::{AirSplitHttp, GroundSplitHttp};
pub use standard::{StandardClient, entry as client_entry, token as client_token};
pub use status::{Detail, StatusConfig, Token};
pub use tls::MAX_SITES;
pub use udp::{AirUdp, GroundUdp, Idle, Quic};
pub use usage::UsageConfig;
pub use which::Which;

use placed::Placed;
use source::Source;

/// A duration setting with its default in seconds.
const fn seconds(seconds: u64) -> Span {
    Span::new(Duration::from_secs(seconds))
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

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod web_tests;
