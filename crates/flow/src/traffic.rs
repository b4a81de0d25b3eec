//! Traffic statistics of a session.

use std::time::Duration;

use bentpipe_schedule::{Activity, Class, ClassActivity, PassengerActivity, PerClass};

use crate::target::Target;

/// Traffic of a session, in total and since the last request.
///
/// Counts are contents, without the link's overhead. Sent contents count when they are first sent,
/// received contents when they are read.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    /// Age of the session, which is the period of the totals.
    pub age: Duration,
    /// Time since the last request, or since the beginning: the period of the recent counts.
    pub interval: Duration,
    /// `true` if its packet keys should have been replaced long ago: handshakes may be dropped.
    pub keys_overdue: bool,
    /// Activity of each class.
    pub classes: PerClass<ClassActivity>,
    /// The busiest passengers, the busiest first, each once in every class that it uses.
    pub passengers: Vec<PassengerActivity>,
    /// Number of passengers, including those of the recent past. A passenger counts once in every
    /// class that it uses.
    pub all_passengers: usize,
    /// The busiest flows, the busiest first.
    pub flows: Vec<FlowTraffic>,
    /// Number of flows that have carried data or have data to send.
    pub all_flows: usize,
}

/// Traffic of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTraffic {
    /// Its number in this session.
    pub id: u64,
    /// Number of its passenger.
    pub passenger: u32,
    /// Its present class.
    pub class: Class,
    /// Its IP protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Destination.
    pub target: Target,
    /// Activity since the flow has this class.
    pub activity: Activity,
}
