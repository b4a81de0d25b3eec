//! Status file of the gateway's current traffic.

use std::path::PathBuf;

use bentpipe_units::Span;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Source, applies, seconds};

/// Status file of the gateway's current traffic, and its level of detail.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StatusConfig {
    #[serde(rename = "file")]
    written: toml::Spanned<PathBuf>,
    /// Path of the file, which is always replaced as a whole.
    #[serde(skip)]
    pub file: PathBuf,
    /// Interval of writes.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Level of detail.
    #[serde(default)]
    pub detail: Detail,
}

/// Level of detail of the file. Data about passengers and flows are personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

const fn default_interval() -> Span {
    seconds(5)
}

impl StatusConfig {
    /// Checks the settings. A missing directory is not an error, because systemd creates
    /// directories under /run.
    pub(super) fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        self.file = source.beside(self.written.get_ref());
        if self.interval.duration().as_secs() == 0 {
            let why = format!("a status every {} would be all that is done", self.interval);
            let help = "write a second or more: interval = \"5 s\"".to_owned();
            let place = applies::place_of(source, "status", "interval")?;
            return Err(ConfigError::at(source, place, why, help));
        }
        if self.file.file_name().is_some() && !self.file.is_dir() {
            return Ok(());
        }
        let why = format!("{} is a directory", self.file.display());
        let help = "name a file: file = \"/run/bentpipe/status.json\"".to_owned();
        Err(ConfigError::at(source, Some(self.written.span()), why, help))
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
