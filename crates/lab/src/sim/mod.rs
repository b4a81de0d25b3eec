//! The simulator: the real transports and gateways in virtual time, over [`bentpipe_channel`].
//!
//! Everything runs in one thread on a paused tokio clock (`start_paused`), which jumps to the next
//! timer when nothing is left to do. tokio's timers count whole milliseconds. Events between two of
//! them happen at the later one, in order.

pub mod aerotcp;
pub mod fleet;
pub mod flow_key;
pub mod net;
pub mod pair;
pub mod parallel;
pub mod quic;
pub mod rival;
pub mod scene;
pub mod share;
pub mod suite;
pub mod trace;
pub mod traffic;
pub mod transfer;
pub mod tunnel;
pub mod way;
