//! A leg for tests, on which nothing can be opened.

use bentpipe_flow::Reach;
use bentpipe_transport::{FlowDatagrams, FlowStream, OpenDatagrams, OpenError};
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::leg::{Connection, Leg, LegPath};
use crate::origin::Origin;

/// A leg that refuses everything.
pub struct FakeLeg {
    pub reach: watch::Sender<Reach>,
    /// Times at which the hub tried to open a stream for itself.
    pub tries: Mutex<Vec<Instant>>,
}

impl FakeLeg {
    pub fn new(reach: Reach) -> Self {
        Self { reach: watch::Sender::new(reach), tries: Mutex::default() }
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

    /// The first try meets an egress that restarts meanwhile.
    fn open_own(&self, _: Bytes) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        let mut tries = self.tries.lock();
        tries.push(Instant::now());
        if tries.len() == 1 {
            self.reach.send_replace(Reach::Down);
            self.reach.send_replace(Reach::Up);
        }
        refused()
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
