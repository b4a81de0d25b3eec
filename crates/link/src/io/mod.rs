//! The async edge: UDP sockets and timers around the sans-IO core, and flows as streams.
//!
//! One task drives an end, or each shard of a [`Hub`] with several; then another task reads the socket
//! for all shards. Flows and handles access the core under a lock, and wake the task when
//! there is something to send. All time is tokio's, so that a paused clock drives everything in the
//! simulator.
//!
//! [`Air`] and [`Hub`] are the link's own. Their parts ([`Handle`], [`Flow`]) drive any
//! [`Core`](crate::Core), so that another transport needs no edge of its own.

#![allow(clippy::disallowed_methods, reason = "the edge gives the core the time, which is tokio's")]

mod air;
mod arrival;
mod datagram;
mod driver;
mod flow;
mod handle;
mod hub;
mod inbox;
mod late;
mod paths;
mod reader;
mod receive;
mod shards;
mod shared;
mod socket;
mod udp;

pub use air::{Air, AirWatch};
pub use datagram::DatagramFlow;
pub use flow::{Flow, FlowReset};
pub use handle::{Handle, Incoming, ReachWatch};
pub use hub::{Arrived, Hub, HubWatch, IncomingDatagrams, SessionStatus};
pub use late::{LateSocket, Place};
pub use paths::PathSockets;
pub use quinn_udp::{EcnCodepoint, RecvMeta, Transmit};
pub use socket::{Socket, Writable};
pub use udp::UdpSocket;

use bytes::Bytes;

use bentpipe_flow::{Claim, Class, Target};

pub use crate::{Receive, SendError};

/// Description of a flow to open.
#[derive(Debug, Clone)]
pub struct Open {
    /// Destination.
    pub target: Target,
    /// Class.
    pub class: Class,
    /// Number of its passenger.
    pub passenger: u32,
    /// Class claim of its client about the target, to be verified by the ground.
    pub claim: Option<Claim>,
    /// First bytes, which share a packet with the opening.
    pub first: Bytes,
}

/// Returns a strong seed from the operating system.
pub fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the operating system gives random bytes");
    seed
}
