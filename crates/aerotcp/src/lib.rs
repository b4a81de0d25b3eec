//! AeroTCP as described in its paper, between the two gateways of a satellite link. It is a
//! measured baseline for Bentpipe's own radio transport.
//!
//! The paper is Shang et al., "AeroTCP". A passenger's TCP connection ends at the aircraft's
//! gateway, and the server's at the ground's. Each pair shares one AeroTCP connection between the
//! gateways. A satellite channel neither reorders nor is congested, so every loss is corruption.
//! The window is therefore a share of the satellite's known bandwidth and is never reduced. The
//! first duplicate acknowledgement means a loss.
//!
//! # Rules and their modules
//!
//! | rule | section | here |
//! |---|---|---|
//! | SACK blocks: the latest first, then repeats; three fit | V.D | `conn::receiver`, `segment` |
//! | scoreboard; holes first, then new data | V.D | `conn::scoreboard`, `conn::sender` |
//! | `pipe`: +1 per packet sent, −1 per duplicate that reports something new, −2 per partial acknowledgement | V.D | `conn::sender` |
//! | super fast recovery at the first duplicate, pipe = window; over at the recovery acknowledgement | V.D | `conn::sender` |
//! | a lost retransmission is detected by timeout only; finer timer; two copies after it | V.D | `conn::sender`, `conn::timer` |
//! | no slow start, no reductions: window = SatBW/N × SatRTT, static, adaptive, or from a table | V.C | [`Settings::window_packets`] |
//! | a peak rate for each connection | V.B | [`Settings::peak_rate`] |
//! | buffers: 2 (3 to 4) products; 1 for the aircraft's sender, 2 for the ground's receiver | V.B | [`Settings::buffers`] |
//! | advertised window; blocking write; out-of-order data is kept | V.B | `conn::receiver`, `conn` |
//!
//! The sequence of the paper's Figure 4 is a trace in `tests/figure4.txt`, compared line by line.
//!
//! # Choices beyond the paper
//!
//! - **Connections.** The paper splits TCP and does not describe opening. Here the air's SYN names
//!   the target and carries the first bytes. The ground's half has no SYN, and data flows at once
//!   in both directions. A reset carries a reason and is repeated until it is confirmed. A half
//!   that is not read any more says so in its acknowledgements.
//! - **Numbers.** Sequence numbers are 64 bits wide, count bytes, and need no window scaling. The
//!   window and `pipe` count packets, as in the paper. Packets keep their boundaries when they are
//!   retransmitted.
//! - **Acknowledgements.** Every packet after a gap is acknowledged by itself, with its SACK blocks
//!   and without data. Other packets may share an acknowledgement, or get it with data.
//! - **Timer.** It is RFC 6298's without the minimum of one second, with a granularity of 10 ms,
//!   and with a slack of at least a quarter of the round trip. It runs for the oldest packet, from
//!   its last transmission, and doubles during silence, up to 10 s. `pipe` counts one of the two
//!   copies, because nothing would subtract the other. TCP assumes after a timeout that everything
//!   outstanding is lost. Here only overdue packets are assumed lost. Otherwise a window lost as a
//!   whole, which no duplicate reports, would come back by one packet per round trip.
//! - **Table.** It is indexed by the number of open connections when a connection begins. The paper
//!   indexes it by "measurements of the traffic characteristics", which it does not define.
//! - **Peak rate.** It bounds the window as well as the buffers. Without one, a connection may
//!   reach the whole bandwidth.
//! - **Memory.** Beyond 16 KiB each, all connections share a bounded memory. A packet without
//!   memory is dropped as if it were lost.
//! - **Security.** Every segment is the plaintext of a packet under the link's own keys
//!   ([`bentpipe_link::secure`]), after the link's handshake with another prologue. There is one
//!   path and no roaming. An aircraft with a new address makes a new handshake when it gets no
//!   answer, and its connections go on.
//! - **No classes.** The ground gateway learns the class of a flow, but all connections take turns.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `segment` | wire format |
//! | `conn` | one connection |
//! | `session` | [`Session`]: all connections of one aircraft |
//! | `endpoint` | both gateways with their handshakes |
//! | [`io`] | the async interface, on the link's |
//!
//! All but [`io`] take time, randomness and packets as arguments.

#![forbid(unsafe_code)]

mod conn;
mod endpoint;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz;
pub mod io;
mod pool;
mod segment;
mod session;
mod settings;

pub use endpoint::{AirConfig, AirCore, Aircraft, GroundConfig, GroundCore};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzz::fuzz;
pub use session::{Counters, Session};
pub use settings::{
    BUFFER_FACTORS, Buffers, MAX_TABLE_ROWS, MIN_BUFFER_PACKETS, MIN_WINDOW_PACKETS, RESERVE_BYTES,
    Row, Settings, SettingsError, Window,
};
