//! `[usage]` of `air.toml`: usage records of each passenger per day.

use std::path::PathBuf;

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ConfigError, Placed, Source, seconds};

/// Usage records of each passenger per day, written as JSON lines.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UsageTable {
    /// Folder of the records, one file a day; it must exist.
    #[schemars(title = "path")]
    directory: Placed<PathBuf>,
    /// Time between two records; the gateway also writes when it stops.
    #[serde(default = "default_interval")]
    interval: Span,
}

/// Usage records of each passenger per day.
#[derive(Debug, Clone)]
pub struct UsageConfig {
    /// Directory of the files, one file a day.
    pub directory: PathBuf,
    /// Interval of writes; records are also written when the gateway stops.
    pub interval: Span,
}

const fn default_interval() -> Span {
    seconds(15 * 60)
}

impl UsageTable {
    pub fn check(self, source: &Source<'_>) -> Result<UsageConfig, ConfigError> {
        let (directory, interval) = (source.beside(&self.directory), self.interval);
        if interval.duration().as_secs() == 0 {
            let why = format!("records every {interval} would be all that is done");
            let help = "write how often: interval = \"15 min\"";
            return Err(ConfigError::at(source, None, why, help));
        }
        if !directory.is_dir() {
            let why = format!("{} is not a directory", directory.display());
            let help = "make it, and let the gateway's user write there";
            return Err(self.directory.error(source, why, help));
        }
        Ok(UsageConfig { directory, interval })
    }
}
