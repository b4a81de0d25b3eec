//! `[preload]` of `air.toml`: the portal's content, fetched when `bentpipe preload` asks for it.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bentpipe_classify::Name;
use bentpipe_link::Class;
use bentpipe_units::ByteSize;
use serde::Deserialize;
use toml::Spanned;

use super::classes::class;
use super::{ConfigError, HttpCache, Source};
use bentpipe_preload::{Manifest, ManifestError, Settings};

/// Maximum number of concurrent fetches: more would only divide the unused capacity.
const MAX_CONCURRENCY: usize = 32;

/// Objects to fetch before passengers request them. Without it nothing is fetched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Preload {
    #[serde(rename = "manifest")]
    written_manifest: Spanned<PathBuf>,
    /// One address a line.
    #[serde(skip)]
    pub manifest: PathBuf,
    /// Unix socket for `bentpipe preload`.
    #[serde(default = "default_socket")]
    pub socket: PathBuf,
    /// Maximum bytes that one run fetches.
    #[serde(default = "default_max_bytes_per_run")]
    pub max_bytes_per_run: ByteSize,
    /// Concurrent fetches.
    #[serde(default = "default_concurrency")]
    pub concurrency: NonZeroUsize,
    /// Class of the flows.
    #[serde(default = "default_class", deserialize_with = "class")]
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
    NonZeroUsize::new(4).expect("it is not 0")
}

const fn default_class() -> Class {
    Class::LowerEffort
}

impl Preload {
    pub(super) fn check(
        &mut self,
        source: &Source<'_>,
        cache: Option<&HttpCache>,
    ) -> Result<(), ConfigError> {
        self.manifest = source.beside(self.written_manifest.get_ref());
        self.socket = source.beside(&self.socket);
        let wrong = |why: &str, help: &str| {
            let place = Some(self.written_manifest.span());
            Err(ConfigError::at(source, place, why.to_owned(), help.to_owned()))
        };
        if cache.is_none() {
            let why = "there is a [preload], and no cache to put it into";
            return wrong(why, "write [http-cache] too");
        }
        if self.concurrency.get() > MAX_CONCURRENCY {
            let why = format!(
                "concurrency = {} under [preload] is more than {MAX_CONCURRENCY}",
                self.concurrency
            );
            return wrong(&why, "write 4, say: concurrency = 4");
        }
        Ok(())
    }

    /// Reads the manifest, to report its errors before a run.
    pub fn check_manifest(&self, sites: &[Name]) -> Result<Manifest, ConfigError> {
        let nowhere = |why: String| ConfigError {
            file: self.manifest.clone(),
            line: None,
            text: String::new(),
            why,
            help: "write a file with one address a line, as http://mirror.example/film.mp4"
                .to_owned(),
        };
        let read = Manifest::read(&self.manifest, sites);
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

    /// Settings of the preloader; `sites` are the names for which the gateway answers.
    pub fn settings(&self, sites: Vec<Name>) -> Settings {
        Settings {
            manifest: self.manifest.clone(),
            max_bytes_per_run: self.max_bytes_per_run.bytes(),
            concurrency: self.concurrency.get(),
            sites,
        }
    }
}
