//! The portal's content: fetched on request, when nobody is in its way, and kept until the manifest
//! no longer names it.
//!
//! `bentpipe preload` connects to a Unix socket, on which [`PreloadSocket`] starts a run. A timer of the service
//! manager chooses the time. A run goes through the [`Manifest`] once: it confirms stored objects with
//! their origins, fetches missing ones, and releases those that the manifest no longer names. Its flows
//! have the class that yields to all passengers. The run sends an [`Event`] for each address, and stops
//! when the command goes away.
//!
//! | module | contents |
//! |---|---|
//! | [`manifest`] | the list of addresses |
//! | `serve` | the socket and its commands |
//! | `run`, `item` | one run, and one address of it |
//! | `event` | the report on each address |

#![forbid(unsafe_code)]

mod event;
mod item;
pub mod manifest;
mod run;
mod serve;

use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_classify::Name;
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::Origin;

use bentpipe_metering::counters;
use bentpipe_origin::{request_error, via};
use futures_util::future::BoxFuture;

pub use event::{Event, Outcome, Summary};
pub use manifest::{Manifest, ManifestError};
pub use run::Preloader;
pub use serve::PreloadSocket;

/// Objects to fetch, and the limits of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The manifest; each run reads it again.
    pub manifest: PathBuf,
    /// Maximum bytes of bodies that one run fetches.
    pub max_bytes_per_run: u64,
    /// Concurrent fetches.
    pub concurrency: usize,
    /// Names whose `https` addresses may be fetched.
    pub sites: Vec<Name>,
}

/// Origins of objects.
pub trait Sources: Send + Sync + 'static {
    /// Returns the origin of `address`, asked in the preload's class; `None` if there is none.
    fn origin(&self, address: &Address) -> Option<Arc<dyn Origin>>;

    /// Waits until the ground can be reached.
    fn reachable(&self) -> BoxFuture<'_, ()>;
}

#[cfg(test)]
mod tests;
