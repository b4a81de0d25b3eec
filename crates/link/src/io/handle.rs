//! Common part of the gateways' handles, for every transport.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::timeout;

use super::driver::Driver;
use super::shared::{FlowKey, Shared};
use super::{Flow, Socket};
use crate::endpoint::{Core, SessionId};
use crate::flow::FlowEvent;
use crate::key::PublicKey;
use crate::session::{OpenError, Session};
use bentpipe_flow::{Claim, Class, Reach, Target};

/// Maximum wait of an opening for the first session: the handshake attempts at 1.5 s and 3.75 s.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Reachability of the peer, now and with every change.
pub type ReachWatch = watch::Receiver<Reach>;

/// An end driven by a task of the current tokio runtime. Dropping it closes the end.
pub struct Handle<C: Core> {
    pub(super) shared: Arc<Shared<C>>,
    address: Option<SocketAddr>,
}

/// A flow that an aircraft opened.
pub struct Incoming<S: crate::Flows = Session> {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Counter of the handshake of its session; 0 for a transport whose sessions are not ordered.
    pub session: u64,
    /// Destination.
    pub target: Target,
    /// Class.
    pub class: Class,
    /// Number of its passenger.
    pub passenger: u32,
    /// Class claim of its client about the target, if the aircraft wants it verified.
    pub claim: Option<Claim>,
    /// The flow; its first bytes may have arrived.
    pub flow: Flow<S>,
}

impl<C: Core> Drop for Handle<C> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<C: Core + Send + Unpin + 'static> Handle<C> {
    /// Starts to move datagrams between `core` and `socket`.
    pub fn start(core: C, socket: Box<dyn Socket>) -> Arc<Self> {
        let address = socket.local_addr().ok();
        let shared = Arc::new(Shared::new(core));
        tokio::spawn(Driver::new(shared.clone(), socket.into()));
        Arc::new(Self::of(shared, address))
    }

    /// Handle of a shard that is driven already.
    pub(super) fn of(shared: Arc<Shared<C>>, address: Option<SocketAddr>) -> Self {
        Self { shared, address }
    }

    /// Local address of the socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Reachability of the peer, as of the driver's last turn.
    pub fn watch_reach(&self) -> ReachWatch {
        self.shared.reach.subscribe()
    }

    /// Calls `look` with the end and the time since its start.
    pub fn look<T>(&self, look: impl FnOnce(&mut C, Duration) -> T) -> T {
        let _watch = self.shared.watch_panic();
        let now = self.shared.now();
        look(&mut self.shared.lock().core, now)
    }

    /// Calls `act` with the end, and wakes the driver, because there may be something to send.
    pub fn act<T>(&self, act: impl FnOnce(&mut C, Duration) -> T) -> T {
        let _watch = self.shared.watch_panic();
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let done = act(&mut state.core, now);
        state.wake_driver();
        done
    }

    /// Opens a flow by `open`, which returns how many of the `first` bytes it accepted. Waits a
    /// while for the first session, so that early clients are served, and for memory for the first
    /// bytes.
    pub async fn open(
        &self,
        first: &[u8],
        open: impl Fn(&mut C, Duration) -> Result<(FlowKey, usize), OpenError>,
    ) -> Result<Flow<C::Session>, OpenError> {
        let (key, taken) = self.connected(|| self.act(&open)).await?;
        let mut flow = Flow::new(self.shared.clone(), key);
        // The rest is sent when there is room. If the flow is reset before, its next reader or
        // writer sees that.
        let _ = flow.write_all(&first[taken..]).await;
        Ok(flow)
    }

    /// Calls `open` until there is a session, for a limited time.
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
        timeout(MAX_WAIT, attempt).await.unwrap_or(Err(OpenError::NotConnected))
    }

    /// Waits for the next stream that an aircraft opens; `None` once this end is closed.
    /// `aircraft_of` returns the aircraft of a session.
    pub async fn accept(
        &self,
        aircraft_of: impl Fn(&C, SessionId) -> Option<PublicKey>,
    ) -> Option<Incoming<C::Session>> {
        loop {
            let (aircraft, session, event) = self.next_opened(&aircraft_of).await?;
            let FlowEvent::Opened { flow, target, class, passenger } = event else { continue };
            let flow = Flow::new(self.shared.clone(), (session, flow));
            return Some(Incoming {
                aircraft,
                session: 0,
                target,
                class,
                passenger,
                claim: None,
                flow,
            });
        }
    }

    /// Waits for the next flow of either kind.
    async fn next_opened(
        &self,
        aircraft_of: impl Fn(&C, SessionId) -> Option<PublicKey>,
    ) -> Option<(PublicKey, SessionId, FlowEvent)> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(opened) = self.take_opened(&aircraft_of) {
                return Some(opened);
            }
            if self.has_ended() {
                return None;
            }
            changed.await;
        }
    }

    /// Takes the next flow of either kind, if there is one.
    pub(super) fn take_opened(
        &self,
        aircraft_of: impl Fn(&C, SessionId) -> Option<PublicKey>,
    ) -> Option<(PublicKey, SessionId, FlowEvent)> {
        let mut state = self.shared.lock();
        while let Some((session, event)) = state.opened.pop_front() {
            if let Some(aircraft) = aircraft_of(&state.core, session) {
                return Some((aircraft, session, event));
            }
        }
        None
    }

    /// Returns `true` if the driver has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.lock().ended
    }

    /// Returns `true` if the end was closed.
    pub(super) fn is_closing(&self) -> bool {
        self.shared.lock().closing
    }

    /// Waits until the driver has ended without a close, because it or the core panicked; forever in
    /// normal operation.
    pub async fn failed(&self) {
        self.shared.ended().await;
        if self.is_closing() {
            std::future::pending().await
        }
    }

    /// Number of turns of the driver. The call requests another turn, so that the next call returns
    /// more unless the driver hangs.
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
