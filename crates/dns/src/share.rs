//! Sources of queries, and their use of the pending queries.

use std::net::SocketAddr;

use crate::asker::Asker;

/// Source of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Datagram from `client`, which the client repeats if no answer arrives.
    Datagram {
        /// Address of the client.
        client: SocketAddr,
        /// The client.
        asker: Asker,
        /// Address of another resolver to which it was sent, if any.
        server: Option<SocketAddr>,
    },
    /// Stream; each query on it gets an answer of its own.
    Stream(Asker),
    /// Stream to another resolver.
    Diverted(Asker),
}

impl Source {
    /// The client.
    pub fn asker(&self) -> Asker {
        match self {
            Self::Datagram { asker, .. } | Self::Stream(asker) | Self::Diverted(asker) => *asker,
        }
    }

    /// Returns `true` if it was sent to another resolver.
    pub fn is_diverted(&self) -> bool {
        matches!(self, Self::Diverted(_) | Self::Datagram { server: Some(_), .. })
    }
}

/// Pending queries of a client compared with all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryUsage {
    /// The client.
    pub own: usize,
    /// All.
    pub all: usize,
    /// Maximum of all clients together.
    pub max: usize,
    /// Client with the most queries, and their number.
    pub largest: Option<(Asker, usize)>,
}
