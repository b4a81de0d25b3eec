//! The air gateway's handle on the link.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::driver::Driver;
use super::shared::Shared;
use super::{Flow, Open, Socket};
use crate::endpoint::{AirConfig, AirCore, Core};
use crate::lease::ModemRate;
use crate::memory::Remembered;
use crate::session::OpenError;
use crate::status::Counters;

/// How long an opening waits for the first session: a handshake's tries at 1.5 s and 3.75 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// The link, seen from the air. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Air(Arc<Handle>);

struct Handle(Arc<Shared<AirCore>>);

/// Looks at the link without keeping it open.
#[derive(Clone)]
pub struct AirWatch(Weak<Handle>);

impl AirWatch {
    /// The link, while anybody else holds it.
    pub fn air(&self) -> Option<Air> {
        self.0.upgrade().map(Air)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Air {
    /// Begins calling the hub over `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: AirConfig) -> Self {
        Self::start_seeded(socket, config, super::seed())
    }

    /// The same with known randomness, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: AirConfig, seed: [u8; 32]) -> Self {
        let shared = Arc::new(Shared::new(AirCore::new(config, seed)));
        tokio::spawn(Driver::new(shared.clone(), socket));
        Self(Arc::new(Handle(shared)))
    }

    /// Opens a flow. Whether its target can be reached shows later, as a reset. Waits a while for
    /// the first session, so that clients that come before the ground does are served, and for
    /// memory for its first bytes.
    pub async fn open(&self, open: Open) -> Result<Flow, OpenError> {
        let attempt = async {
            loop {
                let changed = self.0.0.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                match self.try_open(&open) {
                    Err(OpenError::NotConnected) => changed.await,
                    result => return result,
                }
            }
        };
        let opened = timeout(PATIENCE, attempt).await;
        let (mut flow, taken) = opened.unwrap_or(Err(OpenError::NotConnected))?;
        // What found no room leaves when there is some. A flow that is reset before then says so
        // itself to whoever reads or writes it next.
        let _ = flow.write_all(&open.first[taken..]).await;
        Ok(flow)
    }

    fn try_open(&self, open: &Open) -> Result<(Flow, usize), OpenError> {
        let shared = &self.0.0;
        let now = shared.now();
        let mut state = shared.lock();
        let Open { target, class, passenger, claim, first } = open;
        let (key, taken) = state.core.open(target, *class, *passenger, first, now)?;
        if let (Some(claim), Some(session)) = (claim, state.core.session(key.0)) {
            session.claim(key.1, claim.clone());
        }
        state.wake_driver();
        drop(state);
        Ok((Flow::of_air(shared.clone(), key), taken))
    }

    /// What is worth remembering of the path to the hub, and how long ago it was learned.
    pub fn remembered(&self) -> Option<(Remembered, Duration)> {
        let shared = &self.0.0;
        let remembered = shared.lock().core.remembered()?;
        Some((remembered, shared.now().saturating_sub(remembered.at)))
    }

    /// Tells what an earlier process learned of the path, `age` ago. It counts as learned since this
    /// end was started at the earliest, so it is used for up to its age longer than its lifetime.
    pub fn remember(&self, remembered: Remembered, age: Duration) {
        let shared = &self.0.0;
        let at = shared.now().saturating_sub(age);
        shared.lock().core.remember(Remembered { at, ..remembered });
    }

    /// A look at the link that does not keep it open.
    pub fn watch(&self) -> AirWatch {
        AirWatch(Arc::downgrade(&self.0))
    }

    /// The modem tells what it sends at, or (`None`) that nothing is known of it any more. Counts
    /// for [`MODEM_LEASE`](crate::MODEM_LEASE); tell it again before that, changed or not.
    pub fn set_modem_rate(&self, told: Option<ModemRate>) {
        let shared = &self.0.0;
        let now = shared.now();
        let mut state = shared.lock();
        state.core.set_modem_rate(told, now);
        state.wake_driver();
    }

    /// What the session counts; `None` before the first.
    pub fn counters(&self) -> Option<Counters> {
        self.0.0.lock().core.current().map(|(_, session)| session.counters())
    }

    /// The measured round trip; `None` before the first session.
    pub fn round_trip(&self) -> Option<Duration> {
        self.0.0.lock().core.current().map(|(_, session)| session.round_trip())
    }

    /// Closes the session and waits until the hub has been told.
    pub async fn close(&self) {
        self.0.0.close();
        self.0.0.ended().await;
    }
}
