//! `[http-cache]` and `[page]` of `air.toml`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_units::{ByteSize, Span};
use bentpipe_webcache::{Rules, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ConfigError, Placed, Source, seconds};

/// HTTP cache. An empty table uses the defaults.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HttpCacheTable {
    /// Memory for headers and recently used bodies. Downloads in progress share at most half of it,
    /// and each leaves as much to others as it takes.
    #[serde(default = "default_memory")]
    memory: ByteSize,
    /// Folder for stored objects, kept over restarts; for the cache alone.
    #[schemars(title = "path")]
    directory: Option<PathBuf>,
    /// Limit for that folder, in blocks of 4 KiB.
    #[serde(default = "default_disk")]
    disk: ByteSize,
    /// Larger objects pass through; at most a quarter of `memory`.
    #[schemars(extend("x-default" = "16 MiB, or a quarter of a `memory` below 64 MiB"))]
    largest_object: Option<Placed<ByteSize>>,
    /// Maximum heuristic freshness of an object without times of its own.
    #[serde(default = "day")]
    max_heuristic_freshness: Span,
    /// Lifetime of a stale object while the ground cannot be reached.
    #[serde(default = "day")]
    stale_if_offline: Span,
    /// Reports the cache's decision in `Cache-Status` (RFC 9211), and obeys `only-if-cached`. Both
    /// reveal to a passenger what others have read.
    #[serde(default)]
    cache_status: bool,
}

/// HTTP cache of the air gateway.
#[derive(Debug, Clone)]
pub struct HttpCache {
    /// Settings of the store.
    pub settings: Settings,
    /// Caching rules.
    pub rules: Rules,
    /// Adds Cache-Status (RFC 9211) to responses and obeys `only-if-cached`.
    pub cache_status: bool,
}

/// Page that explains this gateway to passengers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Page {
    /// Address of the page, over HTTP.
    #[schemars(title = "address")]
    pub listen: SocketAddr,
    /// Contact for passengers, at most 500 bytes.
    #[serde(default, deserialize_with = "contact")]
    pub contact: Option<String>,
}

/// Maximum length of the contact, bytes: a few lines of a page.
const MAX_CONTACT_BYTES: usize = 500;

fn contact<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let contact = String::deserialize(from)?;
    let good = !contact.trim().is_empty()
        && contact.len() <= MAX_CONTACT_BYTES
        && !contact.chars().any(char::is_control);
    if !good {
        return Err(serde::de::Error::custom(format!(
            "write who answers passengers, in 1 to {MAX_CONTACT_BYTES} bytes: contact = \"the cabin crew\""
        )));
    }
    Ok(Some(contact))
}

const fn default_memory() -> ByteSize {
    ByteSize::from_bytes(64 << 20)
}

const fn default_disk() -> ByteSize {
    ByteSize::from_bytes(1 << 30)
}

/// Largest object of a cache with enough memory.
const DEFAULT_OBJECT_BYTES: u64 = 16 << 20;

const fn day() -> Span {
    seconds(24 * 3600)
}

/// Minimum of `memory` and `disk`. Smaller sizes would hold hardly an object.
const MIN_BYTES: u64 = 1 << 20;

impl HttpCacheTable {
    pub fn check(self, source: &Source<'_>) -> Result<HttpCache, ConfigError> {
        let memory = self.memory;
        for (key, size) in [("memory", memory), ("disk", self.disk)] {
            if size.bytes() < MIN_BYTES {
                let why =
                    format!("{key} = \"{size}\" under [http-cache] would hold hardly an object");
                let help = "write 1 MiB at least: memory = \"64 MiB\", disk = \"1 GiB\"";
                return Err(ConfigError::at(source, None, why, help));
            }
        }
        let quarter = memory.bytes() / 4;
        if let Some(object) = self.largest_object.as_ref().filter(|it| it.bytes() > quarter) {
            let why = format!(
                "largest-object = \"{}\" is more than a quarter of memory = \"{memory}\", which is what \
                 one body on its way may take",
                **object
            );
            return Err(object.error(
                source,
                why,
                "write more memory, or a smaller largest-object",
            ));
        }
        let default = DEFAULT_OBJECT_BYTES.min(quarter);
        let object_bytes = self.largest_object.map_or(default, |object| object.bytes());
        Ok(HttpCache {
            settings: Settings {
                memory_bytes: memory.bytes(),
                directory: self.directory.map(|directory| source.beside(&directory)),
                disk_bytes: self.disk.bytes(),
                object_bytes,
            },
            rules: Rules {
                max_heuristic_freshness: self.max_heuristic_freshness.into(),
                max_offline_staleness: self.stale_if_offline.into(),
            },
            cache_status: self.cache_status,
        })
    }
}
