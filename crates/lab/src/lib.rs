//! The lab: one link model under two engines, and the experiments run on them.

pub mod emu;
pub mod profile;
pub mod result;
pub mod sim;
