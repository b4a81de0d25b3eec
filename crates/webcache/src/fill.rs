//! A body that is read while it is written: one writer, many readers.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout};

use crate::origin::{Failure, STALLED};

/// Bytes that a reader gets at once, and the unit in which a body is held.
pub const SEGMENT_BYTES: usize = 64 * 1024;

/// Once a body is known not to be stored, the writer is at most so far ahead of the slowest reader,
/// bytes. For each such body that is all the memory it takes, once its readers have read what was kept
/// before.
pub const WINDOW_BYTES: u64 = 1024 * 1024;

/// Total time for which one reader of a body that is not stored may delay others; after it, the
/// reader's body breaks off. A reader alone may take its time.
pub const MOST_DELAY: Duration = Duration::from_secs(5);

/// Interval of checks for delayed readers.
const LOOK: Duration = Duration::from_millis(250);

/// A body on its way.
#[derive(Debug, Default)]
pub struct Fill(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Full segments, [`SEGMENT_BYTES`] each: readers share these.
    full: VecDeque<Bytes>,
    /// Bytes after them.
    last: BytesMut,
    /// Offset of the first segment.
    base: u64,
    length: u64,
    end: Option<Result<(), Failure>>,
    /// `true` if all of it is kept for readers to come.
    whole: bool,
    readers: BTreeMap<u64, Place>,
    next_reader: u64,
    writer: Option<Waker>,
    moved_at: Instant,
    held: Option<Held>,
}

/// Resource that is released when nobody reads any more.
struct Held(#[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Send>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

#[derive(Debug)]
struct Place {
    at: u64,
    waker: Option<Waker>,
    /// Time for which others have waited for it.
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
            held: None,
        }
    }
}

impl Fill {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held, so what it guards is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the body. Waits only where it is not kept whole and readers are behind, and for none of
    /// them longer than [`MOST_DELAY`] while others wait.
    pub async fn push(&self, bytes: &[u8]) {
        loop {
            let began = Instant::now();
            let has_room = timeout(LOOK, poll_fn(|cx| self.poll_room(cx))).await.is_ok();
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

    /// Says that no more comes, or why.
    pub fn finish(&self, end: Result<(), Failure>) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.wake_readers();
    }

    /// From now on only the present readers are served: what all of them have read is forgotten.
    pub fn forget_what_is_read(&self) {
        self.state().whole = false;
    }

    /// Returns `true` if more should arrive, and nothing has for `long`.
    pub fn is_stuck(&self, long: Duration) -> bool {
        let state = self.state();
        state.end.is_none() && state.moved_at.elapsed() >= long
    }

    /// Keeps `held` as long as this is here.
    pub fn hold(&self, held: impl Send + 'static) {
        self.state().held = Some(Held(Box::new(held)));
    }

    /// Bytes received.
    pub fn length(&self) -> u64 {
        self.state().length
    }

    /// Bytes in memory.
    pub fn held_bytes(&self) -> u64 {
        let state = self.state();
        state.length - state.base
    }

    /// Returns `true` if nobody reads it.
    pub fn is_unread(&self) -> bool {
        self.state().readers.is_empty()
    }

    /// All of it, in one piece, where all has come and is still here. Copies it, outside of the lock.
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

    /// From now on readers share `body`, which is [`Fill::whole`], with whoever else has it.
    pub fn adopt(&self, body: &Bytes) {
        let mut state = self.state();
        for (at, segment) in state.full.iter_mut().enumerate() {
            *segment = body.slice(at * SEGMENT_BYTES..(at + 1) * SEGMENT_BYTES);
        }
    }

    /// Reads from `first` up to and with `last`, or to the end. `None` where the beginning has been
    /// forgotten.
    pub fn read(self: &Arc<Self>, first: u64, last: Option<u64>) -> Option<FillReader> {
        let mut state = self.state();
        if !state.whole {
            return None;
        }
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(id, Place { at: first, waker: None, delay: Duration::ZERO });
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

    /// Forgets what every reader has read.
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

    /// The writer has `waited` for those that are a window behind. Where others have read all there is,
    /// these have waited too: who has cost them too much is let go.
    fn charge(&mut self, waited: Duration) {
        let length = self.length;
        // Who wants a range may be ahead of what has come.
        if !self.readers.values().any(|reader| reader.at >= length) {
            return;
        }
        let is_behind = |reader: &&mut Place| length.saturating_sub(reader.at) >= WINDOW_BYTES;
        for reader in self.readers.values_mut().filter(is_behind) {
            reader.delay += waited;
        }
        self.readers.retain(|_, reader| reader.delay < MOST_DELAY);
    }

    /// Bytes from `at` to the end of a segment.
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

/// One reader of a [`Fill`].
#[derive(Debug)]
pub struct FillReader {
    fill: Arc<Fill>,
    id: u64,
    at: u64,
    last: Option<u64>,
}

impl FillReader {
    /// The next bytes, or the end.
    pub fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        let this = self.get_mut();
        if this.last.is_some_and(|last| this.at > last) {
            return Poll::Ready(None);
        }
        let mut state = this.fill.state();
        if !state.readers.contains_key(&this.id) {
            // It was let go, and what it has not read may be forgotten.
            return Poll::Ready(Some(Err(Failure { offline: false, code: STALLED })));
        }
        if let Some(mut bytes) = state.at(this.at) {
            let wanted = this.last.map_or(u64::MAX, |last| last - this.at + 1);
            bytes.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            this.at += bytes.len() as u64;
            if let Some(place) = state.readers.get_mut(&this.id) {
                place.at = this.at;
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
                if let Some(place) = state.readers.get_mut(&this.id) {
                    place.waker = Some(cx.waker().clone());
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
