//! The two ends of the link, sans-IO: datagrams in, datagrams out, and the sessions between.

mod agenda;
mod air;
mod budget;
mod caller;
mod classes;
mod filter;
mod gate;
mod hub;
mod load;
mod places;
mod reception;
mod reclaim;
mod sharing;

use std::net::SocketAddr;
use std::time::Duration;

pub use air::{AirConfig, AirCore};
pub use caller::{Answer, Caller};
pub use filter::Filter;
pub use hub::{Aircraft, HubConfig, HubCore};
pub use places::{MAX_PLACES, Places};
pub use reception::{Confirmed, Packet, Reception, Terms};

use crate::Dscp;
use crate::code::ResetCode;
use crate::flow::{FlowEvent, Read, Write};
use crate::session::Session;

/// Identifier of a session at this end; never used twice.
pub type SessionId = u64;

/// Core of an end, which the async edge and the simulator drive alike.
pub trait Core {
    /// Holder of the flows to one peer.
    type Session: Flows;

    /// Filter that tells packets for this end from junk before they are handed over; `None` if this
    /// end takes all.
    fn filter(&self) -> Option<Filter> {
        None
    }
    /// A datagram came; `ce` says that its IP header was marked Congestion Experienced.
    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration);
    /// Appends the next datagram to `out` and says where it goes; `None` when none may leave now.
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr>;
    /// Returns `true` if the last datagram of `transmit` is to leave as ECT(0).
    fn is_ect(&self) -> bool {
        false
    }
    /// Mark of the last datagram of `transmit`, if packets are marked.
    fn dscp(&self) -> Dscp {
        Dscp::DF
    }
    /// The operating system refuses to send `to` a datagram of `bytes`: its interface has a smaller
    /// MTU. The datagram is lost. `false` from an end that makes its datagrams no smaller for it.
    fn too_large(&mut self, _to: SocketAddr, _bytes: usize, _now: Duration) -> bool {
        false
    }
    /// Time of the next call of [`Self::handle_timeout`], once `transmit` has returned `None`.
    fn next_timeout(&mut self, now: Duration) -> Duration;
    /// Does what is due, after which `transmit` may have something again.
    fn handle_timeout(&mut self, now: Duration);
    /// Next event for a flow's owner.
    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)>;
    /// Number of sessions begun so far.
    fn sessions_begun(&self) -> u64;
    /// A session that is still there.
    fn session(&mut self, id: SessionId) -> Option<&mut Self::Session>;
    /// Tells the peers that it is over, with the next packets.
    fn close(&mut self);
}

/// Operations of a flow's owner, through the session that holds the flow.
pub trait Flows: 'static {
    /// Reads what has come.
    fn read(&mut self, flow: u64, out: &mut [u8], now: Duration) -> Read;
    /// Writes what there is room for.
    fn write(&mut self, flow: u64, data: &[u8], now: Duration) -> Write;
    /// Ends the sending direction.
    fn finish(&mut self, flow: u64, now: Duration);
    /// Ends both directions at once.
    fn reset(&mut self, flow: u64, code: ResetCode, now: Duration);
    /// Tells the peer to send no more.
    fn stop_reading(&mut self, flow: u64, code: ResetCode, now: Duration);
    /// The owner has gone.
    fn release(&mut self, flow: u64, now: Duration);
    /// Returns `true` if any of these left something to do: to send, or to wake a flow's owner.
    fn has_news(&mut self, now: Duration) -> bool;
}

impl Flows for Session {
    fn read(&mut self, flow: u64, out: &mut [u8], now: Duration) -> Read {
        Self::read(self, flow, out, now)
    }

    fn write(&mut self, flow: u64, data: &[u8], now: Duration) -> Write {
        Self::write(self, flow, data, now)
    }

    fn finish(&mut self, flow: u64, _: Duration) {
        Self::finish(self, flow);
    }

    fn reset(&mut self, flow: u64, code: ResetCode, _: Duration) {
        Self::reset(self, flow, code);
    }

    fn stop_reading(&mut self, flow: u64, code: ResetCode, _: Duration) {
        Self::stop_reading(self, flow, code);
    }

    fn release(&mut self, flow: u64, _: Duration) {
        Self::release(self, flow);
    }

    fn has_news(&mut self, now: Duration) -> bool {
        Self::has_news(self, now)
    }
}
