//! Events for the owners of flows.

use bentpipe_flow::{Class, OpenDatagrams, Target};

/// An event for the owner of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowEvent {
    /// The peer opened a flow.
    Opened {
        /// Its number.
        flow: u64,
        /// Destination.
        target: Target,
        /// Class.
        class: Class,
        /// Number of its passenger.
        passenger: u32,
    },
    /// The peer opened a flow of datagrams.
    OpenedDatagrams {
        /// Its number.
        flow: u64,
        /// Description of the flow to open.
        open: OpenDatagrams,
    },
    /// A read, a write or a look at the flow's state may succeed now.
    Wake(u64),
}
