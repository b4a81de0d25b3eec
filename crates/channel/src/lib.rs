//! Satellite or radio link as a value: takes packets, the time and a seed, and returns the fate of
//! each packet.
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
//!     _ => {}
//! }
//! ```
//!
//! A packet passes these stages in order:
//!
//! 1. the MTU
//! 2. the policer, which drops what exceeds a token bucket
//! 3. the shaper, which delays what exceeds a token bucket
//! 4. the queue: drop-tail, CoDel or FQ-CoDel
//! 5. the sender: a rate, or slots granted on request
//! 6. outages
//! 7. the loss process
//! 8. bit errors
//! 9. the propagation delay with its jitter, and reordering
//!
//! A drop-tail queue is first in, first out, so nothing that happens later can change a packet's
//! fate. It is known as soon as the packet is offered. CoDel and FQ-CoDel decide when the packet
//! leaves the queue: [`Direction::offer`] returns [`Fate::Waiting`], and [`Direction::decide`] the
//! fate. The crate stores the sizes of waiting packets, never packets.
//!
//! | module | contents |
//! |---|---|
//! | `direction` | [`Direction`], [`Fate`] |
//! | `raw`, `spec` | a link as written, and with its values checked |
//! | `queue` | the length of a queue: bytes, time or bandwidth-delay products |
//! | `bucket` | policer and shaper |
//! | `aqm`, `codel` | queues with active queue management |
//! | `sender`, `capacity`, `demand`, `slots` | queue and sender: paced, or slots on request |
//! | `loss`, `outage`, `jitter`, `reordering` | loss processes, outages, delay variation, late packets |
//! | `series`, `scalar`, `mahimahi` | values that change over time |
//! | `draws` | seeded random streams |
//!
//! # Format of a direction
//!
//! Every key is optional; an empty table is a perfect link.
//!
//! | key | values |
//! |---|---|
//! | `rate` | `"8 Mbit/s"`; `{ series = … }`; `{ mahimahi = "file" }`; absent: unlimited |
//! | `delay` | `"300 ms"`; `{ series = … }` |
//! | `jitter` | `{ shape = "uniform" \| "exponential" \| "normal" \| "log-normal", mean = "20 ms", deviation = "5 ms", redraw = "2 s" }`, added to the delay |
//! | `order` | `"kept"` (the default) or `"free"`: with `"free"` a packet may overtake another |
//! | `reordering` | `{ share = "0.1 %", delay = "5 ms" }`: each of these packets is late by this time, whatever the `order`, and those behind it overtake it |
//! | `policer` | `{ rate = "2 Mbit/s", bucket = "60 kB" }`: what exceeds the bucket is dropped |
//! | `shaper` | `{ rate = "2 Mbit/s", bucket = "20 kB", queue = "250 ms" }`: what exceeds the bucket waits in this drop-tail queue, by default 1 BDP of the shaper's rate |
//! | `queue` | `"650 kB"`; `"250 ms"` of the rate; `"1 BDP"` (the default) |
//! | `aqm` | `{ kind = "codel" \| "fq-codel", target = "5 ms", interval = "100 ms", ecn = false, flows = 1024 }`: management of the queue, all but `kind` with these defaults; absent: drop-tail |
//! | `ecn-threshold` | like `queue`, and shorter: an ECN-capable packet that finds more queued is marked; absent: no marking |
//! | `loss` | `"6 %"`; `{ series = … }`; `{ drawn = { every = "100 s", points = [["12 %", "0 %"], ["100 %", "36 %"]] } }`; `{ gilbert-elliott = … }` |
//! | `mtu` | `1400`, bytes with the IP header, at least 1280: longer packets are dropped silently; absent: any length |
//! | `ber` | `1e-6`; `{ series = … }` |
//! | `outages` | `{ packets = "lost" \| "held", scheduled = [["10 s", "3 s"]], repeat = "60 s", random = { mean-gap = "120 s", mean-length = "5 s" } }` |
//! | `demand` | `{ frame = "45 ms", slots = 16, free-slots = 1, request-delay = "520 ms" }` |
//!
//! A rate or a delay that changes at a known time is a series: `delay = { series = { steps = [["0
//! s", "300 ms"], ["60 s", "340 ms"]] } }` is a step of 40 ms in one direction after a minute.
//!
//! A series is `{ series = { steps = [["0 s", "2 Mbit/s"], ["10 s", "500 kbit/s"]], repeat = "20 s"
//! } }`. Each value holds until the next. Without `repeat` the last value holds for ever.
//!
//! A Gilbert-Elliott process is written in one of two forms:
//!
//! - `{ mean = "6 %", burst = 4 }`: the burst length in packets; the mean may be a series or drawn,
//!   as above
//! - its four parameters: `{ good-to-bad = "1 %", bad-to-good = "25 %", loss-good = "0 %", loss-bad
//!   = "100 %" }`
//!
//! In both forms, `clock` sets when the state moves. With `clock = "time"` (the default) it moves
//! once per `packet-time`, also while the link is idle; the default `packet-time` is that of 1500
//! bytes at the rate. With `clock = "packets"` it moves once per packet sent.
//!
//! # Bounds
//!
//! A series has at most [`MAX_STEPS`] steps. The memory of a [`Direction`] does not grow with the
//! number of packets.

#![forbid(unsafe_code)]

mod aqm;
mod bucket;
mod capacity;
mod codel;
mod counters;
mod demand;
mod direction;
mod draws;
mod error;
mod jitter;
mod loss;
mod mahimahi;
mod outage;
mod queue;
mod raw;
mod reordering;
mod scalar;
mod sender;
mod series;
mod slots;
mod spec;
mod transmission;

pub use counters::{Count, Counters};
pub use direction::{Decision, Direction, Fate, Packet};
pub use error::SpecError;
pub use raw::{RawDirection, RawLink};
pub use series::{MAX_STEPS, Series, Varying};
pub use spec::{DirectionSpec, LinkSpec};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
