//! Events of a load's HTTP/3 connections, as a qlog file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// Maximum size of the file: 100,000 events, or a page of 60 MB. Later events are left out.
pub const QLOG_BYTES: usize = 32 << 20;

/// A qlog file in JSON text sequences (RFC 7464), with all connections in one trace. An event's
/// `group_id` is the server's connection ID. Until the server has answered, it is the ID that the
/// client chose for the server. The file is complete once this is dropped.
pub struct Qlog {
    stream: quinn::QlogStream,
    file: Shared,
}

/// File shared by the connections, which write to it, and its owner, which flushes it.
#[derive(Clone)]
struct Shared(Arc<Mutex<Bounded<BufWriter<File>>>>);

/// Writer that accepts at most `left` more bytes.
struct Bounded<W: Write> {
    to: W,
    left: usize,
}

impl Qlog {
    /// Creates a file at `path`. The events' times begin now.
    pub fn create(path: &Path) -> io::Result<Self> {
        let to = BufWriter::new(File::create(path)?);
        let file = Shared(Arc::new(Mutex::new(Bounded { to, left: QLOG_BYTES })));
        let mut config = quinn::QlogConfig::default();
        config.writer(Box::new(file.clone())).title(Some("the light loader".into()));
        let stream = config.into_stream().ok_or_else(|| io::Error::other("no qlog could begin"))?;
        Ok(Self { stream, file })
    }

    /// Stream for the connections of one load.
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
        self.0.lock()
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
    /// Writes as much as fits, and reports that everything was written, so that a full log does not
    /// stop the writer.
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
        // If the disk is full, the end of the file is missing.
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
