//! The vocabulary of a flow: what the transports and the gateways say to each other about one.
//!
//! A *flow* is a byte stream or a series of datagrams between one client at the air gateway and one
//! destination at the ground gateway. Every transport carries flows, and every gateway opens, dials or
//! ends them. They share these types, so that nothing is converted between them:
//!
//! | type | meaning |
//! |---|---|
//! | [`Target`] | a flow's destination: an address, a name or a service of the ground, and a port |
//! | [`Class`] | its service level |
//! | [`Claim`] | the class it gets if the ground confirms that address and name belong together |
//! | [`OpenDatagrams`] | the opening of a datagram flow |
//! | [`ResetCode`] | the reason for its end, with the one table of RFC 9209 |
//! | [`Reach`] | reachability of the peer |
//! | [`Traffic`] | what a session's flows carry |
//! | [`ClientNetwork`] | the addresses that one client may use |
//! | [`quota`] | the usage of each client, and the client that gives way to another |
//! | [`places`] | places of a server's connections |
//!
//! The crate is pure: it has no sockets, no clocks and no tasks. The layouts of [`Target`] and
//! [`ResetCode`] on the radio are part of `docs/protocol.md`.

#![forbid(unsafe_code)]

mod claim;
mod code;
mod network;
mod open;
pub mod passenger;
pub mod places;
pub mod quota;
mod reach;
mod target;
mod traffic;

pub use bentpipe_schedule::{
    Activity, Class, ClassActivity, PassengerActivity, PerClass, SnapshotLimits,
};
pub use claim::Claim;
pub use code::ResetCode;
pub use network::ClientNetwork;
pub use open::OpenDatagrams;
pub use reach::Reach;
pub use target::{Host, MAX_NAME_BYTES, Service, Target, TargetError};
pub use traffic::{
    DayUse, FlowTraffic, LinkState, PathState, PathUse, RateInUse, RateSource, Traffic,
};
