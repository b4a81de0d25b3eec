//! Hierarchical fair queueing for a pulled link: class, then passenger, then flow.

#![forbid(unsafe_code)]

mod class;
mod codel;
mod queue;
mod ring;
mod scheduler;

pub use class::Class;
pub use codel::Params;
pub use queue::{DatagramQueue, DropReason, Dropped, Popped};
pub use scheduler::{FlowId, Passenger, Scheduler};
