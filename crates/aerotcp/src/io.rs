//! Async interface: both AeroTCP gateways on [`bentpipe_link::io`], which moves their datagrams and
//! turns their connections into streams.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_link::OpenError;
use bentpipe_link::io::{self, Handle, ReachWatch, Socket, seed};

pub use bentpipe_link::io::Open;

use crate::endpoint::{AirConfig, AirCore, GroundConfig, GroundCore};
use crate::session::{Counters, Session};

/// A connection as a byte stream.
pub type Flow = io::Flow<Session>;
/// A connection that an aircraft opened.
pub type Incoming = io::Incoming<Session>;

/// The ground gateway as seen from the air. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Air(Arc<Handle<AirCore>>);

/// Many aircraft as seen from the ground. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Ground(Arc<Handle<GroundCore>>);

impl Air {
    /// Starts to connect over `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: AirConfig) -> Self {
        Self(Handle::start(AirCore::new(config, seed()), socket))
    }

    /// Adds addresses of the ground gateway. Each is tried in turn if the ones before do not
    /// answer. The socket must reach them.
    pub fn also_at(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.0.look(|core, _| core.also_at(addresses));
    }

    /// Opens a connection. An unreachable target resets it later. Waits a while for the first
    /// association, and for room for the first bytes. AeroTCP treats all classes alike, and passes
    /// the class to the ground gateway.
    pub async fn open(&self, open: Open) -> Result<Flow, OpenError> {
        // AeroTCP does not carry class claims.
        let Open { target, class, passenger, first, claim: _ } = &open;
        let begin = |core: &mut AirCore, now| core.open(target, *class, *passenger, first, now);
        self.0.open(first, begin).await
    }

    /// Reachability of the ground gateway: [up](bentpipe_flow::Reach::Up) during an association.
    pub fn watch_reach(&self) -> ReachWatch {
        self.0.watch_reach()
    }

    /// Number of the association, or `None` if there is none. It increases with every association.
    pub fn session(&self) -> Option<u64> {
        self.0.look(|core, _| core.current().map(|(id, _)| id))
    }

    /// Counters of the association, or `None` before the first one.
    pub fn counters(&self) -> Option<Counters> {
        self.0.look(|core, _| core.current().map(|(_, session)| session.counters()))
    }

    /// Resolves if the task that moves datagrams ends although nobody closed this end.
    pub async fn failed(&self) {
        self.0.failed().await;
    }

    /// Number of turns of that task. Requests another turn, so a later call returns more unless the
    /// task hangs.
    pub fn pulse(&self) -> u64 {
        self.0.pulse()
    }

    /// Closes the association, and waits until the ground gateway was notified.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl Ground {
    /// Starts to serve on `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: GroundConfig) -> Self {
        Self(Handle::start(GroundCore::new(config, seed()), socket))
    }

    /// Local address of the listener.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits for the next connection of any aircraft. Returns `None` once this end is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        self.0.accept(GroundCore::aircraft_of).await
    }

    /// Resolves if the task that moves datagrams ends although nobody closed this end.
    pub async fn failed(&self) {
        self.0.failed().await;
    }

    /// Number of turns of that task. Requests another turn, so a later call returns more unless the
    /// task hangs.
    pub fn pulse(&self) -> u64 {
        self.0.pulse()
    }

    /// Closes all associations, and waits until the aircraft were notified.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
