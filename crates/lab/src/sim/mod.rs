//! The simulator: the real transports and gateways in virtual time, over [`bentpipe_channel`].
//!
//! Everything runs in one thread on a paused tokio clock (`start_paused`), which jumps to the next
//! timer whenever nothing is left to do. tokio's timers count whole milliseconds, so whatever
//! happens between two of them happens at the later one, in order.

pub mod aerotcp;
pub mod fade;
pub mod fleet;
pub mod net;
pub mod pair;
pub mod parallel;
pub mod quic;
pub mod share;
pub mod steady;
pub mod suite;
pub mod trace;
pub mod traffic;
pub mod transfer;
pub mod tunnel;
