//! Actions that the resolver asks of its caller.

use std::net::IpAddr;
use std::time::Duration;

use crate::asker::Asker;

/// Action for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<C> {
    /// Send this query to the ground, as a datagram or over a stream. Pass the answer to
    /// [`Resolver::on_answer`](crate::Resolver::on_answer), or report a broken stream by
    /// [`Resolver::on_stream_failed`](crate::Resolver::on_stream_failed).
    Query {
        /// Id of the query, with which `message` begins.
        id: u16,
        /// Encoded query.
        message: Vec<u8>,
        /// `true` if the answer does not fit into a datagram.
        over_stream: bool,
    },
    /// Send this to the ground as a datagram. Delivery is optional. Pass any answer to
    /// [`Resolver::on_answer`](crate::Resolver::on_answer).
    Notify(Vec<u8>),
    /// Send this answer to a waiting client.
    Reply {
        /// Client.
        client: C,
        /// Encoded answer.
        message: Vec<u8>,
    },
    /// Clients have received these addresses for this name.
    Resolved {
        /// Name.
        name: String,
        /// Addresses.
        addresses: Vec<IpAddr>,
        /// Time for which clients may use them.
        lifetime: Duration,
    },
    /// A limit affected a client; [`Resolver::usage`](crate::Resolver::usage) returns its
    /// usage, and [`FakeIpPool::usage`](crate::FakeIpPool::usage) that of fake-IP addresses.
    Limited {
        /// Client.
        client: Asker,
        /// Limit.
        by: Limited,
    },
}

/// Limit that a client has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// Too many queries per second: the query was refused.
    Rate,
    /// No room for another query or waiter: the query was refused.
    Room,
    /// The client waited and was evicted for another.
    Evicted,
    /// No fake-IP address for another name: the ground answers the query instead.
    Names,
}
