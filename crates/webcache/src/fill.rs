//! A body that one writer fills while many readers read it.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use crate::error::OriginError;

/// Size of the segments in which a body is stored. A reader gets at most one at a time.
pub const SEGMENT_BYTES: usize = 64 * 1024;

/// Maximum distance between the writer and the slowest reader of a body that will not be stored,
/// bytes. It is also the memory that such a body needs, once its readers have passed what was
/// buffered before.
pub const WINDOW_BYTES: u64 = 1024 * 1024;

/// Maximum total time by which one reader of a body that is not stored may delay the others. After
/// it, the reader's body breaks off. A reader that is alone may be as slow as it likes.
pub const MAX_READER_DELAY: Duration = Duration::from_secs(5);

/// Interval of checks for delayed readers.
const DELAY_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A body that is arriving.
#[derive(Debug, Default)]
pub struct Fill(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Complete segments of [`SEGMENT_BYTES`] each. Readers share them.
    full: VecDeque<Bytes>,
    /// Bytes after the complete segments.
    last: BytesMut,
    /// Offset of the first segment.
    base: u64,
    length: u64,
    end: Option<Result<(), OriginError>>,
    /// `true` if the whole body is buffered for future readers.
    whole: bool,
    readers: BTreeMap<u64, ReaderState>,
    next_reader: u64,
    writer: Option<Waker>,
    moved_at: Instant,
    guard: Option<Guard>,
}

/// Resource that is released with the body.
struct Guard(#[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Send>);

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

#[derive(Debug)]
struct ReaderState {
    at: u64,
    waker: Option<Waker>,
    /// Time for which other readers have waited for this one.
    delay: Duration,
}

impl Default for State {
    fn default() -> Self {
        Self {
            full: VecDeque::new(),
            last: BytesMut::new(),
            base: 0,
            length: 0,
            end: None,
            whole: true,
            readers: BTreeMap::new(),
            next_reader: 0,
            writer: None,
            moved_at: Instant::now(),
            guard: None,
        }
    }
}

impl Fill {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Appends to the body. Waits only if the body is not buffered whole and a reader is
    /// [`WINDOW_BYTES`] behind. While other readers wait too, it waits at most [`MAX_READER_DELAY`]
    /// for each reader.
    pub async fn push(&self, bytes: &[u8]) {
        loop {
            let began = Instant::now();
            let has_room =
                timeout(DELAY_CHECK_INTERVAL, poll_fn(|cx| self.poll_room(cx))).await.is_ok();
            let waited = began.elapsed();
            if !waited.is_zero() {
                self.state().charge(waited);
            }
            if has_room {
                break;
            }
        }
        let mut state = self.state();
        state.append(bytes);
        state.moved_at = Instant::now();
        state.wake_readers();
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        state.trim();
        let slowest = state.readers.values().map(|reader| reader.at).min();
        if state.whole || slowest.is_none_or(|at| state.length.saturating_sub(at) < WINDOW_BYTES) {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ends the body, completely or with an error.
    pub fn finish(&self, end: Result<(), OriginError>) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.wake_readers();
    }

    /// Buffers no longer the whole body: from now on only the present readers are served, and bytes
    /// that all of them have read are dropped.
    pub fn forget_what_is_read(&self) {
        self.state().whole = false;
    }

    /// Returns `true` if the body has not ended, and nothing has arrived for `long`.
    pub fn is_stuck(&self, long: Duration) -> bool {
        let state = self.state();
        state.end.is_none() && state.moved_at.elapsed() >= long
    }

    /// Keeps `resource` until the body is dropped.
    pub fn hold(&self, resource: impl Send + 'static) {
        self.state().guard = Some(Guard(Box::new(resource)));
    }

    /// Number of bytes received.
    pub fn length(&self) -> u64 {
        self.state().length
    }

    /// Number of bytes in memory.
    pub fn buffered_bytes(&self) -> u64 {
        let state = self.state();
        state.length - state.base
    }

    /// Returns `true` if the body has no readers.
    pub fn is_unread(&self) -> bool {
        self.state().readers.is_empty()
    }

    /// Returns the whole body in one piece. Returns `None` if it has not ended successfully or is
    /// no longer buffered whole. Copies the body without holding the lock.
    pub fn whole(&self) -> Option<Bytes> {
        let (full, last, length) = {
            let state = self.state();
            let complete = state.whole && matches!(state.end, Some(Ok(())));
            complete.then(|| (state.full.clone(), state.last.clone(), state.length))?
        };
        if full.is_empty() {
            return Some(last.freeze());
        }
        let mut all = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        full.iter().for_each(|segment| all.extend_from_slice(segment));
        all.extend_from_slice(&last);
        Some(all.into())
    }

    /// Replaces the segments by slices of `body`, the result of [`Fill::whole`]. Readers then share
    /// memory with the other owners of `body`.
    pub fn adopt(&self, body: &Bytes) {
        let mut state = self.state();
        for (at, segment) in state.full.iter_mut().enumerate() {
            *segment = body.slice(at * SEGMENT_BYTES..(at + 1) * SEGMENT_BYTES);
        }
    }

    /// Adds a reader from byte `first` to byte `last` (inclusive), or to the end. Returns `None` if
    /// the body is no longer buffered whole.
    pub fn read(self: &Arc<Self>, first: u64, last: Option<u64>) -> Option<FillReader> {
        let mut state = self.state();
        if !state.whole {
            return None;
        }
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(id, ReaderState { at: first, waker: None, delay: Duration::ZERO });
        drop(state);
        Some(FillReader { fill: self.clone(), id, at: first, last })
    }
}

impl State {
    fn append(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT_BYTES - self.last.len()));
            self.last.extend_from_slice(now);
            if self.last.len() == SEGMENT_BYTES {
                self.full.push_back(std::mem::take(&mut self.last).freeze());
            }
            bytes = later;
        }
    }

    /// Drops the segments that every reader has read.
    fn trim(&mut self) {
        if self.whole {
            return;
        }
        let needed = self.readers.values().map(|reader| reader.at).min().unwrap_or(self.length);
        while !self.full.is_empty() && self.base + SEGMENT_BYTES as u64 <= needed {
            self.base += SEGMENT_BYTES as u64;
            self.full.pop_front();
        }
    }

    /// Charges the writer's waiting time to the readers that are [`WINDOW_BYTES`] behind, if a
    /// reader that has read everything waited too. Drops readers that exceed [`MAX_READER_DELAY`].
    fn charge(&mut self, waited: Duration) {
        let length = self.length;
        // A reader of a range may be ahead of the writer.
        if !self.readers.values().any(|reader| reader.at >= length) {
            return;
        }
        let is_behind =
            |reader: &&mut ReaderState| length.saturating_sub(reader.at) >= WINDOW_BYTES;
        for reader in self.readers.values_mut().filter(is_behind) {
            reader.delay += waited;
        }
        self.readers.retain(|_, reader| reader.delay < MAX_READER_DELAY);
    }

    /// Bytes from `at` to the end of its segment.
    fn at(&self, at: u64) -> Option<Bytes> {
        let offset = usize::try_from(at.checked_sub(self.base)?).ok()?;
        let (segment, within) = (offset / SEGMENT_BYTES, offset % SEGMENT_BYTES);
        if let Some(full) = self.full.get(segment) {
            return Some(full.slice(within..));
        }
        let last = self.last.get(within..).filter(|_| segment == self.full.len())?;
        (!last.is_empty()).then(|| Bytes::copy_from_slice(last))
    }

    fn wake_readers(&mut self) {
        for waker in self.readers.values_mut().filter_map(|reader| reader.waker.take()) {
            waker.wake();
        }
    }
}

/// A reader of a [`Fill`].
#[derive(Debug)]
pub struct FillReader {
    fill: Arc<Fill>,
    id: u64,
    at: u64,
    last: Option<u64>,
}

impl FillReader {
    /// Polls for the next bytes. Returns `None` at the end.
    pub fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, OriginError>>> {
        let this = self.get_mut();
        if this.last.is_some_and(|last| this.at > last) {
            return Poll::Ready(None);
        }
        let mut state = this.fill.state();
        if !state.readers.contains_key(&this.id) {
            // This reader was too slow and was dropped. Its bytes may be gone.
            return Poll::Ready(Some(Err(OriginError::Stalled)));
        }
        if let Some(mut bytes) = state.at(this.at) {
            let wanted = this.last.map_or(u64::MAX, |last| last - this.at + 1);
            bytes.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            this.at += bytes.len() as u64;
            if let Some(reader) = state.readers.get_mut(&this.id) {
                reader.at = this.at;
            }
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(bytes)));
        }
        match &state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(failure)) => Poll::Ready(Some(Err(failure.clone()))),
            None => {
                if let Some(reader) = state.readers.get_mut(&this.id) {
                    reader.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = self.fill.state();
        state.readers.remove(&self.id);
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}

#[cfg(test)]
mod tests;
