//! Destinations of an external port, each with its flow.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use bentpipe_metering::counters::Counters;
use bentpipe_transport::FlowDatagrams;
use bentpipe_transport::datagram::{Datagram, IcmpError};

/// Destinations of one external port.
pub type Peers = Arc<Mutex<HashMap<SocketAddr, Peer>>>;

/// A destination and its flow.
#[derive(Clone)]
pub struct Peer {
    pub flow: Arc<dyn FlowDatagrams>,
    pub is_gateway: bool,
    pub moved: Arc<Mutex<LastActivity>>,
}

/// Last activity of a flow.
#[derive(Clone, Copy)]
pub struct LastActivity {
    /// Time of the last activity in either direction.
    pub at: Instant,
    /// `true` if the destination has ever answered.
    pub is_answered: bool,
}

impl Peer {
    /// Creates the destination of a new `flow`.
    pub fn of(flow: Arc<dyn FlowDatagrams>, is_gateway: bool) -> Self {
        let moved = Arc::new(Mutex::new(LastActivity { at: Instant::now(), is_answered: false }));
        Self { flow, is_gateway, moved }
    }

    /// Passes an error to the aircraft, if its gateway supports errors.
    pub fn explain(&self, error: IcmpError, counters: &Counters) {
        if self.is_gateway && self.flow.send(&Datagram::Error(error).encoded()).is_ok() {
            counters.icmp_sent.add(1);
        }
    }
}
