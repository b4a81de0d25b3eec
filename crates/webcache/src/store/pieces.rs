//! Bodies that are given from disk a piece at a time, so that a slow reader holds no more than one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use super::entry::Entry;
use crate::fill::SEGMENT_BYTES;
use crate::origin::{Failure, STALLED};
use crate::record::{Sum, Summing, sum};

/// A body that is on disk and larger is given from there, [`SEGMENT_BYTES`] at a time; a smaller one from
/// memory. Who reads a body from memory keeps it there, so with 64 MiB it takes 256 slow readers of as many
/// objects to have all of it.
pub const MOST_FROM_MEMORY: u64 = 256 * 1024;

/// The sums of a body's pieces: 4 KiB for 16 MiB.
pub type Sums = Arc<[Sum]>;

/// A body on disk.
pub struct Pieces {
    entry: Arc<Entry>,
    file: Arc<File>,
    sums: Sums,
}

impl Pieces {
    /// The body of `entry` in `file`, whose pieces have these sums.
    pub fn new(entry: Arc<Entry>, file: File, sums: Sums) -> Self {
        Self { entry, file: Arc::new(file), sums }
    }

    /// Its length, bytes.
    pub fn length(&self) -> u64 {
        self.entry.body_bytes
    }

    /// From `first` up to and with `last`, or to the end.
    pub fn read(self, first: u64, last: Option<u64>) -> PieceReader {
        let end = last.map_or(self.length(), |last| (last + 1).min(self.length()));
        PieceReader { pieces: self, at: first, end, reading: None }
    }
}

/// The sums of the pieces of the body in `file`, if it has so many `bytes` and `told` is its sum. Takes as
/// long as reading it.
pub fn sums(file: &File, bytes: u64, told: Sum) -> io::Result<Option<Sums>> {
    if file.metadata()?.len() != bytes {
        return Ok(None);
    }
    let (mut whole, mut sums) = (Summing::default(), Vec::new());
    for at in (0..bytes).step_by(SEGMENT_BYTES) {
        let piece = piece_at(file, at, bytes)?;
        whole.add(&piece);
        sums.push(sum(&piece));
    }
    Ok((whole.done() == told).then(|| sums.into()))
}

/// The piece that begins at `at`, of a body of so many `bytes`.
fn piece_at(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    // No more than a segment.
    let length = (bytes - at).min(SEGMENT_BYTES as u64) as usize;
    let mut piece = vec![0; length];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece)
}

/// One who reads a body on disk.
pub struct PieceReader {
    pieces: Pieces,
    at: u64,
    end: u64,
    reading: Option<JoinHandle<Option<Bytes>>>,
}

impl PieceReader {
    /// Bytes still to come.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// The next bytes, or the end. What is not as it was written is not given: then it breaks off.
    pub fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        let this = self.get_mut();
        if this.left() == 0 {
            return Poll::Ready(None);
        }
        let number = this.at / SEGMENT_BYTES as u64;
        let begins = number * SEGMENT_BYTES as u64;
        let reading = this.reading.get_or_insert_with(|| {
            let Pieces { entry, file, sums } = &this.pieces;
            let (file, bytes) = (file.clone(), entry.body_bytes);
            // There is one for each piece.
            let told = usize::try_from(number).ok().and_then(|number| sums.get(number).copied());
            spawn_blocking(move || {
                let piece = piece_at(&file, begins, bytes).ok()?;
                (Some(sum(&piece)) == told).then(|| piece.into())
            })
        });
        let read: Option<Bytes> = ready!(Pin::new(reading).poll(cx)).ok().flatten();
        this.reading = None;
        let Some(piece) = read else {
            // The next who asks has all of it looked at again.
            this.pieces.entry.forget_sums();
            this.at = this.end;
            return Poll::Ready(Some(Err(Failure { offline: false, code: STALLED })));
        };
        // Both lie within the piece.
        let (from, until) = (this.at - begins, (this.end - begins).min(piece.len() as u64));
        this.at = begins + until;
        Poll::Ready(Some(Ok(piece.slice(from as usize..until as usize))))
    }
}
