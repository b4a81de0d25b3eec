//! Hierarchical fair queueing for a link that pulls packets: class, then passenger, then flow.
//!
//! [`Scheduler::pick`] names the flow whose bytes fill the packet that the link's pacer releases.
//! Nothing urgent waits behind data that was queued earlier.
//!
//! - **Classes** ([`Class`], [`Limits`]) get their guaranteed rates first, in class order. The
//!   remaining capacity is shared by weight. No class exceeds its ceiling.
//! - **Passengers** of a class take turns of equal size, however many flows they have.
//! - **Flows** of a passenger take turns. New and sparse flows go first (DRR++, RFC 8290).
//!
//! Streams push back on their senders, because bytes that were acknowledged to a sender cannot be
//! dropped. Each datagram flow has a [`DatagramQueue`] (FQ-CoDel, RFC 8290, with constants for a
//! satellite link). All datagrams of a class share a memory limit. When a class exceeds it, the
//! passenger with the most queued bytes loses the oldest datagram of their largest flow.
//!
//! | module | contents |
//! |---|---|
//! | `scheduler` | [`Scheduler`], and snapshots of its activity |
//! | `shares`, `tokens` | choice of the class: token buckets and start-time fair queueing |
//! | `drr`, `subscribers`, `arena` | turns of passengers and flows |
//! | `queue`, `codel` | [`DatagramQueue`], CoDel |
//! | `budget` | datagram memory of each class |
//! | `class`, `dscp` | traffic classes and their code points |
//! | `paths` | choices of paths by class, for a link with several |
//! | `counters` | counters and delay histograms |
//!
//! ```
//! use std::time::Duration;
//! use bentpipe_schedule::{Class, Scheduler};
//!
//! let now = Duration::ZERO;
//! let mut scheduler = Scheduler::new();
//! let download = scheduler.add(1, Class::BestEffort, 7);
//! let call = scheduler.add(2, Class::Network, 8);
//! scheduler.activate(download, now);
//! scheduler.activate(call, now);
//!
//! // The link may send a packet: the call goes first.
//! assert_eq!(scheduler.pick(now), Some(2));
//! scheduler.spent(call, 200, now);
//! scheduler.deactivate(call);
//! assert_eq!(scheduler.pick(now), Some(1));
//! ```
//!
//! Bounds: datagrams use [`DEFAULT_MEMORY`] per class unless configured otherwise. The scheduler
//! remembers [`MAX_IDLE_SUBSCRIBERS`] passengers without flows. The caller bounds the number of
//! flows.
//!
//! The crate does no I/O and reads no clock: time is an argument, a
//! [`Duration`](std::time::Duration) since any fixed start.

#![forbid(unsafe_code)]

mod arena;
mod budget;
mod class;
mod codel;
mod counters;
mod drr;
mod dscp;
mod paths;
mod queue;
mod scheduler;
mod shares;
mod subscribers;
mod tokens;

pub use arena::Handle;
pub use budget::DEFAULT_MEMORY;
pub use class::{Class, PerClass};
pub use codel::Params;
pub use counters::{Activity, ClassCounters, Counters, Delay, DelayHistogram, Payload};
pub use dscp::Dscp;
pub use paths::{ClassPaths, Metered, Spread};
pub use queue::{DatagramQueue, DropReason, Dropped, Popped};
pub use scheduler::{
    ClassActivity, ClassSettings, FlowActivity, FlowId, PassengerActivity, Scheduler, Snapshot,
    SnapshotLimits,
};
pub use shares::Limits;
pub use subscribers::MAX_IDLE_SUBSCRIBERS;
pub use tokens::{BURST_BYTES, BURST_TIME};

/// Number of a passenger, assigned by the caller.
pub type Passenger = u32;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
