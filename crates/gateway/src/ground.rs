//! The ground gateway.

pub mod eyeballs;
pub mod policy;
