//! Status file of the gateway's current traffic.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Placed, Source, seconds};

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
    /// Loopback address for metrics.
    pub listen: Option<SocketAddr>,
}

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
        if let Some(listen) = self.listen.as_ref().filter(|listen| !listen.ip().is_loopback()) {
            let why =
                format!("{} can be reached by others, and metrics have no password", **listen);
            let help = "write listen = \"127.0.0.1:9464\", and let a proxy or a tunnel lead there";
            return Err(listen.error(source, why, help));
        }
        let listen = self.listen.map(|listen| *listen);
        Ok(StatusConfig { file, interval: *self.interval, detail: self.detail, listen })
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
