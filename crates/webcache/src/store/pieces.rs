//! Bodies that are read from disk in segments, so that a slow reader holds at most one segment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use super::entry::Entry;
use crate::error::OriginError;
use crate::fill::SEGMENT_BYTES;
use crate::record::{Checksum, PieceSums, Sum, sum};

/// Maximum size of a body that is served from memory although it is on disk, bytes. A larger one is
/// read from disk, [`SEGMENT_BYTES`] at a time. A reader keeps a body in memory, so 256 slow
/// readers of as many objects can use 64 MiB.
pub const MAX_FROM_MEMORY_BYTES: u64 = 256 * 1024;

/// A body on disk.
pub struct Pieces {
    entry: Arc<Entry>,
    file: Arc<File>,
    sums: PieceSums,
}

impl Pieces {
    /// Creates the body of `entry`, whose segments in `file` have these checksums.
    pub fn new(entry: Arc<Entry>, file: File, sums: PieceSums) -> Self {
        Self { entry, file: Arc::new(file), sums }
    }

    /// Length of the body.
    pub fn length(&self) -> u64 {
        self.entry.body_bytes
    }

    /// Reads from byte `first` to byte `last` (inclusive), or to the end.
    pub fn read(self, first: u64, last: Option<u64>) -> PieceReader {
        let end = last.map_or(self.length(), |last| (last + 1).min(self.length()));
        PieceReader { pieces: self, at: first, end, reading: None }
    }
}

/// Computes the checksums of the segments of a body. Returns `None` unless the file has this length
/// and this checksum. Reads the whole file.
pub fn sums(file: &File, bytes: u64, checksum: Sum) -> io::Result<Option<PieceSums>> {
    if file.metadata()?.len() != bytes {
        return Ok(None);
    }
    let (mut whole, mut sums) = (Checksum::default(), Vec::new());
    for at in (0..bytes).step_by(SEGMENT_BYTES) {
        let piece = piece_at(file, at, bytes)?;
        whole.add(&piece);
        sums.push(sum(&piece));
    }
    Ok((whole.done() == checksum).then(|| sums.into()))
}

/// Reads the segment at `at` of a body of this length.
fn piece_at(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    // At most one segment.
    let length = (bytes - at).min(SEGMENT_BYTES as u64) as usize;
    let mut piece = vec![0; length];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece)
}

/// A reader of a body on disk.
pub struct PieceReader {
    pieces: Pieces,
    at: u64,
    end: u64,
    reading: Option<JoinHandle<Option<Bytes>>>,
}

impl PieceReader {
    /// Number of bytes left.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// Polls for the next bytes. Returns `None` at the end, and an error if the segment is damaged.
    pub fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, OriginError>>> {
        let this = self.get_mut();
        if this.left() == 0 {
            return Poll::Ready(None);
        }
        let number = this.at / SEGMENT_BYTES as u64;
        let begins = number * SEGMENT_BYTES as u64;
        let reading = this.reading.get_or_insert_with(|| {
            let Pieces { entry, file, sums } = &this.pieces;
            let (file, bytes) = (file.clone(), entry.body_bytes);
            // Every segment has a checksum.
            let checksum =
                usize::try_from(number).ok().and_then(|number| sums.get(number).copied());
            spawn_blocking(move || {
                let piece = piece_at(&file, begins, bytes).ok()?;
                (Some(sum(&piece)) == checksum).then(|| piece.into())
            })
        });
        let read: Option<Bytes> = ready!(Pin::new(reading).poll(cx)).ok().flatten();
        this.reading = None;
        let Some(piece) = read else {
            // The next reader verifies the whole file again.
            this.pieces.entry.forget_sums();
            this.at = this.end;
            return Poll::Ready(Some(Err(OriginError::Stalled)));
        };
        // Both are within the segment.
        let (from, until) = (this.at - begins, (this.end - begins).min(piece.len() as u64));
        this.at = begins + until;
        Poll::Ready(Some(Ok(piece.slice(from as usize..until as usize))))
    }
}
