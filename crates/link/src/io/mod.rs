//! The async edge: UDP sockets and timers around the sans-IO core, and flows as streams.
//!
//! One task drives an end. Flows, the air's handle and the hub's handle reach into the core under a
//! lock and wake the task when there is something to send. All time is tokio's, so a paused clock
//! drives everything in the simulator.
//!
//! [`Air`] and [`Hub`] are the link's own. What they are made of ([`Handle`], [`Flow`]) drives any
//! [`Core`](crate::Core), so that another transport needs no edge of its own.

mod air;
mod datagram;
mod driver;
mod flow;
mod handle;
mod hub;
mod shared;
mod socket;
mod udp;

pub use air::{Air, AirWatch};
pub use datagram::DatagramFlow;
pub use flow::{Flow, FlowReset};
pub use handle::{Handle, Incoming};
pub use hub::{Arrived, Hub, HubWatch, IncomingDatagrams, SessionStatus};
pub use socket::Socket;
pub use udp::UdpSocket;

use bytes::Bytes;

use crate::{Claim, Class, Target};

pub use crate::{OpenDatagrams, Receive, SendError};

/// A flow to be opened.
#[derive(Debug, Clone)]
pub struct Open {
    /// Destination.
    pub target: Target,
    /// Class.
    pub class: Class,
    /// Number of its passenger.
    pub passenger: u32,
    /// Claim of its client about the target, for the ground to verify.
    pub claim: Option<Claim>,
    /// Its first bytes, which travel with the opening.
    pub first: Bytes,
}

/// A strong seed from the operating system.
pub fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the operating system gives random bytes");
    seed
}
