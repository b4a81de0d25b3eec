//! The lab: one link model under a simulator in virtual time and an emulator with real kernels.

pub mod profile;
pub mod sim;
