//! The async edge: AeroTCP's two ends on the link's ([`bentpipe_link::io`]), which moves their
//! datagrams and makes streams of their connections.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_link::OpenError;
use bentpipe_link::io::{self, Handle, Socket, seed};

pub use bentpipe_link::io::Open;

use crate::endpoint::{AirConfig, AirCore, GroundConfig, GroundCore};
use crate::session::{Counters, Session};

/// A connection as a stream of bytes.
pub type Flow = io::Flow<Session>;
/// A connection that an aircraft opened.
pub type Incoming = io::Incoming<Session>;

/// The far side, seen from the air. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Air(Arc<Handle<AirCore>>);

/// The far side, seen from the ground: many aircraft. Clones share it; the last one dropped closes
/// it.
#[derive(Clone)]
pub struct Ground(Arc<Handle<GroundCore>>);

impl Air {
    /// Begins calling the ground over `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: AirConfig) -> Self {
        Self(Handle::start(AirCore::new(config, seed()), socket))
    }

    /// The ground may also be found at these addresses: each is called in turn where those before do
    /// not answer. The socket has to reach them.
    pub fn also_at(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.0.look(|core, _| core.also_at(addresses));
    }

    /// Opens a connection. Whether its target can be reached shows later, as a reset. Waits a while
    /// for the first association, and for room for the first bytes. AeroTCP itself treats all
    /// classes alike and tells the ground.
    pub async fn open(&self, open: Open) -> Result<Flow, OpenError> {
        // AeroTCP has no way to say a claim.
        let Open { target, class, passenger, first, claim: _ } = &open;
        let begin = |core: &mut AirCore, now| core.open(target, *class, *passenger, first, now);
        self.0.open(first, begin).await
    }

    /// Returns `true` if there is an association.
    pub fn is_up(&self) -> bool {
        self.0.look(|core, _| core.current().is_some())
    }

    /// The number of the association: of two the later has the larger. `None` while there is none.
    pub fn session(&self) -> Option<u64> {
        self.0.look(|core, _| core.current().map(|(id, _)| id))
    }

    /// Counters of the association; `None` before the first.
    pub fn counters(&self) -> Option<Counters> {
        self.0.look(|core, _| core.current().map(|(_, session)| session.counters()))
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

    /// Closes the association and waits until the ground has been told.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl Ground {
    /// Begins serving on `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: GroundConfig) -> Self {
        Self(Handle::start(GroundCore::new(config, seed()), socket))
    }

    /// Local address of the listener.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr()
    }

    /// The next connection that any aircraft opens; `None` once this end is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        self.0.accept(GroundCore::aircraft_of).await
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

    /// Closes every association and waits until the aircraft have been told.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
