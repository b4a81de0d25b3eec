//! Hierarchical fair queueing for a pulled link: class, then passenger, then flow.
//!
//! When the link's pacer lets a packet go, [`Scheduler::pick`] says whose bytes fill it, so nothing
//! urgent stands behind what was queued before it.
//!
//! - **Classes** ([`Class`], [`Limits`]): first guaranteed rates, in the order of classes; then what
//!   is left, shared by weight; no class ever above its ceiling.
//! - **Passengers** of a class take turns of the same size, however many flows they have.
//! - **Flows** of a passenger take turns, new and sparse ones first (DRR++, RFC 8290).
//!
//! Streams hold back their senders, since bytes already acknowledged to them cannot be dropped;
//! datagrams wait in a [`DatagramQueue`] each (FQ-CoDel, RFC 8290, with constants for a satellite)
//! within a hard limit of memory per class, for which the passenger with most queued pays, out of
//! the flow of his that has most.
//!
//! Pure: the time is an argument, a [`Duration`](std::time::Duration) since any start.

#![forbid(unsafe_code)]

mod arena;
mod budget;
mod class;
mod codel;
mod counters;
mod dscp;
mod queue;
mod ring;
mod scheduler;
mod seats;
mod shares;
mod tokens;

pub use arena::Handle;
pub use budget::DEFAULT_MEMORY;
pub use class::{Class, PerClass};
pub use codel::Params;
pub use counters::{Activity, Carried, ClassCounters, Counters, Delay, Waits};
pub use dscp::Dscp;
pub use queue::{DatagramQueue, DropReason, Dropped, Popped};
pub use scheduler::{
    ClassActivity, ClassSettings, FlowActivity, FlowId, Most, Scheduler, SeatActivity, Seen,
};
pub use seats::MOST_REMEMBERED_SEATS;
pub use shares::Limits;
pub use tokens::{BURST_BYTES, BURST_TIME};

/// A passenger's number.
pub type Passenger = u32;
