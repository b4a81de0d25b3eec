//! Hierarchical fair queueing for a pulled link: class, then passenger, then flow.

#![forbid(unsafe_code)]

mod class;
mod ring;
mod scheduler;

pub use class::Class;
pub use scheduler::{FlowId, Passenger, Scheduler};
