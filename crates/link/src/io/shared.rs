//! State shared by the driver, the handles and the flows.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::endpoint::{Core, Flows, SessionId};
use crate::flow::FlowEvent;

/// A flow's name over all sessions of an end.
pub type FlowKey = (SessionId, u64);

/// An end behind its lock. Flows hold it with `C` unsized, so that those of both ends are alike.
pub struct Shared<C: ?Sized> {
    epoch: Instant,
    /// Told when a session begins, a flow comes in, or the driver has ended.
    pub changed: Notify,
    /// Turns of the driver so far; outside the lock, which a driver that hangs may hold.
    turns: AtomicU64,
    state: Mutex<State<C>>,
}

/// State behind the lock.
pub struct State<C: ?Sized> {
    pub driver: Option<Waker>,
    /// The driver was woken, or is yet to look for the first time. It reads this without the lock.
    pub called: Arc<AtomicBool>,
    /// The tasks that wait for a flow: its reader and its writer. Never iterated.
    pub waiting: HashMap<FlowKey, Waiting>,
    /// Flows that the peer opened and nobody has accepted yet; bounded by the sessions' flow limits.
    pub opened: VecDeque<(SessionId, FlowEvent)>,
    pub closing: bool,
    pub ended: bool,
    pub core: C,
}

/// The tasks that wait for one flow.
#[derive(Default)]
pub struct Waiting {
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
}

/// Half of a flow that waits.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    Read,
    Write,
}

impl<C: ?Sized> Shared<C> {
    /// A panic elsewhere leaves the state as consistent as a dropped packet would.
    pub fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver has had its turn.
    pub fn turned(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// Turns of the driver so far.
    pub fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
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
}

impl<C> Shared<C> {
    pub fn new(core: C) -> Self {
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
        Self { epoch: Instant::now(), changed: Notify::new(), turns, state }
    }
}

impl<C: Core + ?Sized> Shared<C> {
    /// The time since this end was started.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Instant of that time, or as far ahead as a timer can be set.
    pub fn instant(&self, at: Duration) -> Instant {
        const FAR: Duration = Duration::from_secs(86_400);
        self.epoch + at.min(self.now() + FAR)
    }

    /// Runs `act` on a flow's session, if it is still there. When it returns a half, the task of
    /// `cx` is woken when that half may go on.
    pub fn with<T>(
        &self,
        key: FlowKey,
        cx: Option<&Context<'_>>,
        act: impl FnOnce(&mut C::Session, u64, Duration) -> (T, Option<Half>),
    ) -> Option<T> {
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

impl<C: Core + ?Sized> State<C> {
    /// There is something to send, or a timer has changed.
    pub fn wake_driver(&mut self) {
        self.called.store(true, Relaxed);
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Wakes whoever waits for what has happened; `true` when a flow came in.
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
