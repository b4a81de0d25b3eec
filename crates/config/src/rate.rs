//! The send rate of a session, and its source.

use bentpipe_link::{DEFAULT_LEARN_BYTES, MAX_RATE};
use bentpipe_units::{BitRate, ByteSize};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::ConfigError;
use super::source::Source;

/// Source of a gateway's send rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseSource {
    /// Measurements of the path; `rate` is the maximum if it is set.
    Learned,
    /// `rate`, permanently.
    Static,
    /// The ground gateway, which divides a beam among several aircraft; `rate` is the maximum.
    Granted,
    /// The modem; `rate` is the maximum.
    Modem,
    /// No source, because others share the link: CUBIC finds the rate; `rate` is the maximum.
    None,
}

impl LeaseSource {
    fn name(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Static => "static",
            Self::Granted => "granted",
            Self::Modem => "modem",
            Self::None => "none",
        }
    }
}

/// Rate of a session that has none in its file. No link is as fast.
pub(super) const fn not_set() -> BitRate {
    MAX_RATE
}

/// Padding of a session that learns its rate.
pub(super) const fn learn_bytes() -> ByteSize {
    DEFAULT_LEARN_BYTES
}

/// Source of the rate: as written, or learned if no rate is.
pub(super) fn source_of(
    written: Option<LeaseSource>,
    rate: BitRate,
    source: &Source<'_>,
) -> Result<LeaseSource, ConfigError> {
    let is_set = rate != not_set();
    match written {
        None if is_set => Ok(LeaseSource::Static),
        None | Some(LeaseSource::Learned) => Ok(LeaseSource::Learned),
        Some(lease) if is_set => Ok(lease),
        Some(lease) => {
            let why = format!("lease = {:?} needs a rate, and there is none", lease.name());
            let help =
                "write rate = \"1.89 Mbit/s\", say, or leave lease out: then the rate is learned";
            Err(ConfigError::at(source, None, why, help))
        }
    }
}
