//! A body that is read while it is written: one writer, many readers.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::origin::Failure;

/// What is given to a reader at once, and the unit in which a body is held, bytes.
pub const SEGMENT_BYTES: usize = 64 * 1024;

/// Once a body is known to be too large to be stored, the writer is at most so far ahead of the
/// slowest reader, bytes. For each such body that is all the memory it takes.
pub const WINDOW_BYTES: u64 = 1024 * 1024;

/// A body on its way.
#[derive(Debug, Default)]
pub struct Fill(Mutex<State>);

#[derive(Debug)]
struct State {
    segments: VecDeque<Vec<u8>>,
    /// Where the first segment begins.
    base: u64,
    length: u64,
    end: Option<Result<(), Failure>>,
    /// Whether all of it is kept for readers to come.
    whole: bool,
    readers: BTreeMap<u64, Place>,
    next_reader: u64,
    writer: Option<Waker>,
    moved_at: Instant,
    held: Option<Held>,
}

/// What is let go when nobody reads any more.
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
}

impl Default for State {
    fn default() -> Self {
        Self {
            segments: VecDeque::new(),
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

    /// Adds to the body. Waits only where it is not kept whole and readers are behind.
    pub async fn push(&self, bytes: &[u8]) {
        poll_fn(|cx| self.poll_room(cx)).await;
        let mut state = self.state();
        state.append(bytes);
        state.moved_at = Instant::now();
        state.wake_readers();
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        state.trim();
        let slowest = state.readers.values().map(|reader| reader.at).min();
        if state.whole || slowest.is_none_or(|at| state.length - at < WINDOW_BYTES) {
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

    /// Whether more should come, and nothing has for `long`.
    pub fn is_stuck(&self, long: Duration) -> bool {
        let state = self.state();
        state.end.is_none() && state.moved_at.elapsed() >= long
    }

    /// Keeps `held` as long as this is here.
    pub fn hold(&self, held: impl Send + 'static) {
        self.state().held = Some(Held(Box::new(held)));
    }

    /// How much has come, bytes.
    pub fn length(&self) -> u64 {
        self.state().length
    }

    /// Whether nobody reads it.
    pub fn is_unread(&self) -> bool {
        self.state().readers.is_empty()
    }

    /// All of it, where all has come and is still here.
    pub fn whole(&self) -> Option<Bytes> {
        let state = self.state();
        let complete = state.whole && matches!(state.end, Some(Ok(())));
        complete.then(|| {
            let mut all = Vec::with_capacity(usize::try_from(state.length).unwrap_or_default());
            for segment in &state.segments {
                all.extend_from_slice(segment);
            }
            all.into()
        })
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
        state.readers.insert(id, Place { at: first, waker: None });
        drop(state);
        Some(FillReader { fill: self.clone(), id, at: first, last })
    }
}

impl State {
    fn append(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let full = self.segments.back().is_none_or(|last| last.len() == SEGMENT_BYTES);
            if full {
                self.segments.push_back(Vec::new());
            }
            // One was just pushed where there was none.
            let Some(last) = self.segments.back_mut() else { return };
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT_BYTES - last.len()));
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Forgets what every reader has read.
    fn trim(&mut self) {
        if self.whole {
            return;
        }
        let needed = self.readers.values().map(|reader| reader.at).min().unwrap_or(self.length);
        while let Some(first) = self.segments.front()
            && first.len() == SEGMENT_BYTES
            && self.base + SEGMENT_BYTES as u64 <= needed
        {
            self.base += SEGMENT_BYTES as u64;
            self.segments.pop_front();
        }
    }

    /// What there is from `at` on, to the end of a segment.
    fn at(&self, at: u64) -> Option<&[u8]> {
        let offset = usize::try_from(at.checked_sub(self.base)?).ok()?;
        let segment = self.segments.get(offset / SEGMENT_BYTES)?;
        segment.get(offset % SEGMENT_BYTES..).filter(|bytes| !bytes.is_empty())
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
        if let Some(bytes) = state.at(this.at) {
            let wanted = this.last.map_or(u64::MAX, |last| last - this.at + 1);
            let length = bytes.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
            let bytes = Bytes::copy_from_slice(&bytes[..length]);
            this.at += length as u64;
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
mod tests {
    use super::*;
    use futures_util::FutureExt;

    async fn next(reader: &mut FillReader) -> Option<Result<Bytes, Failure>> {
        poll_fn(|cx| Pin::new(&mut *reader).poll_next(cx)).await
    }

    async fn rest(reader: &mut FillReader) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = next(reader).await {
            all.extend(bytes.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn readers_come_before_amid_and_after() {
        let fill = Arc::new(Fill::default());
        let mut before = fill.read(0, None).unwrap();
        assert!(next(&mut before).now_or_never().is_none());
        fill.push(b"hello ").await;
        assert_eq!(next(&mut before).await.unwrap().unwrap(), "hello ");
        let mut amid = fill.read(0, None).unwrap();
        fill.push(b"world").await;
        fill.finish(Ok(()));
        assert_eq!(rest(&mut before).await, b"world");
        assert_eq!(rest(&mut amid).await, b"hello world");
        assert_eq!(rest(&mut fill.read(4, Some(6)).unwrap()).await, b"o w");
        assert_eq!(fill.whole().unwrap(), "hello world");
    }

    #[tokio::test]
    async fn single_bytes_do_not_cost_a_segment_each() {
        let fill = Fill::default();
        for _ in 0..SEGMENT_BYTES + 1 {
            fill.push(b"x").await;
        }
        assert_eq!(fill.state().segments.len(), 2);
    }

    #[tokio::test]
    async fn what_is_not_kept_waits_for_the_slowest_reader() {
        let fill = Arc::new(Fill::default());
        let mut reader = fill.read(0, None).unwrap();
        fill.forget_what_is_read();
        let piece = vec![1; SEGMENT_BYTES];
        let mut pushed = 0;
        while fill.push(&piece).now_or_never().is_some() {
            pushed += 1;
        }
        assert_eq!(pushed, WINDOW_BYTES / SEGMENT_BYTES as u64);
        assert!(fill.read(0, None).is_none(), "nobody may begin now");
        next(&mut reader).await;
        assert!(fill.push(&piece).now_or_never().is_some());
        assert!(fill.state().segments.len() <= pushed as usize + 1);
        drop(reader);
        for _ in 0..100 {
            fill.push(&piece).now_or_never().unwrap();
        }
        assert!(fill.state().segments.len() <= 2, "nobody reads: nothing is kept");
        assert!(fill.whole().is_none());
    }

    #[tokio::test]
    async fn a_failure_reaches_all_readers() {
        let fill = Arc::new(Fill::default());
        let mut reader = fill.read(0, None).unwrap();
        fill.push(b"x").await;
        fill.finish(Err(Failure { offline: true, code: 3 }));
        assert_eq!(next(&mut reader).await.unwrap().unwrap(), "x");
        assert_eq!(next(&mut reader).await.unwrap().unwrap_err().code, 3);
        assert!(fill.whole().is_none());
    }
}
