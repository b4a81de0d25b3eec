//! The two ends, sans-IO: datagrams in, datagrams out. Who may speak at all is decided here, by
//! the link's own handshake ([`bentpipe_link::secure`]).

mod air;
mod ground;

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::PublicKey;

pub use air::{AirConfig, AirCore};
pub use ground::{Aircraft, GroundConfig, GroundCore};

use crate::session::{Event, Session};

/// Sets AeroTCP's handshakes apart from the link's: neither end of one understands the other.
const PROLOGUE: &[u8] = b"bentpipe aerotcp v1";

/// What an association is called at this end; never used twice.
pub type SessionId = u64;

/// What the async edge and the simulator drive alike.
pub trait Core: Send {
    /// A datagram came.
    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, now: Duration);
    /// Appends the next datagram to `out` and says where it goes; `None` when none may leave now.
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr>;
    /// When to call [`Self::handle_timeout`] next, once `transmit` has returned `None`.
    fn next_timeout(&mut self, now: Duration) -> Duration;
    /// Does what is due, after which `transmit` may have something again.
    fn handle_timeout(&mut self, now: Duration);
    /// What a connection's owner should hear.
    fn next_event(&mut self) -> Option<(SessionId, Event)>;
    /// How many associations have begun so far.
    fn sessions_begun(&self) -> u64;
    /// An association that is still there.
    fn session(&mut self, id: SessionId) -> Option<&mut Session>;
    /// The association at the air, once the ground has answered; the ground has no such one.
    fn current(&mut self) -> Option<SessionId>;
    /// Who the peer of an association is.
    fn peer_of(&self, id: SessionId) -> Option<PublicKey>;
    /// Tells the peers that it is over, with the next packets.
    fn close(&mut self);
}

#[cfg(test)]
pub mod tests;
