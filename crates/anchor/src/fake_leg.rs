//! A leg for tests, on which no flow can be opened.

use bentpipe_flow::Reach;
use bentpipe_transport::{FlowDatagrams, FlowStream, OpenDatagrams, OpenError};
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::leg::{Connection, Leg, LegPath};
use crate::origin::Origin;

/// Answer to a hub that opens a stream for itself, by the number of the try.
type Answer = Box<dyn Fn(&FakeLeg, usize) -> Option<Box<dyn FlowStream>> + Send + Sync>;

/// A leg that refuses all flows.
pub struct FakeLeg {
    pub reach: watch::Sender<Reach>,
    /// Times at which the hub tried to open a stream for itself.
    pub tries: Mutex<Vec<Instant>>,
    answer: Answer,
}

impl FakeLeg {
    pub fn new(reach: Reach) -> Self {
        let reach = watch::Sender::new(reach);
        Self { reach, tries: Mutex::default(), answer: Box::new(|_, _| None) }
    }

    /// Gives `answer` to a hub that opens a stream for itself; `None` refuses it.
    pub fn answering(
        answer: impl Fn(&Self, usize) -> Option<Box<dyn FlowStream>> + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Box::new(answer), ..Self::new(Reach::Up) }
    }
}

fn refused<T: Send + 'static>() -> BoxFuture<'static, Result<T, OpenError>> {
    Box::pin(ready(Err(OpenError::Closed)))
}

impl Leg for FakeLeg {
    fn open<'a>(
        &'a self,
        _: &'a Origin,
        _: Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn FlowStream>, OpenError>> {
        refused()
    }

    fn open_own(&self, _: Bytes) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        let mut tries = self.tries.lock();
        tries.push(Instant::now());
        let answer = (self.answer)(self, tries.len());
        Box::pin(ready(answer.ok_or(OpenError::Closed)))
    }

    fn open_datagrams<'a>(
        &'a self,
        _: &'a Origin,
        _: OpenDatagrams,
    ) -> BoxFuture<'a, Result<Box<dyn FlowDatagrams>, OpenError>> {
        refused()
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    fn path(&self) -> Option<LegPath> {
        None
    }

    fn connection(&self) -> Option<Box<dyn Connection>> {
        None
    }
}
