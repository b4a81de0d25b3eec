//! The two ends of the link, sans-IO: datagrams in, datagrams out, and the sessions between.

mod air;
mod hub;
mod load;
mod sharing;

use std::net::SocketAddr;
use std::time::Duration;

pub use air::{AirConfig, AirCore};
pub use hub::{Aircraft, HubConfig, HubCore};
pub use load::Load;

use crate::flow::FlowEvent;
use crate::session::Session;

/// What a session is called at this end; never used twice.
pub type SessionId = u64;

/// What the async edge and the simulator drive alike.
pub trait Core {
    /// A datagram came; `ce` says that its IP header was marked Congestion Experienced.
    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration);
    /// Appends the next datagram to `out` and says where it goes; `None` when none may leave now.
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr>;
    /// Whether the datagram that `transmit` gave last is to leave as ECT(0).
    fn is_ect(&self) -> bool;
    /// The operating system refuses to send `to` a datagram of `bytes`: its interface has a smaller
    /// MTU. The datagram is lost.
    fn too_large(&mut self, to: SocketAddr, bytes: usize, now: Duration);
    /// When to call [`Self::handle_timeout`] next, once `transmit` has returned `None`.
    fn next_timeout(&mut self, now: Duration) -> Duration;
    /// Does what is due, after which `transmit` may have something again.
    fn handle_timeout(&mut self, now: Duration);
    /// What a flow's owner should hear.
    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)>;
    /// How many sessions have begun so far.
    fn sessions_begun(&self) -> u64;
    /// A session that is still there.
    fn session(&mut self, id: SessionId) -> Option<&mut Session>;
    /// Tells the peers that it is over, with the next packets.
    fn close(&mut self);
}
