//! The ground gateway's handle on the link.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bentpipe_units::{BitRate, ByteSize};

use super::{DatagramFlow, Flow, Handle, Incoming, Socket};
use crate::code::ResetCode;
use crate::endpoint::{Core, HubConfig, HubCore, SessionId};
use crate::flow::FlowEvent;
use crate::key::PublicKey;
use crate::lease::{BeamError, ModemRate};
use crate::settings::SettingsError;
use crate::status::Counters;
use crate::{Class, ClassCounters, ClassSettings, Most, OpenDatagrams, PerClass, Traffic};

/// The link, seen from the ground: many aircraft. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Hub(Arc<Handle<HubCore>>);

/// Looks at the link without keeping it open.
#[derive(Clone)]
pub struct HubWatch(Weak<Handle<HubCore>>);

impl HubWatch {
    /// The link, while anybody else holds it.
    pub fn hub(&self) -> Option<Hub> {
        self.0.upgrade().map(Hub)
    }
}

/// A flow that an aircraft opened.
pub enum Arrived {
    /// A byte stream.
    Stream(Incoming),
    /// A flow of datagrams.
    Datagrams(IncomingDatagrams),
}

/// A flow of datagrams that an aircraft opened.
pub struct IncomingDatagrams {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Requested flow, its class no more favoured than the aircraft may have.
    pub open: OpenDatagrams,
    /// The flow; its first datagrams may be here already.
    pub flow: DatagramFlow,
}

impl Arrived {
    /// The stream, for who serves no datagrams: a flow of those is reset as not allowed.
    pub fn stream(self) -> Option<Incoming> {
        match self {
            Self::Stream(incoming) => Some(incoming),
            Self::Datagrams(incoming) => {
                incoming.flow.reset(ResetCode::Forbidden);
                None
            }
        }
    }
}

/// One aircraft's session.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// The measured round trip.
    pub round_trip: Duration,
    /// Counters of the session.
    pub counters: Counters,
}

impl Hub {
    /// Begins serving on `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: HubConfig) -> Self {
        Self::start_seeded(socket, config, super::seed())
    }

    /// The same with known randomness, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: HubConfig, seed: [u8; 32]) -> Self {
        Self(Handle::start(HubCore::new(config, seed), socket))
    }

    /// Local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr()
    }

    /// A look at the link that does not keep it open.
    pub fn watch(&self) -> HubWatch {
        HubWatch(Arc::downgrade(&self.0))
    }

    /// The address from which each aircraft's last handshake came, for the process after this one.
    pub fn homes(&self) -> Vec<(PublicKey, IpAddr)> {
        self.0.look(|core, _| core.homes().map(|(key, home)| (*key, home)).collect())
    }

    /// Gives the address that an aircraft had in the process before this one: handshakes from there go
    /// before those of strangers.
    pub fn remember_home(&self, aircraft: &PublicKey, home: IpAddr) {
        self.0.look(|core, _| core.remember_home(aircraft, home));
    }

    /// The next flow that any aircraft opens; `None` once the hub is closed.
    pub async fn accept(&self) -> Option<Arrived> {
        loop {
            let (aircraft, session, event) = self.0.next_opened(HubCore::aircraft_of).await?;
            let shared = self.0.shared.clone();
            match event {
                FlowEvent::Opened { flow, target, class, passenger } => {
                    let claim = self.0.look(|core, _| {
                        core.session(session).and_then(|it| it.claim_of(flow).cloned())
                    });
                    let flow = Flow::new(shared, (session, flow));
                    let incoming = Incoming { aircraft, target, class, passenger, claim, flow };
                    return Some(Arrived::Stream(incoming));
                }
                FlowEvent::OpenedDatagrams { flow, open } => {
                    let flow = DatagramFlow::new(shared, (session, flow));
                    return Some(Arrived::Datagrams(IncomingDatagrams { aircraft, open, flow }));
                }
                FlowEvent::Wake(_) => {}
            }
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
        self.0.act(|core, now| core.set_beam(forward, back, now))
    }

    /// The modem towards an aircraft tells what it sends at, or (`None`) that nothing is known of
    /// it any more. Counts for [`MODEM_LEASE`](crate::MODEM_LEASE); tell it again before that,
    /// changed or not.
    pub fn set_modem_rate(&self, aircraft: &PublicKey, told: Option<ModemRate>) {
        self.0.act(|core, now| core.set_modem_rate(aircraft, told, now));
    }

    /// All sessions together may hold so much memory, from now on, beside the reserves of their flows.
    pub fn set_memory(&self, most: ByteSize) {
        self.0.act(|core, _| core.set_memory(most));
    }

    /// From now on each class gets this of what goes to an aircraft.
    pub fn set_classes(
        &self,
        aircraft: &PublicKey,
        classes: PerClass<ClassSettings>,
    ) -> Result<(), SettingsError> {
        self.0.act(|core, now| core.set_classes(aircraft, classes, now))
    }

    /// Every session.
    pub fn status(&self) -> Vec<(SessionId, SessionStatus)> {
        let status = |(id, aircraft, session): (SessionId, PublicKey, &mut crate::Session)| {
            let (round_trip, counters) = (session.round_trip(), session.counters());
            (id, SessionStatus { aircraft, round_trip, counters })
        };
        self.0.look(|core, _| core.sessions().map(status).collect())
    }

    /// Counters of a class in a session; `None` if the session is over.
    pub fn class_counters(&self, id: SessionId, class: Class) -> Option<ClassCounters> {
        self.0.look(|core, _| core.session(id).map(|session| session.class_counters(class)))
    }

    /// Traffic of an aircraft's session, in total and since the last call; `None` while it has
    /// none.
    pub fn traffic(&self, aircraft: &PublicKey, most: Most) -> Option<Traffic> {
        self.0.look(|core, now| core.traffic(aircraft, most, now))
    }

    /// Waits until the task that moves datagrams has ended although nobody closed this end; for ever
    /// while all is well.
    pub async fn failed(&self) {
        self.0.failed().await;
    }

    /// Turns of that task so far, which is asked for another: unless it hangs, the next call gives more.
    pub fn pulse(&self) -> u64 {
        self.0.pulse()
    }

    /// Closes every session and waits until the aircraft have been told.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
