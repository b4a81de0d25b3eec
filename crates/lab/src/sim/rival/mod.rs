//! Other senders on the link of a [`Pair`](super::pair::Pair), each with both of its ends.
//!
//! | rival | traffic |
//! |---|---|
//! | [`session`] | bulk of another session of the radio transport |
//! | [`bulk`] | bulk of an ordinary QUIC library, with CUBIC or BBR |
//! | [`call`] | a call, which measures its own delay and loss |

pub mod bulk;
pub mod call;
pub mod session;

use std::time::Duration;

pub use bulk::Bulk;
pub use call::Call;
pub use session::Session;

/// End of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The aircraft, or terminal.
    Air,
    /// The ground.
    Hub,
}

impl End {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Air => Self::Hub,
            Self::Hub => Self::Air,
        }
    }
}

/// Packet that a rival sends.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// End that sends it.
    pub by: End,
    /// `true` if it is ECN-capable.
    pub is_ect: bool,
}

/// A sender and its receiver.
pub trait Rival {
    /// Writes the next datagram that is due at `now` to `out`, without IP and UDP headers.
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<Sent>;

    /// Handles a datagram that arrived at `end`.
    fn receive(&mut self, end: End, datagram: &[u8], ce: bool, now: Duration);

    /// Time of the next timer of either end.
    fn next_timeout(&mut self, now: Duration) -> Option<Duration>;

    /// Handles the timers that are due.
    fn handle_timeout(&mut self, now: Duration);

    /// Payload bytes that have reached their reader.
    fn received_bytes(&self) -> u64;
}
