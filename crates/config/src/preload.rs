//! `[preload]` of `air.toml`: the portal's content, fetched when `bentpipe preload` asks for it.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bentpipe_link::Class;
use bentpipe_preload::{Manifest, ManifestError, Settings};
use bentpipe_units::ByteSize;
use schemars::JsonSchema;
use serde::Deserialize;

use super::classes::ClassName;
use super::{ConfigError, Placed, Site, Source};

/// Maximum number of concurrent fetches: more would only divide the unused capacity.
const MAX_CONCURRENCY: usize = 32;

/// Objects to fetch before passengers request them. Without it nothing is fetched.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PreloadTable {
    /// File with one address a line; read again for each run; at most 1 MiB and 4,096 addresses.
    #[schemars(title = "path")]
    manifest: Placed<PathBuf>,
    /// Unix socket for `bentpipe preload`. Only root and the gateway's user may start a run.
    #[serde(default = "default_socket")]
    #[schemars(title = "path")]
    socket: PathBuf,
    /// Limit for the bodies of one run.
    #[serde(default = "default_max_bytes_per_run")]
    max_bytes_per_run: ByteSize,
    /// Concurrent fetches, at most 32.
    #[serde(default = "default_concurrency")]
    concurrency: NonZeroUsize,
    /// Class of its flows. Only with `link`.
    #[serde(default = "default_class")]
    class: ClassName,
}

/// Objects to fetch before passengers request them.
#[derive(Debug, Clone)]
pub struct Preload {
    /// Manifest, and limits of a run.
    pub settings: Settings,
    /// Unix socket for `bentpipe preload`.
    pub socket: PathBuf,
    /// Class of the flows.
    pub class: Class,
}

/// Default of `socket`, for the command too.
pub const DEFAULT_PRELOAD_SOCKET: &str = "/run/bentpipe-air/preload.sock";

fn default_socket() -> PathBuf {
    DEFAULT_PRELOAD_SOCKET.into()
}

const fn default_max_bytes_per_run() -> ByteSize {
    ByteSize::from_bytes(256 << 20)
}

const fn default_concurrency() -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(3)
}

const fn default_class() -> ClassName {
    ClassName(Class::LowerEffort)
}

impl PreloadTable {
    /// Checks the table of a gateway that has a cache if `has_cache`, and serves `sites`.
    pub fn check(
        self,
        source: &Source<'_>,
        has_cache: bool,
        sites: &[Site],
    ) -> Result<Preload, ConfigError> {
        let concurrency = self.concurrency.get();
        if !has_cache {
            let why = "there is a [preload], and no cache to put it into";
            return Err(self.manifest.error(source, why, "write [http-cache] too"));
        }
        if concurrency > MAX_CONCURRENCY {
            let why = format!(
                "concurrency = {concurrency} under [preload] is more than {MAX_CONCURRENCY}"
            );
            return Err(self.manifest.error(source, why, "write 4, say: concurrency = 4"));
        }
        let settings = Settings {
            manifest: source.beside(&self.manifest),
            max_bytes_per_run: self.max_bytes_per_run.bytes(),
            concurrency,
            sites: sites.iter().map(|site| site.name.clone()).collect(),
        };
        Ok(Preload { settings, socket: source.beside(&self.socket), class: self.class.0 })
    }
}

impl Preload {
    /// Reads the manifest, to report its errors before a run.
    pub fn check_manifest(&self) -> Result<Manifest, ConfigError> {
        let Settings { manifest, sites, .. } = &self.settings;
        let nowhere = |why: String| ConfigError {
            file: manifest.clone(),
            line: None,
            text: String::new(),
            why,
            help: "write a file with one address a line, as http://mirror.example/film.mp4"
                .to_owned(),
        };
        let read = Manifest::read(manifest, sites);
        let wrong = match &read {
            Ok(manifest) => manifest.wrong.first(),
            Err(ManifestError::Empty { wrong, .. }) => wrong.first(),
            Err(_) => None,
        };
        if let Some(wrong) = wrong {
            let (line, why) = (Some(wrong.line), wrong.why.to_string());
            return Err(ConfigError { line, help: String::new(), ..nowhere(why) });
        }
        read.map_err(|error| nowhere(error.to_string()))
    }
}
