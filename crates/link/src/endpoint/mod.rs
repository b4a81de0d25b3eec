//! The two ends of the link, sans-IO: datagrams in, datagrams out, and sessions in between.

mod agenda;
mod air;
mod aircraft;
mod bottlenecks;
mod budget;
mod classes;
mod filter;
mod fleet;
#[cfg(test)]
mod fleet_tests;
mod handshake_limiter;
mod hub;
mod initiator;
mod known;
mod load;
#[cfg(test)]
mod outage_tests;
mod peer_addresses;
mod reclaim;
mod responder;
mod shard_message;
mod shards;
mod sharing;
mod strangers;
#[cfg(test)]
mod vanish_tests;

use std::net::SocketAddr;
use std::time::Duration;

pub use air::{AirConfig, AirCore};
pub use aircraft::Aircraft;
pub use filter::{Filter, Sender};
pub use fleet::ShardFleet;
pub use hub::{HubConfig, HubCore};
pub use initiator::{Answer, Initiator};
pub use peer_addresses::{MAX_PEER_ADDRESSES, PeerAddresses};
pub use responder::{AnswerParams, Confirmed, Packet, Responder};
pub use shard_message::ShardMessage;
pub use shards::{MAX_SHARDS, shard_of_packet, shard_of_session, shards_of_aircraft};
pub use strangers::{FlowsRefused, MemoryRefused, Overflow, Refused};

use crate::Dscp;
use crate::flow::{FlowEvent, Read, Write};
use crate::session::Session;
use bentpipe_flow::{Reach, ResetCode};

/// Identifier of a session at this end; never used twice.
pub type SessionId = u64;

/// Core of an end, driven by the async edge or by the simulator.
pub trait Core {
    /// Owner of the flows to one peer.
    type Session: Flows;

    /// Filter of packets for this end, to be asked before they are handed over; `None` if this end
    /// takes all.
    fn filter(&self) -> Option<Filter> {
        None
    }
    /// Handles a datagram; `ce` says that its IP header was marked Congestion Experienced.
    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration);
    /// Appends the next datagram to `out` and returns its destination; `None` if none may be sent
    /// now.
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr>;
    /// Returns `true` if the last datagram of `transmit` is to be sent as ECT(0).
    fn is_ect(&self) -> bool {
        false
    }
    /// DSCP of the last datagram of `transmit`, if packets are marked.
    fn dscp(&self) -> Dscp {
        Dscp::DF
    }
    /// Path of the last datagram of `transmit`, at an end that calls over several.
    fn path(&self) -> u8 {
        0
    }
    /// Notes that the operating system refused to send `to` a datagram of `bytes` on a path, because
    /// its interface has a smaller MTU. The datagram is lost. Returns `false` if this end does not
    /// reduce its datagrams.
    fn too_large(&mut self, _to: (SocketAddr, u8), _bytes: usize, _now: Duration) -> bool {
        false
    }
    /// Notes that the operating system refuses to send on a path, for example because its interface is
    /// down. What was sent is lost.
    fn unsendable(&mut self, _path: u8, _now: Duration) {}
    /// Notes that the operating system can send on a path again, for example because its interface has a
    /// carrier.
    fn sendable(&mut self, _path: u8, _now: Duration) {}
    /// Time of the next call of [`Self::handle_timeout`], once `transmit` has returned `None`.
    fn next_timeout(&mut self, now: Duration) -> Duration;
    /// Name of the timer that [`Self::next_timeout`] returns, for messages about one that stays due.
    fn next_timer(&mut self, _now: Duration) -> &'static str {
        "unnamed"
    }
    /// Handles what is due, after which `transmit` may return something again.
    fn handle_timeout(&mut self, now: Duration);
    /// Next event for a flow's owner.
    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)>;
    /// Number of sessions begun so far.
    fn sessions_begun(&self) -> u64;
    /// Reachability of the peer; [`Reach::Down`] at an end that serves many.
    fn reach(&self) -> Reach {
        Reach::Down
    }
    /// Next message for another shard of this end, and its number. To be asked after every other
    /// call.
    fn next_message(&mut self) -> Option<(usize, ShardMessage)> {
        None
    }
    /// Handles a message of another shard.
    fn handle_message(&mut self, _: ShardMessage, _now: Duration) {}
    /// Returns a session that still exists.
    fn session(&mut self, id: SessionId) -> Option<&mut Self::Session>;
    /// Closes all sessions; the next packets tell the peers.
    fn close(&mut self);
}

/// Calls of a flow's owner, through the session of the flow.
pub trait Flows: 'static {
    /// Reads received bytes.
    fn read(&mut self, flow: u64, out: &mut [u8], now: Duration) -> Read;
    /// Writes as much as there is room for.
    fn write(&mut self, flow: u64, data: &[u8], now: Duration) -> Write;
    /// Ends the sending direction.
    fn finish(&mut self, flow: u64, now: Duration);
    /// Ends both directions at once.
    fn reset(&mut self, flow: u64, code: ResetCode, now: Duration);
    /// Tells the peer to send no more.
    fn stop_reading(&mut self, flow: u64, code: ResetCode, now: Duration);
    /// Drops the flow.
    fn release(&mut self, flow: u64, now: Duration);
    /// Returns `true` if any of these calls caused something to send, or to wake another owner for.
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
