//! Common part of the gateways' handles, for every transport.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::driver::Driver;
use super::shared::{FlowKey, Shared};
use super::{Flow, Socket};
use crate::endpoint::{Core, SessionId};
use crate::flow::FlowEvent;
use crate::key::PublicKey;
use crate::session::{OpenError, Session};
use crate::{Claim, Class, Target};

/// Maximum wait of an opening for the first session: a handshake's tries at 1.5 s and 3.75 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// An end that a task of the current tokio runtime drives. Dropping it closes it.
pub struct Handle<C: Core> {
    pub(super) shared: Arc<Shared<C>>,
    address: Option<SocketAddr>,
}

/// A flow that an aircraft opened.
pub struct Incoming<S: crate::Flows = Session> {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Destination.
    pub target: Target,
    /// Class.
    pub class: Class,
    /// Number of its passenger.
    pub passenger: u32,
    /// Claim of its client about the target, if the aircraft wants it verified.
    pub claim: Option<Claim>,
    /// The flow; its first bytes may be here already.
    pub flow: Flow<S>,
}

impl<C: Core> Drop for Handle<C> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<C: Core + Send + Unpin + 'static> Handle<C> {
    /// Begins to move datagrams between `core` and `socket`.
    pub fn start(core: C, socket: Box<dyn Socket>) -> Arc<Self> {
        let address = socket.local_addr().ok();
        let shared = Arc::new(Shared::new(core));
        tokio::spawn(Driver::new(shared.clone(), socket));
        Arc::new(Self { shared, address })
    }

    /// Local address of the socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Looks at the end, `now` being the time since it was started.
    pub fn look<T>(&self, look: impl FnOnce(&mut C, Duration) -> T) -> T {
        let now = self.shared.now();
        look(&mut self.shared.lock().core, now)
    }

    /// Does something to the end that may give it something to send.
    pub fn act<T>(&self, act: impl FnOnce(&mut C, Duration) -> T) -> T {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let done = act(&mut state.core, now);
        state.wake_driver();
        done
    }

    /// Opens a flow by `open`, which says how many of the `first` bytes it took. Waits a while for
    /// the first session, so that clients that come before the ground does are served, and for
    /// memory for the first bytes.
    pub async fn open(
        &self,
        first: &[u8],
        open: impl Fn(&mut C, Duration) -> Result<(FlowKey, usize), OpenError>,
    ) -> Result<Flow<C::Session>, OpenError> {
        let (key, taken) = self.connected(|| self.act(&open)).await?;
        let mut flow = Flow::new(self.shared.clone(), key);
        // What found no room leaves when there is some. A flow that is reset before then says so
        // itself to whoever reads or writes it next.
        let _ = flow.write_all(&first[taken..]).await;
        Ok(flow)
    }

    /// Tries until there is a session, for a while.
    pub(super) async fn connected<T>(
        &self,
        open: impl Fn() -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let attempt = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                match open() {
                    Err(OpenError::NotConnected) => changed.await,
                    result => return result,
                }
            }
        };
        timeout(PATIENCE, attempt).await.unwrap_or(Err(OpenError::NotConnected))
    }

    /// The next flow of bytes that any aircraft opens; `None` once this end is closed. `aircraft_of` tells
    /// whose session it is.
    pub async fn accept(
        &self,
        aircraft_of: impl Fn(&C, SessionId) -> Option<PublicKey>,
    ) -> Option<Incoming<C::Session>> {
        loop {
            let (aircraft, session, event) = self.next_opened(&aircraft_of).await?;
            let FlowEvent::Opened { flow, target, class, passenger } = event else { continue };
            let flow = Flow::new(self.shared.clone(), (session, flow));
            return Some(Incoming { aircraft, target, class, passenger, claim: None, flow });
        }
    }

    /// The next flow of whatever kind, as the core told of it.
    pub(super) async fn next_opened(
        &self,
        aircraft_of: impl Fn(&C, SessionId) -> Option<PublicKey>,
    ) -> Option<(PublicKey, SessionId, FlowEvent)> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.shared.lock();
                while let Some((session, event)) = state.opened.pop_front() {
                    if let Some(aircraft) = aircraft_of(&state.core, session) {
                        return Some((aircraft, session, event));
                    }
                }
                if state.ended {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Waits until the driver has ended although nobody closed this end: it panicked. Waits for ever
    /// while all is well.
    pub async fn failed(&self) {
        self.shared.ended().await;
        if self.shared.lock().closing {
            std::future::pending().await
        }
    }

    /// Turns of the driver so far. It is woken for another, so that the next call gives more, unless
    /// the driver hangs.
    pub fn pulse(&self) -> u64 {
        self.shared.lock().wake_driver();
        self.shared.turns()
    }

    /// Closes every session and waits until the peers have been told.
    pub async fn close(&self) {
        self.shared.close();
        self.shared.ended().await;
    }
}
