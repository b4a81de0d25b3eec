//! Hierarchical fair queueing for a pulled link: class, then passenger, then flow.

#![forbid(unsafe_code)]

mod class;

pub use class::Class;
