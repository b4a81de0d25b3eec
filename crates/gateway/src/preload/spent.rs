//! Spent budgets of runs, which neither a restart nor a power cut must undo.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::report::beside;
use crate::status::replace_for_good;

/// The longest file that is read, bytes: more than is written.
const MOST_BYTES: u64 = 4096;

/// Spent budget of the last run of each kind. They do not count against each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Last night's run.
    night: Run,
    /// Last requested run.
    asked: Run,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// Time of its beginning, which identifies it.
    began_unix_ms: u64,
    /// Bodies, in bytes.
    bytes: u64,
}

impl Spent {
    /// Content of the file next to `report`; empty if there is none, or another's.
    pub fn read(report: &Path) -> Self {
        let mut text = Vec::new();
        let read = std::fs::File::open(spent_file(report))
            .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
        read.ok().and_then(|_| Self::parse(&text)).unwrap_or_default()
    }

    /// Reads a file's content, if it is one.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Budget spent by the run that `began` then.
    pub fn of(&self, is_asked: bool, began_unix_ms: u64) -> u64 {
        let run = if is_asked { self.asked } else { self.night };
        if run.began_unix_ms == began_unix_ms { run.bytes } else { 0 }
    }

    /// The run that `began` then has spent so much.
    pub fn set(&mut self, is_asked: bool, began_unix_ms: u64, bytes: u64) {
        let run = if is_asked { &mut self.asked } else { &mut self.night };
        *run = Run { began_unix_ms, bytes };
    }

    /// Writes it, for good.
    pub fn write(&self, report: &Path) -> io::Result<()> {
        // Numbers alone are in it.
        let json = serde_json::to_vec(self).expect("it is JSON");
        replace_for_good(&spent_file(report), &json)
    }
}

/// The file that says what was spent: beside the report, with `.spent` after its name.
pub fn spent_file(report: &Path) -> PathBuf {
    beside(report, ".spent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_known_again_for_the_run_that_spent_it() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("preload.json");
        let mut spent = Spent::read(&report);
        assert_eq!(spent, Spent::default(), "nothing is there");
        spent.set(false, 1000, 5);
        spent.set(true, 2000, 7);
        spent.write(&report).unwrap();
        let read = Spent::read(&report);
        assert_eq!((read.of(false, 1000), read.of(true, 2000)), (5, 7));
        assert_eq!((read.of(true, 1000), read.of(false, 2000)), (0, 0));
        for other in ["", "{}", "{\"night\":", "[1]"] {
            std::fs::write(spent_file(&report), other).unwrap();
            assert_eq!(Spent::read(&report), Spent::default(), "{other}");
        }
    }
}
