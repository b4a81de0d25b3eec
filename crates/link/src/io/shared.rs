//! State shared by the driver, the handles and the flows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use bentpipe_flow::Reach;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::endpoint::{Core, Flows, SessionId};
use crate::flow::FlowEvent;

/// Identifier of a flow over all sessions of an end.
pub type FlowKey = (SessionId, u64);

/// An end behind its lock. Flows hold it with an unsized `C`, so that those of both ends have one
/// type.
pub struct Shared<C: ?Sized> {
    epoch: Instant,
    /// Notified when a session begins, a flow arrives, or a driver of the end has ended. All shards
    /// of an end have the same.
    pub changed: Arc<Notify>,
    /// Reachability of the peer, as of the driver's last turn.
    pub reach: watch::Sender<Reach>,
    /// Number of turns of the driver, outside the lock, which a driver that hangs may hold.
    turns: AtomicU64,
    state: Mutex<State<C>>,
}

/// State behind the lock.
pub struct State<C: ?Sized> {
    pub driver: Option<Waker>,
    /// The driver was woken, or has not run yet. It reads this without the lock.
    pub called: Arc<AtomicBool>,
    /// Tasks that wait for a flow, its reader and its writer. Never iterated.
    pub waiting: HashMap<FlowKey, Waiting>,
    /// Flows that the peer opened and nobody has accepted yet; bounded by the sessions' flow
    /// limits.
    pub opened: VecDeque<(SessionId, FlowEvent)>,
    pub closing: bool,
    pub ended: bool,
    pub core: C,
}

/// Tasks that wait for one flow.
#[derive(Default)]
pub struct Waiting {
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

/// Ends the end if the core panics while this exists, because its state may be inconsistent then.
/// Create it before the lock is taken, so that it is dropped after the lock is released.
pub struct PanicWatch<'a, C: ?Sized> {
    shared: &'a Shared<C>,
    was_panicking: bool,
}

impl<C: ?Sized> Drop for PanicWatch<'_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.shared.abandon();
        }
    }
}

/// Half of a flow.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    Read,
    Write,
}

impl<C: ?Sized> Shared<C> {
    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock()
    }

    /// Watches a call of the core by another task than the driver.
    pub fn watch_panic(&self) -> PanicWatch<'_, C> {
        PanicWatch { shared: self, was_panicking: std::thread::panicking() }
    }

    /// Counts a turn of the driver.
    pub fn turned(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// Number of turns of the driver.
    pub fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// Wakes everybody after the driver has ended, or the core has panicked.
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
}

impl<C> Shared<C> {
    pub fn new(core: C) -> Self {
        Self::started(core, Instant::now(), Arc::default())
    }

    /// One of several shards, with the time of their start.
    pub fn started(core: C, epoch: Instant, changed: Arc<Notify>) -> Self {
        let state = State {
            driver: None,
            called: Arc::new(AtomicBool::new(true)),
            waiting: HashMap::new(),
            opened: VecDeque::new(),
            closing: false,
            ended: false,
            core,
        };
        let (turns, state) = (AtomicU64::new(0), Mutex::new(state));
        Self { epoch, changed, reach: watch::Sender::new(Reach::Down), turns, state }
    }
}

impl<C: Core + ?Sized> Shared<C> {
    /// Time since this end was started.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Instant of a time since the start, or the latest that a timer can be set to.
    pub fn instant(&self, at: Duration) -> Instant {
        const FAR: Duration = Duration::from_secs(86_400);
        self.epoch + at.min(self.now() + FAR)
    }

    /// Calls `act` with a flow's session, if it still exists. If `act` returns a half, the task of
    /// `cx` is woken when that half may continue.
    pub fn with<T>(
        &self,
        key: FlowKey,
        cx: Option<&Context<'_>>,
        act: impl FnOnce(&mut C::Session, u64, Duration) -> (T, Option<Half>),
    ) -> Option<T> {
        let _watch = self.watch_panic();
        let mut state = self.lock();
        let now = self.now();
        if state.ended {
            return None;
        }
        let session = state.core.session(key.0)?;
        let (done, waits) = act(session, key.1, now);
        let has_news = session.has_news(now);
        if let (Some(half), Some(cx)) = (waits, cx) {
            let waiting = state.waiting.entry(key).or_default();
            let slot = match half {
                Half::Read => &mut waiting.reader,
                Half::Write => &mut waiting.writer,
            };
            if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *slot = Some(cx.waker().clone());
            }
        }
        if has_news {
            state.wake_driver();
        }
        Some(done)
    }

    /// Closes all sessions.
    pub fn close(&self) {
        let mut state = self.lock();
        if !state.closing {
            state.closing = true;
            state.core.close();
            state.wake_driver();
        }
    }

    /// Waits until the peers have been told.
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

impl<C: Core + ?Sized> State<C> {
    /// Wakes the driver, because there is something to send or a timer has changed.
    pub fn wake_driver(&mut self) {
        self.called.store(true, Relaxed);
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Wakes the tasks that wait for events. Returns `true` if a flow arrived.
    pub fn deliver_events(&mut self) -> bool {
        let before = self.opened.len();
        while let Some((session, event)) = self.core.next_event() {
            match event {
                FlowEvent::Wake(flow) => self.wake_flow((session, flow)),
                opened => self.opened.push_back((session, opened)),
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
