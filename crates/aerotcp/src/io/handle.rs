//! The gateways' handles.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::io::Socket;
use bentpipe_link::{Class, PublicKey, Target};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::driver::Driver;
use super::shared::Shared;
use super::{Flow, Open};
use crate::endpoint::{AirConfig, AirCore, Core, GroundConfig, GroundCore, SessionId};
use crate::session::{Counters, Event, OpenError};

/// How long an opening waits for the first association: a handshake's tries at 1.5 s and 3.75 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// The far side, seen from the air. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Air(Arc<Handle>);

/// The far side, seen from the ground: many aircraft. Clones share it; the last one dropped closes
/// it.
#[derive(Clone)]
pub struct Ground(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
}

/// A connection that an aircraft opened.
pub struct Incoming {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Where it should lead.
    pub target: Target,
    /// How it should be treated.
    pub class: Class,
    /// Whose it is on board.
    pub passenger: u32,
    /// The connection; its first bytes may be here already.
    pub flow: Flow,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Handle {
    fn start(core: Box<dyn Core>, socket: Box<dyn Socket>) -> Arc<Self> {
        let address = socket.local_addr().ok();
        let shared = Arc::new(Shared::new(core));
        tokio::spawn(Driver::new(shared.clone(), socket));
        Arc::new(Self { shared, address })
    }

    async fn close(&self) {
        self.shared.close();
        self.shared.ended().await;
    }
}

impl Air {
    /// Begins calling the ground over `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: AirConfig) -> Self {
        Self::start_seeded(socket, config, seed())
    }

    /// The same with known randomness, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: AirConfig, seed: [u8; 32]) -> Self {
        Self(Handle::start(Box::new(AirCore::new(config, seed)), socket))
    }

    /// Opens a connection. Whether its target can be reached shows later, as a reset. Waits a while
    /// for the first association, and for room for the first bytes.
    pub async fn open(&self, open: Open) -> Result<Flow, OpenError> {
        let attempt = async {
            loop {
                let changed = self.0.shared.changed.notified();
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
        // What found no room leaves when there is some. A connection that is reset before then
        // says so itself to whoever reads or writes it next.
        let _ = flow.write_all(&open.first[taken..]).await;
        Ok(flow)
    }

    fn try_open(&self, open: &Open) -> Result<(Flow, usize), OpenError> {
        let shared = &self.0.shared;
        let now = shared.now();
        let mut state = shared.lock();
        if state.ended {
            return Err(OpenError::NotConnected);
        }
        let Open { target, class, passenger, first } = open;
        let id = state.core.current().ok_or(OpenError::NotConnected)?;
        let session = state.core.session(id).ok_or(OpenError::NotConnected)?;
        let (connection, taken) = session.open(target, *class, *passenger, first, now)?;
        state.wake_driver();
        drop(state);
        Ok((Flow::new(shared.clone(), (id, connection)), taken))
    }

    /// What the association counts; `None` before the first.
    pub fn counters(&self) -> Option<Counters> {
        let mut state = self.0.shared.lock();
        let id = state.core.current()?;
        state.core.session(id).map(|session| session.counters())
    }

    /// Closes the association and waits until the ground has been told.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl Ground {
    /// Begins serving on `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: GroundConfig) -> Self {
        Self::start_seeded(socket, config, seed())
    }

    /// The same with known randomness, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: GroundConfig, seed: [u8; 32]) -> Self {
        Self(Handle::start(Box::new(GroundCore::new(config, seed)), socket))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.address
    }

    /// The next connection that any aircraft opens; `None` once this end is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        let shared = &self.0.shared;
        loop {
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(incoming) = self.take_opened() {
                return Some(incoming);
            }
            if shared.lock().ended {
                return None;
            }
            changed.await;
        }
    }

    fn take_opened(&self) -> Option<Incoming> {
        let shared = &self.0.shared;
        let mut state = shared.lock();
        loop {
            let (session, event): (SessionId, Event) = state.opened.pop_front()?;
            let Event::Opened { connection, target, class, passenger } = event else { continue };
            let Some(aircraft) = state.core.peer_of(session) else { continue };
            drop(state);
            let flow = Flow::new(shared.clone(), (session, connection));
            return Some(Incoming { aircraft, target, class, passenger, flow });
        }
    }

    /// Closes every association and waits until the aircraft have been told.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

/// A strong seed from the operating system.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the operating system gives random bytes");
    seed
}
