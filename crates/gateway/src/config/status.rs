//! The file that tells what a gateway carries now.

use std::path::PathBuf;

use bentpipe_units::Span;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Source, applies, seconds};

/// Status file of the gateway's present traffic, and its detail.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StatusConfig {
    #[serde(rename = "file")]
    written: toml::Spanned<PathBuf>,
    /// The file; it is replaced as a whole.
    #[serde(skip)]
    pub file: PathBuf,
    /// Interval of writes.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Detail.
    #[serde(default)]
    pub detail: Detail,
}

/// Detail of the file. Data about passengers and flows are personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Classes alone: nobody is named.
    #[default]
    Classes,
    /// The busiest passengers too.
    Passengers,
    /// And the busiest flows: who speaks with whom.
    Flows,
}

const fn default_interval() -> Span {
    seconds(5)
}

impl StatusConfig {
    /// Checks the settings. A missing directory is not an error here: systemd makes those under
    /// /run.
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
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Passengers => "passengers",
            Self::Flows => "flows",
        }
    }
}
