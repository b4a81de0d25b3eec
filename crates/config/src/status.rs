//! Status file of the gateway's current traffic.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{ConfigError, Placed, Source, auth, key, seconds, service};

/// Current traffic, written periodically: docs/status.md.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StatusTable {
    /// Path of the file; replaced as a whole.
    #[schemars(title = "path")]
    file: Placed<PathBuf>,
    /// Time between two files, at least a second.
    #[serde(default = "default_interval")]
    interval: Placed<Span>,
    /// Address of this host with a page for the operator, and the same as metrics for Prometheus
    /// below /metrics: docs/monitoring.md.
    listen: Option<Placed<SocketAddr>>,
    /// File with a token of 16 to 256 printable characters, which every request to that address must
    /// present. An address that others can reach needs one.
    #[schemars(title = "path")]
    token_file: Option<Placed<PathBuf>>,
    /// Level of detail; beyond classes the file contains personal data. Only with the radio
    /// transport.
    #[serde(default)]
    detail: Detail,
}

/// Status file of the gateway's current traffic, and its level of detail.
#[derive(Debug, Clone)]
pub struct StatusConfig {
    /// Path of the file, which is always replaced as a whole.
    pub file: PathBuf,
    /// Interval of writes.
    pub interval: Span,
    /// Level of detail.
    pub detail: Detail,
    /// Address for metrics and the operator's page.
    pub listen: Option<SocketAddr>,
    /// Token that requests to that address must present.
    pub token: Option<Token>,
}

/// Lengths of a token. The shortest has 64 bits if it is written in hexadecimal digits.
const TOKEN_CHARACTERS: RangeInclusive<usize> = 16..=256;

/// Secret that monitoring and operators present.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

/// Level of detail of the file. Data about passengers and flows are personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Classes only; no passenger is identified.
    #[default]
    Classes,
    /// Classes and the busiest passengers.
    Passengers,
    /// Classes, passengers and the busiest flows: who communicates with whom.
    Flows,
}

const fn default_interval() -> Placed<Span> {
    Placed::nowhere(seconds(5))
}

impl StatusTable {
    /// Checks the settings. A missing directory is not an error, because systemd creates
    /// directories under /run.
    pub fn check(self, source: &Source<'_>) -> Result<StatusConfig, ConfigError> {
        let file = source.beside(&self.file);
        if self.interval.duration().as_secs() == 0 {
            let why = format!("a status every {} would be all that is done", *self.interval);
            let help = "write a second or more: interval = \"5 s\"";
            return Err(self.interval.error(source, why, help));
        }
        if file.file_name().is_none() || file.is_dir() {
            let why = format!("{} is a directory", file.display());
            let help = "name a file: file = \"/run/bentpipe/status.json\"";
            return Err(self.file.error(source, why, help));
        }
        let token = self.token_file.as_ref().map(|path| Token::read(source, path)).transpose()?;
        if let Some(path) = self.token_file.as_ref().filter(|_| self.listen.is_none()) {
            let why = "no address is served that the token could protect";
            return Err(path.error(
                source,
                why,
                "write listen = \"[::]:9464\" too, or remove this",
            ));
        }
        let is_open = |listen: &&Placed<SocketAddr>| !listen.ip().is_loopback() && token.is_none();
        if let Some(listen) = self.listen.as_ref().filter(is_open) {
            let why = format!("{} can be reached by others, and no token is configured", **listen);
            let help = "write listen = \"127.0.0.1:9464\", and let a proxy or a tunnel lead there; or name a \
                        file with a token: token-file = \"status.token\"";
            return Err(listen.error(source, why, help));
        }
        let listen = self.listen.map(|listen| *listen);
        Ok(StatusConfig { file, interval: *self.interval, detail: self.detail, listen, token })
    }
}

impl Token {
    /// Creates a token of 16 to 256 printable characters; `None` for other text.
    pub fn new(text: &str) -> Option<Self> {
        let is_good =
            TOKEN_CHARACTERS.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        is_good.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// Reads the token in the file at `path`, without white space around it.
    fn read(source: &Source<'_>, path: &Placed<PathBuf>) -> Result<Self, ConfigError> {
        let written = source.beside(path);
        let full = service::credential(&written).unwrap_or(written);
        let make = format!("make one with `openssl rand -hex 16 > {}`", full.display());
        let text = key::secret(&full).map_err(|error| {
            path.error(source, format!("{} cannot be read: {error}", full.display()), &*make)
        })?;
        Self::new(text.trim()).ok_or_else(|| {
            let (min, max) = (TOKEN_CHARACTERS.start(), TOKEN_CHARACTERS.end());
            let why =
                format!("{} has no token of {min} to {max} printable characters", full.display());
            path.error(source, why, make)
        })
    }

    /// Returns `true` if `presented` is the token. The time of the check does not reveal how much of
    /// it was right.
    pub fn is(&self, presented: &[u8]) -> bool {
        auth::same(self.0.as_bytes(), presented)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Detail {
    /// Name in the configuration file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Passengers => "passengers",
            Self::Flows => "flows",
        }
    }
}
