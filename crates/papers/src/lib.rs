//! Runs the experiments of published studies.
//!
//! A [`Plan`] assigns cells of grids to testbeds and seeds. [`run`] executes it, with many testbeds
//! in parallel. It stores each cell in a folder as soon as all its runs are complete, so an
//! interrupted run resumes there.
//!
//! - `workload` defines the measurements of a run, and `sim` those in virtual time.
//! - `link` defines a cell's link and the settings of its hosts.

#![forbid(unsafe_code)]

mod cost;
mod figures;
mod host;
mod job;
mod left;
mod link;
mod plan;
mod policy;
mod progress;
mod raw;
mod runner;
mod seed;
mod settle;
mod sim;
mod testbed;
mod workload;

pub use host::with_programs as host;
pub use link::SceneError;
pub use plan::{Plan, Wanted};
pub use runner::{Missed, Options, Outcome, RunError, run};
pub use seed::{build, digest};
