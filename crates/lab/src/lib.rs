//! The lab: one link model under two engines, and the experiments run on them.

pub mod bench;
pub mod browser;
pub mod emu;
pub mod experiment;
mod har;
pub mod loader;
pub mod modem;
pub mod profile;
pub mod record;
pub mod scratch;
pub mod sim;
pub mod site;
pub mod system;
pub mod traffic;
pub mod workload;

pub use bentpipe_results::outcome as result;
