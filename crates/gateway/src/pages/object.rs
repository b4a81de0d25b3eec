//! An object that was promised to the cabin: its bytes as they come, for all who ask for it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_prefetch::wire::Head;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tokio::time::timeout;

/// A promised object.
#[derive(Debug, Default)]
pub struct Object(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    head: Option<Head>,
    chunks: Vec<Bytes>,
    end: Option<Result<(), PromiseBroken>>,
}

/// The object, or what is left of it, will not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ground has not sent what it promised")]
pub struct PromiseBroken;

/// An object's bytes, from the first on.
pub struct ObjectBody(BoxStream<'static, Result<Bytes, PromiseBroken>>);

impl Object {
    /// Waits for its head, no longer than `patience` if it is not there.
    pub async fn head(&self, patience: Duration) -> Result<Head, PromiseBroken> {
        let mut state = self.0.subscribe();
        let decided = state.wait_for(|state| state.head.is_some() || state.end.is_some());
        let state = timeout(patience, decided).await.map_err(|_| PromiseBroken)?;
        let head = state.map_err(|_| PromiseBroken)?.head.clone();
        head.ok_or(PromiseBroken)
    }

    /// Its bytes: those that are there, and those that come.
    pub fn body(&self) -> ObjectBody {
        let state = self.0.subscribe();
        let chunks = stream::try_unfold((state, 0), |(mut state, at)| async move {
            let next = {
                let there = |state: &State| state.chunks.len() > at || state.end.is_some();
                let state = state.wait_for(there).await.map_err(|_| PromiseBroken)?;
                match (state.chunks.get(at), state.end) {
                    (Some(bytes), _) => Some(bytes.clone()),
                    (None, Some(Ok(()))) => None,
                    (None, _) => return Err(PromiseBroken),
                }
            };
            Ok(next.map(|bytes| (bytes, (state, at + 1))))
        });
        ObjectBody(chunks.boxed())
    }

    pub(super) fn begin(&self, head: Head) {
        self.0.send_modify(|state| state.head = Some(head));
    }

    pub(super) fn push(&self, bytes: Bytes) {
        self.0.send_modify(|state| state.chunks.push(bytes));
    }

    pub(super) fn end(&self, end: Result<(), PromiseBroken>) {
        self.0.send_modify(|state| {
            state.end.get_or_insert(end);
        });
    }
}

impl Stream for ObjectBody {
    type Item = Result<Bytes, PromiseBroken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}
