//! Report on each address, as a file that is replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use crate::status::replace;

/// The version of the format.
pub const SCHEMA: u32 = 1;

/// The longest report that is read, bytes: more than [`MOST_ADDRESSES`](super::manifest::MOST_ADDRESSES)
/// of the longest addresses take.
const MOST_BYTES: u64 = 32 << 20;

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the format: 1.
    pub schema: u32,
    /// State of the run.
    pub state: State,
    /// Time of its beginning, in milliseconds since 1970-01-01 00:00 UTC.
    pub began_unix_ms: u64,
    /// Time of this report.
    pub written_unix_ms: u64,
    /// Bytes of bodies that came over the link for it.
    pub bytes: u64,
    /// Reason for having nothing to do, if there was a manifest that could not be used.
    pub error: Option<String>,
    /// Lines of the manifest that are no addresses to be fetched.
    pub wrong_lines: Vec<WrongLine>,
    /// One for each address, in the manifest's order.
    pub objects: Vec<Object>,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It goes on.
    Running,
    /// Everything that could be done has been.
    Complete,
    /// Its time was over before.
    OutOfTime,
}

/// A line that is no address to be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongLine {
    /// Counted from one.
    pub line: usize,
    /// Reason.
    pub why: String,
}

/// An address of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The address.
    pub url: String,
    /// Outcome.
    pub state: Outcome,
    /// `true` if some version of it is here, even an older one.
    pub here: bool,
    /// Bytes that were fetched, where it was.
    pub bytes: u64,
    /// Reason for which it is not here as its origin has it now.
    pub why: Option<String>,
}

/// Outcome of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its turn has not come.
    Waiting,
    /// It was fetched.
    Stored,
    /// It was here, and its origin said that it still holds.
    Confirmed,
    /// It was not to be had, and is tried again while there is time.
    Failed,
    /// It is not for a cache, or there is no room: trying again would change nothing.
    Refused,
}

impl Outcome {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::Waiting, Self::Stored, Self::Confirmed, Self::Failed, Self::Refused];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Stored => "stored",
            Self::Confirmed => "confirmed",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

impl Report {
    /// One that began at `began_unix_ms`, of what `manifest` says.
    pub fn new(began_unix_ms: u64, manifest: &Manifest) -> Self {
        let wrong_lines = manifest.wrong.iter();
        let wrong_lines =
            wrong_lines.map(|wrong| WrongLine { line: wrong.line, why: wrong.why.to_string() });
        let object =
            |url: String| Object { url, state: Outcome::Waiting, here: false, bytes: 0, why: None };
        let urls = manifest.addresses.iter().map(ToString::to_string);
        Self {
            schema: SCHEMA,
            state: State::Running,
            began_unix_ms,
            written_unix_ms: began_unix_ms,
            bytes: 0,
            error: None,
            wrong_lines: wrong_lines.collect(),
            objects: urls.map(object).collect(),
        }
    }

    /// Number of addresses with `outcome`.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.objects.iter().filter(|object| object.state == outcome).count()
    }

    /// Reads one.
    pub fn read(file: &Path) -> Result<Self, ReadError> {
        use std::io::Read;
        let mut text = Vec::new();
        std::fs::File::open(file)
            .and_then(|opened| opened.take(MOST_BYTES).read_to_end(&mut text))
            .map_err(|source| ReadError::Unreadable { file: file.to_owned(), source })?;
        Self::parse(&text).map_err(|why| ReadError::Foreign { file: file.to_owned(), why })
    }

    /// Reads a file's content; else why it is none.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if report.schema != SCHEMA {
            return Err(format!("its format is {}, not {SCHEMA}", report.schema));
        }
        Ok(report)
    }

    /// Writes it in the place of the one before.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        // Neither maps with other keys than text nor numbers without an end are in it.
        let mut json = serde_json::to_vec(self).expect("the report is JSON");
        json.push(b'\n');
        replace(file, &json)
    }
}

/// Reason for which a file cannot be read as a report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error(
        "cannot read {}: {source}; the air gateway writes it when it preloads, where [preload] of its \
         configuration says so",
        file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no report of a preload: {why}", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Cause.
        why: String,
    },
}

/// The file that asks for a run at once: beside the report, with `.now` after its name.
pub fn request_file(report: &Path) -> PathBuf {
    beside(report, ".now")
}

/// The file beside `report` that has `ending` after its name.
pub(super) fn beside(report: &Path, ending: &str) -> PathBuf {
    let mut name = report.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    report.with_file_name(name)
}
