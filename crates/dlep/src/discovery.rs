//! Peer discovery on the segment (section 7.1).
//!
//! Signals that are not recognized, not valid, or arrive with a TTL other than 255 are ignored
//! (section 12.1).

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use dlep_core::Signal;
use dlep_fsm::discovery_modem::ModemDiscoveryFsm;
use dlep_fsm::discovery_router::{RouterDiscoveryConfig, RouterDiscoveryFsm};
use dlep_fsm::events::EmittedEvent;
use dlep_fsm::{FsmAction, FsmEvent};

use crate::timers::Timers;
use crate::{DISCOVERY_INTERVAL, MAX_SIGNAL_BYTES, TTL};

/// Maximum number of connection points tried from one offer.
pub const MAX_OFFER_POINTS: usize = 8;

/// Offer of a modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Modem's description of itself; may be empty.
    pub modem: String,
    /// Addresses to connect to, best first, at most [`MAX_OFFER_POINTS`]. Empty if the modem
    /// requires TLS at all of them.
    pub points: Vec<SocketAddr>,
}

/// Router side of discovery.
pub struct RouterDiscovery {
    machine: RouterDiscoveryFsm,
    timers: Timers,
    signal: Option<Bytes>,
}

impl RouterDiscovery {
    /// Starts discovery at `now` under the name `description`. The first signal is ready.
    pub fn new(description: &str, now: Duration) -> Self {
        let machine = RouterDiscoveryFsm::with_config(RouterDiscoveryConfig {
            peer_description: description.to_owned(),
            discovery_interval: DISCOVERY_INTERVAL,
        });
        let mut discovery = Self { machine, timers: Timers::default(), signal: None };
        discovery.step(now, FsmEvent::AppStartDiscovery);
        discovery
    }

    /// Processes a datagram that arrived with `ttl`. Returns the offer if it contains one.
    pub fn receive(
        &mut self,
        now: Duration,
        datagram: &[u8],
        ttl: u8,
        from: SocketAddr,
    ) -> Option<Offer> {
        let signal = parse(datagram, ttl)?;
        self.step(now, FsmEvent::RecvSignal { signal, from })
    }

    fn step(&mut self, now: Duration, event: FsmEvent) -> Option<Offer> {
        let mut offer = None;
        for action in self.machine.step(event) {
            match action {
                FsmAction::SendSignal { signal, .. } => {
                    self.signal = signal.encode().ok().map(Into::into);
                }
                FsmAction::StartTimer { id, kind, duration, periodic } => {
                    self.timers.set(id, kind, now, duration, periodic);
                }
                FsmAction::Emit(EmittedEvent::PeerDiscovered { endpoints, peer_description }) => {
                    let plain = endpoints.iter().filter(|point| !point.use_tls);
                    offer = Some(Offer {
                        modem: crate::sanitize(peer_description.as_deref().unwrap_or_default()),
                        points: plain.map(|point| point.addr).take(MAX_OFFER_POINTS).collect(),
                    });
                }
                _ => {}
            }
        }
        offer
    }

    /// Handles timers due at `now`.
    pub fn advance(&mut self, now: Duration) {
        while let Some((id, kind)) = self.timers.take_due(now) {
            self.step(now, FsmEvent::TimerExpired(id, kind));
        }
    }

    /// Time at which [`RouterDiscovery::advance`] must be called.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.next_due()
    }

    /// Takes the signal to send to the multicast groups, if one is due.
    pub fn take_signal(&mut self) -> Option<Bytes> {
        self.signal.take()
    }
}

/// Modem side of discovery.
pub struct ModemDiscovery {
    machine: ModemDiscoveryFsm,
}

impl ModemDiscovery {
    /// Offers sessions at `point`, without TLS.
    pub fn new(description: &str, point: SocketAddr) -> Self {
        Self { machine: ModemDiscoveryFsm::new(point, description.to_owned(), false) }
    }

    /// Processes a datagram that arrived with `ttl`. Returns the answer for its sender.
    pub fn receive(&mut self, datagram: &[u8], ttl: u8, from: SocketAddr) -> Option<Bytes> {
        let signal = parse(datagram, ttl)?;
        let actions = self.machine.step(FsmEvent::RecvSignal { signal, from });
        actions.into_iter().find_map(|action| match action {
            FsmAction::SendSignal { signal, .. } => signal.encode().ok().map(Into::into),
            _ => None,
        })
    }
}

fn parse(datagram: &[u8], ttl: u8) -> Option<Signal> {
    if ttl != TTL || datagram.len() > MAX_SIGNAL_BYTES {
        return None;
    }
    Signal::decode(Bytes::copy_from_slice(datagram)).ok()
}
