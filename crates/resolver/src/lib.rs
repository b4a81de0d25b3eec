//! On-board resolver: answers passengers' queries from its cache, and forwards the others to the
//! ground's resolver in a single datagram flow.
//!
//! | module | contents |
//! |---|---|
//! | `resolver` | the resolver, independent of its clients' protocols |
//! | `serve` | start, and the tasks |
//! | `listener`, `tls`, `certificates`, `offer` | plain and encrypted listeners, and their announcement |
//! | `exchange`, `upstream`, `streams`, `outage` | queries to the ground gateway |
//! | `journal_writer` | storage across restarts |

#![forbid(unsafe_code)]

mod certificates;
mod error;
mod exchange;
mod journal_writer;
mod listener;
mod offer;
mod outage;
mod resolver;
mod serve;
mod streams;
mod tls;
mod upstream;

pub use error::StartError;
pub use resolver::{By, Resolver, ResolverHandle};
pub use serve::Serving;

#[cfg(test)]
mod tests;
