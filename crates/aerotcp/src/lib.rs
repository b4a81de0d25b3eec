//! AeroTCP, as its paper has it, for the two gateways of a satellite link: a measured baseline for
//! Bentpipe's own radio transport.
//!
//! The paper is Shang et al., "AeroTCP". A passenger's TCP connection ends at the aircraft's
//! gateway, the server's at the ground's, and between them runs one AeroTCP connection for each.
//! Since nothing overtakes anything on a satellite channel, and nothing on it is congested, loss
//! is corruption: the window is a share of the satellite's known bandwidth and is never cut, and
//! the first duplicate acknowledgement means a loss.
//!
//! # Where each rule stands
//!
//! | rule | section | here |
//! |---|---|---|
//! | SACK blocks: the latest first, then repeats; three fit | V.D | `conn::receiver`, `segment` |
//! | scoreboard; holes first, then new data | V.D | `conn::scoreboard`, `conn::sender` |
//! | `pipe`: +1 a packet sent, −1 a duplicate that reports something new, −2 a partial acknowledgement | V.D | `conn::sender` |
//! | super fast recovery on the first duplicate, pipe = window; over at the recovery acknowledgement | V.D | `conn::sender` |
//! | a lost retransmission is found by timeout alone; finer timer; two copies after it | V.D | `conn::sender`, `conn::timer` |
//! | no slow start, no cuts: window = SatBW/N × SatRTT, static, adaptive, or from a table | V.C | [`Settings::window_packets`] |
//! | a peak rate for each connection | V.B | [`Settings::peak_rate`] |
//! | buffers: 2 (3 to 4) products; 1 for the aircraft's sender, 2 for the ground's receiver | V.B | [`Settings::buffers`] |
//! | advertised window; blocking write; out-of-order data is kept | V.B | `conn::receiver`, `conn` |
//!
//! The sequence of the paper's Figure 4 is a trace in `tests/figure4.txt`, compared line by line.
//!
//! # What the paper leaves open, and what differs
//!
//! - **Connections.** The paper splits TCP and says nothing of opening. Here the air's SYN names
//!   the target and carries the first bytes, the ground's half has no SYN, and content flows at
//!   once in both directions. A reset carries a reason and is repeated until it is confirmed. A
//!   half that is not read any more says so with its acknowledgements.
//! - **Numbers.** Sequence numbers are 64 bits wide, count bytes, and need no window scaling. The
//!   window and `pipe` count packets, as in the paper. Packets keep their boundaries when they are
//!   sent again.
//! - **Acknowledgements.** Every packet that leaves a gap behind it is acknowledged by itself, with
//!   its SACK blocks and without content; others may share one, or travel with content.
//! - **The timer** is RFC 6298's without its minimum of a second, with a grain of 10 ms and at least
//!   a quarter of the round trip to spare. It runs for the oldest packet, from when it was last sent, and doubles in silence, up to 10 s. Of the
//!   two copies, `pipe` counts one: nothing would take the other off. Where TCP takes everything
//!   outstanding to be lost after a timeout, here what is overdue as well is: else a window lost
//!   as a whole, of which no duplicate tells, would come back by one packet a round trip.
//! - **The table** is looked up by the number of connections that are open when one begins: the
//!   paper keys it by "measurements of the traffic characteristics", which it leaves open.
//! - **Peak rate.** It bounds the window as well as the buffers. Where none is given, a connection
//!   may reach the whole bandwidth.
//! - **Memory.** Beyond 16 KiB each, all connections share a bounded memory; a packet for which
//!   there is none is dropped, as if it had been lost.
//! - **Security.** Every segment is the plaintext of a packet under the link's own keys
//!   ([`bentpipe_link::secure`]), after the link's own handshake with a prologue of its own. There
//!   is one path and no roaming: an aircraft whose address has changed makes a new handshake once
//!   it is not answered, and its connections go on.
//! - **No classes.** The class of a flow is told to the ground, but all connections take turns.
//!
//! # Inside
//!
//! `segment` is the wire, `conn` one connection, [`Session`] all of one aircraft's, `endpoint` the
//! two ends with their handshakes. Up to there time, randomness and packets are arguments. [`io`]
//! puts them on the link's async edge.

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
    BUFFER_FACTORS, Buffers, LEAST_BUFFER_PACKETS, LEAST_WINDOW_PACKETS, MAX_TABLE_ROWS,
    RESERVE_BYTES, Row, Settings, SettingsError, Window,
};
