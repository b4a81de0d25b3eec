//! On-board resolver: answers passengers' queries from its cache, and forwards the others to the
//! ground's resolver in a single datagram flow.

mod certificates;
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

pub use resolver::{By, Resolver, ResolverHandle};
pub use serve::Serving;

#[cfg(test)]
mod tests;
