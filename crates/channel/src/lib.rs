//! A link direction as a value: packets, the time and a seed go in; what becomes of each packet comes out.
//!
//! ```
//! use bentpipe_channel::{Direction, DirectionSpec, Fate};
//! use std::time::Duration;
//!
//! let spec: DirectionSpec =
//!     toml::from_str("rate = \"8 Mbit/s\"\ndelay = \"300 ms\"\nloss = \"1 %\"").unwrap();
//! let mut forward = Direction::new(&spec, 7);
//! match forward.offer(Duration::ZERO, 1000) {
//!     // 1 ms to send 1000 bytes at 8 Mbit/s, 300 ms to arrive.
//!     Fate::Delivered { at } => assert_eq!(at, Duration::from_millis(301)),
//!     Fate::Lost | Fate::QueueDropped | Fate::TooLong => {}
//! }
//! ```
//!
//! A packet passes, in this order: the MTU, the drop-tail queue, the sender (a rate, or slots granted on
//! request), outages, the loss process, bit errors, the propagation delay with its jitter. Because
//! the queue is first in, first out, nothing that happens later can change a packet's fate: it is
//! known the moment the packet is offered, and no packet is stored here.
//!
//! # How a direction is written
//!
//! Every key may be left out; an empty table is a perfect link.
//!
//! | key | values |
//! |---|---|
//! | `rate` | `"8 Mbit/s"`; `{ series = … }`; `{ mahimahi = "file" }`; absent: unlimited |
//! | `delay` | `"300 ms"`; `{ series = … }` |
//! | `jitter` | `{ shape = "uniform" \| "exponential" \| "normal" \| "log-normal", mean = "20 ms", deviation = "5 ms", redraw = "2 s" }`, added to the delay |
//! | `order` | `"kept"` (the default) or `"free"`: whether a packet may overtake another |
//! | `queue` | `"650 kB"`; `"250 ms"` of the rate; `"1 BDP"` (the default) |
//! | `ecn-threshold` | like `queue`, and shorter: a packet that allows it and finds more queued is marked; absent: none is |
//! | `loss` | `"6 %"`; `{ series = … }`; `{ drawn = { every = "100 s", points = [["12 %", "0 %"], ["100 %", "36 %"]] } }`; `{ gilbert-elliott = … }` |
//! | `mtu` | `1400`, bytes with the IP header, at least 1280: longer packets are dropped and nobody is told; absent: any length |
//! | `ber` | `1e-6`; `{ series = … }` |
//! | `outages` | `{ packets = "lost" \| "held", scheduled = [["10 s", "3 s"]], repeat = "60 s", random = { mean-gap = "120 s", mean-length = "5 s" } }` |
//! | `demand` | `{ frame = "45 ms", slots = 16, free-slots = 1, request-delay = "520 ms" }` |
//!
//! A series is `{ series = { steps = [["0 s", "2 Mbit/s"], ["10 s", "500 kbit/s"]], repeat = "20 s" } }`:
//! each value holds until the next; without `repeat` the last one holds for ever.
//!
//! A Gilbert-Elliott process is `{ mean = "6 %", burst = 4 }` (burst in packets; the mean may be a
//! series or drawn, as above) or its four parameters `{ good-to-bad = "1 %", bad-to-good = "25 %",
//! loss-good = "0 %", loss-bad = "100 %" }`; in both, `clock = "time"` (the default: the state also
//! moves while the link is idle, once per `packet-time`, by default that of 1500 bytes at the
//! rate) or `clock = "packets"` (once per packet sent).

#![forbid(unsafe_code)]

mod capacity;
mod counters;
mod demand;
mod direction;
mod draws;
mod error;
mod jitter;
mod loss;
mod mahimahi;
mod outage;
mod scalar;
mod sender;
mod sent;
mod series;
mod slots;
mod spec;
mod written;

pub use counters::{Count, Counters};
pub use direction::{Direction, Fate};
pub use error::SpecError;
pub use series::{MAX_STEPS, Series, Varying};
pub use spec::{DirectionSpec, LinkSpec};
pub use written::{WrittenDirection, WrittenLink};
