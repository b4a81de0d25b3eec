//! Detects which gateway a file is meant for.

use super::{ConfigError, Source};

/// One of the two gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The air gateway: `air.toml`.
    Air,
    /// The ground gateway: `ground.toml`.
    Ground,
}

/// Keys that occur only in an air gateway's file: at the top, and under `[link]`.
const AIR: (&[&str], &[&str]) = (&["listen", "rule"], &["peer", "peer-public-key"]);

/// Keys that occur only in a ground gateway's file: at the top, and under `[link]`.
const GROUND: (&[&str], &[&str]) = (
    &["aircraft", "beam", "client", "dial", "hosts", "masque"],
    &["listen", "masque-listen", "aerotcp-listen"],
);

impl Which {
    /// Returns the gateway of this file if its settings identify exactly one.
    pub fn of(text: &str) -> Option<Self> {
        let table: toml::Table = text.parse().ok()?;
        let link = table.get("link").and_then(|link| link.as_table());
        let has = |(top, under): (&[&str], &[&str])| {
            top.iter().any(|key| table.contains_key(*key))
                || link.is_some_and(|link| under.iter().any(|key| link.contains_key(*key)))
        };
        match (has(AIR), has(GROUND)) {
            (true, false) => Some(Self::Air),
            (false, true) => Some(Self::Ground),
            _ => None,
        }
    }
}

/// Rejects the file of the other gateway.
pub(super) fn expect(source: &Source<'_>, expected: Which) -> Result<(), ConfigError> {
    let Some(found) = Which::of(source.text).filter(|found| *found != expected) else {
        return Ok(());
    };
    let names = |which| match which {
        Which::Air => ("an air", "air"),
        Which::Ground => ("a ground", "ground"),
    };
    let ((found, is), (_, wanted)) = (names(found), names(expected));
    let why = format!("this is the configuration of {found} gateway");
    let help = format!("name the file of the {wanted} gateway; this one is for `bentpipe {is}`");
    Err(ConfigError::at(source, None, why, help))
}
