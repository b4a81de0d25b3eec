//! Runs the experiments of published studies.
//!
//! A [`Plan`] says which cells of which grids share a world and with which seeds; [`run`] does them,
//! many worlds at once, and keeps each cell in a folder the moment that all its runs are over, so that
//! a run that was stopped goes on where it was. What a run measures is in `workload`, in virtual
//! time in `sim`; what a cell's link is and how its hosts are set, in `link`.

#![forbid(unsafe_code)]

mod budget;
mod cost;
mod figures;
mod host;
mod job;
mod lateness;
mod left;
mod link;
mod origin;
mod plan;
mod policy;
mod progress;
mod raw;
mod runner;
mod seed;
mod settle;
mod sim;
mod workload;
mod world;

pub use host::with_programs as host;
pub use link::SceneError;
pub use plan::{Kind, Plan, Wanted};
pub use runner::{Missed, Options, Outcome, RunError, run};
pub use seed::{build, digest};
