//! The portal's content: fetched at night, when nobody is in its way, and kept until it is fetched
//! again.
//!
//! [`Preloader`] goes through a [`Manifest`] once in each [`Window`], or when it is asked to: what is
//! here is confirmed, what is not is fetched, both by the class that yields to all passengers, and what
//! the manifest no longer says is let go. What was done is known by the cache itself, which has each
//! object's time and whether it stays; so a run that was broken off goes on where it was.

mod item;
pub mod manifest;
mod report;
mod run;
mod spent;
mod window;

use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_prefetch::address::Address;
use bentpipe_webcache::Origin;

pub use manifest::{Manifest, ManifestError};
pub use report::{Object, Outcome, ReadError, Report, State, WrongLine, request_file};
pub use run::Preloader;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use run::asked_in;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use spent::Spent;
pub use spent::spent_file;
pub use window::{Window, WindowError};

use crate::classify::Name;

/// Objects to fetch, the time for it, and the budget.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The manifest; it is read anew for each run.
    pub manifest: PathBuf,
    /// Report file.
    pub report: PathBuf,
    /// Time of the day; without it, only on request.
    pub window: Option<Window>,
    /// The most that one run fetches, bytes of bodies: a night's, however often it begins again, and one
    /// that was asked for.
    pub run_bytes: u64,
    /// Objects that are fetched at once.
    pub at_once: usize,
    /// Names whose `https` addresses may be fetched.
    pub sites: Vec<Name>,
}

/// Whence objects come.
pub trait Sources: Send + Sync + 'static {
    /// Asks for what lies at `address`, in the preload's class; `None` where nobody can.
    fn origin(&self, address: &Address) -> Option<Arc<dyn Origin>>;

    /// Returns `true` if the ground can be reached now.
    fn is_reachable(&self) -> bool;
}

#[cfg(test)]
mod tests;
