//! The shards of an end: a driver for each, and a reader if there are several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::driver::Driver;
use super::inbox::Inbox;
use super::reader::{Reader, ReaderState};
use super::shared::Shared;
use super::{Handle, Socket};
use crate::endpoint::{Core, Overflow, SessionId};
use crate::flow::FlowEvent;
use crate::key::PublicKey;

/// An end of one or several shards, driven by tasks of the current tokio runtime. Dropping it closes
/// the end.
pub struct Shards<C: Core> {
    shards: Vec<Arc<Handle<C>>>,
    /// `None` if a lone shard reads for itself.
    reader: Option<Arc<ReaderState>>,
    changed: Arc<Notify>,
    /// Shard that is asked first for the next flow, so that all take turns.
    turn: AtomicUsize,
    pulses: Mutex<Pulses>,
}

/// Turns of each task when all had taken one last, and how often that was.
#[derive(Default)]
struct Pulses {
    turns: Vec<u64>,
    count: u64,
}

impl Pulses {
    fn note(&mut self, turns: Vec<u64>) -> u64 {
        let all = turns.iter().zip(&self.turns).all(|(now, before)| now > before);
        if all {
            self.count += 1;
            self.turns = turns;
        }
        self.count
    }
}

impl<C: Core + Send + Unpin + 'static> Shards<C> {
    /// Starts to move datagrams between `cores`, of which there is one at least, and `socket`.
    pub fn start(cores: Vec<C>, socket: Box<dyn Socket>) -> Self {
        let address = socket.local_addr().ok();
        let socket: Arc<dyn Socket> = socket.into();
        let (epoch, changed) = (Instant::now(), Arc::<Notify>::default());
        let filter = cores.first().and_then(Core::filter);
        let each = cores.into_iter().map(|core| Shared::started(core, epoch, changed.clone()));
        let shared: Arc<[_]> = each.map(Arc::new).collect();
        let reader = match &*shared {
            [only] => {
                tokio::spawn(Driver::new(only.clone(), socket));
                None
            }
            all => {
                let inboxes: Vec<Arc<Inbox>> = all.iter().map(|_| Arc::default()).collect();
                let driver = |(number, inbox): (usize, &Arc<Inbox>)| {
                    let (shared, socket) = (shared.clone(), socket.clone());
                    tokio::spawn(Driver::of_shard(shared, number, socket, inbox.clone()))
                };
                let drivers: Vec<_> = inboxes.iter().enumerate().map(driver).collect();
                let drivers = async {
                    for driver in drivers {
                        // A driver that panicked has ended too.
                        let _ = driver.await;
                    }
                };
                let state = Arc::new(ReaderState::new(changed.clone()));
                tokio::spawn(Reader::new(state.clone(), socket, filter, inboxes, drivers));
                Some(state)
            }
        };
        let shards = shared.iter().map(|it| Arc::new(Handle::of(it.clone(), address))).collect();
        let (turn, pulses) = (AtomicUsize::new(0), Mutex::default());
        Self { shards, reader, changed, turn, pulses }
    }

    /// The shards, of which there is one at least.
    pub fn all(&self) -> &[Arc<Handle<C>>] {
        &self.shards
    }

    /// Takes the counts of datagrams that were dropped because a shard was too slow for them.
    pub fn take_overflow(&self) -> Overflow {
        self.reader.as_ref().map_or_else(Overflow::default, |reader| reader.take_overflow())
    }

    /// Local address of the socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.shards.first()?.local_addr()
    }

    /// Waits for the next flow of either kind at any shard; `None` once the end is closed or a part
    /// of it has failed.
    pub async fn next_opened(
        &self,
        aircraft_of: impl Fn(&C, SessionId) -> Option<PublicKey>,
    ) -> Option<(&Handle<C>, PublicKey, SessionId, FlowEvent)> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let first = self.turn.fetch_add(1, Relaxed);
            for at in 0..self.shards.len() {
                let shard = &self.shards[(first + at) % self.shards.len()];
                if let Some((aircraft, session, event)) = shard.take_opened(&aircraft_of) {
                    return Some((shard, aircraft, session, event));
                }
            }
            if self.has_ended() {
                return None;
            }
            changed.await;
        }
    }

    /// Returns `true` if any of the tasks has ended.
    fn has_ended(&self) -> bool {
        let reader = self.reader.as_ref().is_some_and(|reader| reader.has_ended());
        reader || self.shards.iter().any(|shard| shard.has_ended())
    }

    /// Waits until any of the tasks has ended without a close, because it panicked; forever in
    /// normal operation.
    pub async fn failed(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.has_ended() {
                break;
            }
            changed.await;
        }
        if self.shards.iter().all(|shard| shard.is_closing()) {
            std::future::pending().await
        }
    }

    /// Number that rises only if every task has taken a turn since the last rise. The call requests
    /// another turn of each.
    pub fn pulse(&self) -> u64 {
        let turns = self.shards.iter().map(|shard| shard.pulse());
        let turns = turns.chain(self.reader.iter().map(|reader| reader.pulse())).collect();
        self.pulses.lock().note(turns)
    }

    /// Closes every session and waits until the peers have been told.
    pub async fn close(&self) {
        self.shards.iter().for_each(|shard| shard.shared.close());
        for shard in &self.shards {
            shard.shared.ended().await;
        }
    }
}

#[cfg(test)]
mod tests;
