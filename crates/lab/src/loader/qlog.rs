//! Events of a load's HTTP/3 connections, as a qlog file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest file: 100,000 events, a page of 60 MB. What comes behind is left out.
pub const QLOG_BYTES: usize = 32 << 20;

/// A qlog file in JSON text sequences (RFC 7464), all connections in one trace: an event's `group_id`
/// is the server's connection ID, and until the server has answered the one that the client chose
/// for it. Whole when this is dropped.
pub struct Qlog {
    stream: quinn::QlogStream,
    file: Shared,
}

/// The connections write, and whoever began it has the last word.
#[derive(Clone)]
struct Shared(Arc<Mutex<Bounded<BufWriter<File>>>>);

/// Takes so many bytes more.
struct Bounded<W: Write> {
    to: W,
    left: usize,
}

impl Qlog {
    /// A new file at `path`; the events' times begin now.
    pub fn create(path: &Path) -> io::Result<Self> {
        let to = BufWriter::new(File::create(path)?);
        let file = Shared(Arc::new(Mutex::new(Bounded { to, left: QLOG_BYTES })));
        let mut config = quinn::QlogConfig::default();
        config.writer(Box::new(file.clone())).title(Some("the light loader".into()));
        let stream = config.into_stream().ok_or_else(|| io::Error::other("no qlog could begin"))?;
        Ok(Self { stream, file })
    }

    /// For the connections of one load.
    pub(super) fn stream(&self) -> quinn::QlogStream {
        self.stream.clone()
    }
}

impl std::fmt::Debug for Qlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qlog").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Bounded<BufWriter<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.lock().write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}

impl<W: Write> Write for Bounded<W> {
    /// Takes all there is room for, and says that it was all: who logs is not to end over it.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let part = &data[..data.len().min(self.left)];
        self.left -= part.len();
        self.to.write_all(part)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Drop for Qlog {
    fn drop(&mut self) {
        // What a full disk does not take is missing at the end.
        let _ = self.file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_no_more_than_it_may_and_nobody_ends_over_it() {
        let mut file = Bounded { to: Vec::new(), left: 10 };
        for _ in 0..4 {
            file.write_all(b"event, ").unwrap();
        }
        assert_eq!(file.to, b"event, eve");
    }
}
