//! The present hub of an air, and the flows that follow its changes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Wake;

use bentpipe_transport::Connector;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::budget::{Budget, MAX_AIR_BYTES, MAX_PASSENGER_BYTES};
use crate::wakers::Wakers;

/// The present hub, and the flows that follow its changes.
pub struct Present {
    hub: watch::Sender<Hub>,
    flows: Mutex<Flows>,
    /// Memory of the flows.
    pub budget: Arc<Budget>,
}

/// A hub, and the number of changes before it.
#[derive(Clone)]
pub struct Hub {
    /// Number of changes.
    pub generation: u64,
    /// The hub.
    pub hub: Arc<dyn Connector>,
}

#[derive(Default)]
struct Flows {
    next: u64,
    wakers: HashMap<u64, Arc<Wakers>>,
}

/// Entry of a flow in the list of flows that follow. Dropping it removes the flow.
pub struct Subscription {
    present: Weak<Present>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(present) = self.present.upgrade() {
            present.flows.lock().wakers.remove(&self.number);
        }
    }
}

impl Present {
    /// Starts with `hub`.
    pub fn new(hub: Arc<dyn Connector>) -> Self {
        let (hub, _) = watch::channel(Hub { generation: 0, hub });
        let budget = Budget::new(MAX_PASSENGER_BYTES, MAX_AIR_BYTES);
        Self { hub, flows: Mutex::default(), budget }
    }

    /// Number of changes so far.
    pub fn generation(&self) -> u64 {
        self.hub.borrow().generation
    }

    /// The present hub.
    pub fn get(&self) -> Hub {
        self.hub.borrow().clone()
    }

    /// The present hub, and every change.
    pub fn watch(&self) -> watch::Receiver<Hub> {
        self.hub.subscribe()
    }

    /// Replaces the hub, and wakes all flows.
    pub fn change_to(&self, hub: Arc<dyn Connector>) {
        self.hub.send_modify(|present| {
            present.generation += 1;
            present.hub = hub;
        });
        let wakers: Vec<_> = self.flows.lock().wakers.values().cloned().collect();
        wakers.into_iter().for_each(Wake::wake);
    }

    /// Lists a flow, which a change of the hub wakes.
    pub fn subscribe(self: &Arc<Self>, wakers: &Arc<Wakers>) -> Subscription {
        let mut flows = self.flows.lock();
        let number = flows.next;
        flows.next += 1;
        flows.wakers.insert(number, wakers.clone());
        Subscription { present: Arc::downgrade(self), number }
    }
}
