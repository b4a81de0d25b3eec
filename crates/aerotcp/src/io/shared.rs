//! What the driver, the handles and the flows share.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::endpoint::{Core, SessionId};
use crate::session::{Event, Session};

/// A connection's name over all associations of an end.
pub type FlowKey = (SessionId, u32);

/// An end behind its lock.
pub struct Shared {
    state: Mutex<State>,
    epoch: Instant,
    /// Told when an association begins, a connection comes in, or the driver has ended.
    pub changed: Notify,
}

/// What the lock guards.
pub struct State {
    pub core: Box<dyn Core>,
    pub driver: Option<Waker>,
    /// The tasks that wait for a connection. Never iterated but to wake all.
    pub waiting: HashMap<FlowKey, Waiting>,
    /// Connections that the peer opened and nobody has accepted yet; bounded by the limits of the
    /// associations.
    pub opened: VecDeque<(SessionId, Event)>,
    pub closing: bool,
    pub ended: bool,
}

/// The tasks that wait for one connection.
#[derive(Default)]
pub struct Waiting {
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

/// Which half of a connection waits.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    Read,
    Write,
}

impl Shared {
    pub fn new(core: Box<dyn Core>) -> Self {
        let state = State {
            core,
            driver: None,
            waiting: HashMap::new(),
            opened: VecDeque::new(),
            closing: false,
            ended: false,
        };
        Self { state: Mutex::new(state), epoch: Instant::now(), changed: Notify::new() }
    }

    /// A panic elsewhere leaves the state as consistent as a dropped packet would.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since this end was started.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// When that will be, or as far ahead as a timer can be set.
    pub fn instant(&self, at: Duration) -> Instant {
        const FAR: Duration = Duration::from_secs(86_400);
        self.epoch + at.min(self.now() + FAR)
    }

    /// Runs `act` on a connection's association, if it is still there. When it returns a half, the task of `cx` is woken when that half may go on.
    pub fn with<T>(
        &self,
        key: FlowKey,
        cx: Option<&Context<'_>>,
        act: impl FnOnce(&mut Session, u32, Duration) -> (T, Option<Half>),
    ) -> Option<T> {
        let mut state = self.lock();
        let now = self.now();
        if state.ended {
            return None;
        }
        let (done, waits) = act(state.core.session(key.0)?, key.1, now);
        match (waits, cx) {
            (Some(half), Some(cx)) => {
                let waiting = state.waiting.entry(key).or_default();
                let slot = match half {
                    Half::Read => &mut waiting.reader,
                    Half::Write => &mut waiting.writer,
                };
                if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *slot = Some(cx.waker().clone());
                }
            }
            _ => state.wake_driver(), // something was done, which may be worth a packet
        }
        Some(done)
    }

    /// Nothing moves any more: whoever waits should look.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.ended = true;
        for (_, waiting) in state.waiting.drain() {
            for waker in [waiting.reader, waiting.writer].into_iter().flatten() {
                waker.wake();
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Says goodbye to the peers.
    pub fn close(&self) {
        let mut state = self.lock();
        if !state.closing {
            state.closing = true;
            state.core.close();
            state.wake_driver();
        }
    }

    /// Waits until the goodbyes have left.
    pub async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().ended {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    /// There is something to send, or a timer has changed.
    pub fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Wakes whoever waits for what has happened; `true` when a connection came in.
    pub fn deliver_events(&mut self) -> bool {
        let before = self.opened.len();
        while let Some((session, event)) = self.core.next_event() {
            match event {
                Event::Wake(id) => self.wake_flow((session, id)),
                opened @ Event::Opened { .. } => self.opened.push_back((session, opened)),
            }
        }
        self.opened.len() > before
    }

    fn wake_flow(&mut self, key: FlowKey) {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            for waker in [waiting.reader.take(), waiting.writer.take()].into_iter().flatten() {
                waker.wake();
            }
        }
    }
}
