//! `[preload]` of `air.toml`: the portal's content, fetched at night.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bentpipe_link::Class;
use bentpipe_units::ByteSize;
use serde::Deserialize;
use toml::Spanned;

use super::classes::class;
use super::{ConfigError, HttpCache, Source};
use crate::classify::Name;
use crate::preload::{Manifest, ManifestError, Settings, Window, request_file, spent_file};

/// The most objects that are fetched at once: more would only divide what is left over.
const MOST_AT_ONCE: usize = 32;

/// Objects to fetch before passengers ask, and the time for it. Absent, nothing is fetched.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Preload {
    #[serde(rename = "manifest")]
    written_manifest: Spanned<PathBuf>,
    #[serde(rename = "report")]
    written_report: Spanned<PathBuf>,
    /// One address a line.
    #[serde(skip)]
    pub manifest: PathBuf,
    /// Report file on each of them.
    #[serde(skip)]
    pub report: PathBuf,
    /// Time of the day, in UTC; without it, only on request.
    pub window: Option<Window>,
    /// The most that one run fetches.
    #[serde(default = "default_run")]
    pub largest_run: ByteSize,
    /// Objects that are fetched at once.
    #[serde(default = "default_at_once")]
    pub at_once: NonZeroUsize,
    /// Class of the flows.
    #[serde(default = "default_class", deserialize_with = "class")]
    pub class: Class,
}

const fn default_run() -> ByteSize {
    ByteSize::from_bytes(256 << 20)
}

const fn default_at_once() -> NonZeroUsize {
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
        self.report = source.beside(self.written_report.get_ref());
        let wrong = |place: &Spanned<PathBuf>, why: &str, help: &str| {
            Err(ConfigError::at(source, Some(place.span()), why.to_owned(), help.to_owned()))
        };
        if cache.is_none() {
            let why = "there is a [preload], and no cache to put it into";
            return wrong(&self.written_manifest, why, "write [http-cache] too");
        }
        if self.report.file_name().is_none() || self.report.is_dir() {
            let why = format!("{} is a directory", self.report.display());
            let help = "name a file: report = \"/var/lib/bentpipe/preload.json\"";
            return wrong(&self.written_report, &why, help);
        }
        let (request, spent) = (request_file(&self.report), spent_file(&self.report));
        if [&self.report, &request, &spent].contains(&&self.manifest) {
            let why = "this would be written over the manifest";
            let help = "name another file: report = \"/var/lib/bentpipe/preload.json\"";
            return wrong(&self.written_report, why, help);
        }
        if self.at_once.get() > MOST_AT_ONCE {
            let why =
                format!("at-once = {} under [preload] is more than {MOST_AT_ONCE}", self.at_once);
            return wrong(&self.written_manifest, &why, "write 4, say: at-once = 4");
        }
        Ok(())
    }

    /// Reads the manifest, for who wants to know what is wrong with it before it is used.
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
            report: self.report.clone(),
            window: self.window,
            run_bytes: self.largest_run.bytes(),
            at_once: self.at_once.get(),
            sites,
        }
    }
}
