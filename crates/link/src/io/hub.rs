//! The ground gateway's handle on the link.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_units::BitRate;

use super::driver::Driver;
use super::shared::Shared;
use super::{Flow, Socket};
use crate::endpoint::{Core, HubConfig, HubCore, SessionId};
use crate::flow::FlowEvent;
use crate::key::PublicKey;
use crate::lease::{BeamError, ModemRate};
use crate::status::Counters;
use crate::{Claim, Class, Target};

/// The link, seen from the ground: many aircraft. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Hub(Arc<Handle>);

struct Handle {
    shared: Arc<Shared<HubCore>>,
    address: Option<SocketAddr>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A flow that an aircraft opened.
pub struct Incoming {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Where it should lead.
    pub target: Target,
    /// How it should be treated.
    pub class: Class,
    /// Whose it is on board.
    pub passenger: u32,
    /// What its client says of its target, where the aircraft wants that verified.
    pub claim: Option<Claim>,
    /// The flow; its first bytes may be here already.
    pub flow: Flow,
}

/// One aircraft's session.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// The measured round trip.
    pub round_trip: Duration,
    /// What the session counts.
    pub counters: Counters,
}

impl Hub {
    /// Begins serving on `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: HubConfig) -> Self {
        Self::start_seeded(socket, config, super::seed())
    }

    /// The same with known randomness, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: HubConfig, seed: [u8; 32]) -> Self {
        let address = socket.local_addr().ok();
        let shared = Arc::new(Shared::new(HubCore::new(config, seed)));
        tokio::spawn(Driver::new(shared.clone(), socket));
        Self(Arc::new(Handle { shared, address }))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.address
    }

    /// The next flow that any aircraft opens; `None` once the hub is closed.
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
            let (session, event) = state.opened.pop_front()?;
            let FlowEvent::Opened { flow, target, class, passenger } = event else { continue };
            let Some(aircraft) = state.core.aircraft_of(session) else { continue };
            let claim = state.core.session(session).and_then(|it| it.claim_of(flow).cloned());
            drop(state);
            let flow = Flow::of_hub(shared.clone(), (session, flow));
            return Some(Incoming { aircraft, target, class, passenger, claim, flow });
        }
    }

    /// The aircraft share a beam of these rates, towards them and from them; `None` where a
    /// direction is not shared. May be called again when the rates change.
    ///
    /// Fails where a direction begins to be shared and the aircraft's floors do not fit into it. If
    /// it shrinks below them later, all are cut in proportion.
    pub fn set_beam(
        &self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
    ) -> Result<(), BeamError> {
        let shared = &self.0.shared;
        let now = shared.now();
        let mut state = shared.lock();
        let set = state.core.set_beam(forward, back, now);
        state.wake_driver();
        set
    }

    /// The modem towards an aircraft tells what it sends at, or (`None`) that nothing is known of
    /// it any more. Counts for [`MODEM_LEASE`](crate::MODEM_LEASE); tell it again before that,
    /// changed or not.
    pub fn set_modem_rate(&self, aircraft: &PublicKey, told: Option<ModemRate>) {
        let shared = &self.0.shared;
        let now = shared.now();
        let mut state = shared.lock();
        state.core.set_modem_rate(aircraft, told, now);
        state.wake_driver();
    }

    /// Every session.
    pub fn status(&self) -> Vec<(SessionId, SessionStatus)> {
        let mut state = self.0.shared.lock();
        let status = |(id, aircraft, session): (SessionId, PublicKey, &mut crate::Session)| {
            let (round_trip, counters) = (session.round_trip(), session.counters());
            (id, SessionStatus { aircraft, round_trip, counters })
        };
        state.core.sessions().map(status).collect()
    }

    /// Closes every session and waits until the aircraft have been told.
    pub async fn close(&self) {
        self.0.shared.close();
        self.0.shared.ended().await;
    }
}
