//! `[http-cache]` and `[page]` of `air.toml`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bentpipe_units::{ByteSize, Span};
use bentpipe_webcache::{Rules, Settings};
use serde::Deserialize;

use super::{ConfigError, Source, seconds};

/// HTTP cache of the air gateway. If absent, there is no cache.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HttpCache {
    /// Memory for headers and recently used bodies; downloads in progress share at most half of it.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
    directory: Option<PathBuf>,
    /// Maximum size of the directory.
    #[serde(default = "default_disk")]
    pub disk: ByteSize,
    /// Maximum size of a cached object. Larger objects pass through.
    #[serde(default = "default_object")]
    pub largest_object: ByteSize,
    /// Maximum heuristic freshness of an object without an explicit lifetime.
    #[serde(default = "day")]
    pub max_heuristic_freshness: Span,
    /// Time for which a stale object may be served while the ground cannot be reached.
    #[serde(default = "day")]
    pub stale_if_offline: Span,
    /// Adds Cache-Status (RFC 9211) to responses and obeys `only-if-cached`. Both reveal to a
    /// passenger what others have read.
    #[serde(default)]
    pub cache_status: bool,
}

/// Page that explains this gateway to passengers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Page {
    /// Address of the page, served over plain HTTP.
    pub listen: SocketAddr,
    /// Contact for passengers' questions.
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

const fn default_object() -> ByteSize {
    ByteSize::from_bytes(16 << 20)
}

const fn day() -> Span {
    seconds(24 * 3600)
}

/// Minimum of `memory` and `disk`. Smaller sizes would hold hardly an object.
const MIN_BYTES: u64 = 1 << 20;

impl HttpCache {
    pub(super) fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        self.directory = self.directory.take().map(|directory| source.beside(&directory));
        let wrong =
            |why: String, help: &str| Err(ConfigError::at(source, None, why, help.to_owned()));
        for (key, size) in [("memory", self.memory), ("disk", self.disk)] {
            if size.bytes() < MIN_BYTES {
                let why =
                    format!("{key} = \"{size}\" under [http-cache] would hold hardly an object");
                return wrong(why, "write 1 MiB at least: memory = \"64 MiB\", disk = \"1 GiB\"");
            }
        }
        if self.largest_object.bytes() > self.memory.bytes() / 4 {
            let why = format!(
                "largest-object = \"{}\" is more than a quarter of memory = \"{}\", which is what one body \
                 on its way may take",
                self.largest_object, self.memory
            );
            return wrong(why, "write more memory, or a smaller largest-object");
        }
        Ok(())
    }

    /// Directory that preserves objects across restarts.
    pub fn directory(&self) -> Option<&PathBuf> {
        self.directory.as_ref()
    }

    /// Settings of the store.
    pub fn settings(&self) -> Settings {
        Settings {
            memory_bytes: self.memory.bytes(),
            directory: self.directory.clone(),
            disk_bytes: self.disk.bytes(),
            object_bytes: self.largest_object.bytes(),
        }
    }

    /// Caching rules.
    pub fn rules(&self) -> Rules {
        let most = |span: Span| Duration::from(span);
        Rules {
            max_heuristic_freshness: most(self.max_heuristic_freshness),
            max_offline_staleness: most(self.stale_if_offline),
        }
    }
}
