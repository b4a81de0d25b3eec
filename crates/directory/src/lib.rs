//! Directory of a fleet of grounds: who is there, where, and how loaded.
//!
//! Each ground signs a statement about itself, and gives it to its neighbours: the grounds in its file,
//! over the connections that exist anyway. A neighbour passes it on to its own neighbours, and they pass
//! it on no further. So a hub learns of the other hubs of its egresses. There is no server and no store.
//!
//! The directory is soft state. No flow needs it, and nothing that is configured comes from it.
//!
//! | rule | reason |
//! |---|---|
//! | a ground in the own file is believed only on its own connection | nobody else can change, withhold or repeat its entry |
//! | any other ground is believed by its signature | a neighbour that passes an entry on cannot change it |
//! | entries by each neighbour about others have slots of their own | invented grounds take the place of no real one |
//! | only entries of grounds in the own file are passed on | invented grounds are seen by neighbours alone |
//! | an entry counts for a time, not until a date | clocks differ |
//!
//! | bound | value | cost |
//! |---|---|---|
//! | [`MAX_PEERS`] | 128 | as many as the file may name |
//! | [`MAX_INTRODUCED`] | 64 for each neighbour | with [`entry::MAX_ENTRY_BYTES`] 128 × 65 × 1.6 kB = 13 MB, if all neighbours are hostile |
//! | [`SEND_RATE`], [`SEND_BURST_BYTES`] | 64 kbit/s, 512 KiB | for all neighbours together, shared equally |
//! | [`RECEIVE_BYTES_PER_SECOND`], [`RECEIVE_BURST_BYTES`] | 2 kB, 64 KiB | for each neighbour: 14 signatures a second |
//! | [`MIN_FRAME_CHARGE`] | 128 bytes | 15 frames a second, however short they are |
//! | [`MIN_STREAM_INTERVAL`] | 1 s | for each neighbour and side |
//!
//! | module | contents |
//! |---|---|
//! | [`Directory`] | what is known, and what to tell a neighbour |
//! | [`entry`] | the statements |
//! | [`signature`] | signatures by X25519 keys |
//! | [`frame`] | frames between neighbours |
//! | `own` | the own statement |
//! | `peer` | state of one neighbour |
//!
//! Nothing here has sockets, clocks or tasks.

#![forbid(unsafe_code)]

mod directory;
pub mod entry;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod own;
mod peer;
pub mod signature;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;

use std::time::Duration;

use bentpipe_units::BitRate;

pub use directory::{Directory, Seen, Source};
pub use entry::{Entry, Place, Statement};
pub use frame::Malformed;
pub use own::{LIFETIME, MAX_REFRESH, MIN_REFRESH};
pub use peer::{MAX_INTRODUCED, Side};

/// A ground's public key.
pub type Key = [u8; 32];

/// Maximum number of grounds in the own file: 64 hubs and 64 egresses.
pub const MAX_PEERS: usize = 128;

/// Rate of everything that is sent, with [`HEADER_BYTES`], divided equally among the neighbours with a stream.
pub const SEND_RATE: BitRate = BitRate::from_bps(64_000);

/// Bytes around what is written to a stream at once: IPv6, UDP and QUIC.
pub const HEADER_BYTES: u64 = 64;

/// Bytes that are sent at once after a quiet time. An egress that has lost everything can give its 49
/// hubs the entries of each other: 49 × (48 × 150 B + 64 B) = 356 kB.
pub const SEND_BURST_BYTES: u64 = 512 << 10;

/// Bytes that are read of a neighbour in a second.
pub const RECEIVE_BYTES_PER_SECOND: u64 = 2_000;

/// Bytes that are read of a neighbour at once after a quiet time.
pub const RECEIVE_BURST_BYTES: u64 = 64 << 10;

/// Bytes of a neighbour's budget that every KNOWS and ENTRY takes at least.
pub const MIN_FRAME_CHARGE: u64 = 128;

/// Minimum time between the starts of two streams of a neighbour and side.
pub const MIN_STREAM_INTERVAL: Duration = Duration::from_secs(1);
