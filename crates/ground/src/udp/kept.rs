//! Flows whose external port outlives their session with the aircraft.
//!
//! If the aircraft moves to another hub, or its session ends, its air opens the flows again. A flow gets
//! the external port of the flow that had its number and its owner in an earlier session. The air draws
//! the number at random. The transport proves the aircraft's key, or its hub asserts it; another aircraft,
//! passenger or protocol with the number gets nothing. Sessions of an aircraft are ordered, so a flow of
//! an older hub gets nothing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::mapping::{MappingKey, NatBinding};

/// External ports of flows. Clones share them.
#[derive(Clone, Default)]
pub struct KeptPorts {
    flows: Arc<Mutex<Flows>>,
    /// Cancelled when the gateway stops.
    closed: CancellationToken,
}

#[derive(Default)]
struct Flows {
    entries: HashMap<Key, Entry>,
    next_id: u64,
}

/// Identity of a flow over all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Aircraft, passenger, protocol and port.
    pub owner: MappingKey,
    /// Number of the flow.
    pub number: u64,
}

struct Entry {
    id: u64,
    session: u64,
    taken: CancellationToken,
    port: Port,
}

/// External port of a flow.
#[derive(Clone)]
pub struct Port {
    /// Use of the port.
    pub binding: Arc<NatBinding>,
    /// `true` if received datagrams are restored to their sending order.
    pub keeps_order: bool,
}

/// Entry of a flow, which the flow of a later session may take. Dropping it removes the entry.
pub struct PortEntry {
    kept: KeptPorts,
    key: Key,
    id: u64,
    taken: CancellationToken,
}

impl KeptPorts {
    /// Returns the port that the flow had in an earlier session than `session`. The flow there ends.
    pub fn take(&self, key: Key, session: u64) -> Option<Port> {
        let entries = &mut self.flows.lock().entries;
        if entries.get(&key)?.session >= session {
            return None;
        }
        let entry = entries.remove(&key)?;
        entry.taken.cancel();
        Some(entry.port)
    }

    /// Lists a flow. `None` if it is listed, or its transport has no sessions.
    pub fn list(&self, key: Key, session: u64, port: Port) -> Option<PortEntry> {
        let mut flows = self.flows.lock();
        if session == 0 || flows.entries.contains_key(&key) {
            return None;
        }
        let (id, taken) = (flows.next_id, CancellationToken::new());
        flows.next_id += 1;
        flows.entries.insert(key, Entry { id, session, taken: taken.clone(), port });
        Some(PortEntry { kept: self.clone(), key, id, taken })
    }

    /// Keeps no port of a lost flow from now on.
    pub fn close(&self) {
        self.closed.cancel();
    }
}

impl Port {
    /// Port whose datagrams are not reordered.
    pub fn new(binding: NatBinding) -> Self {
        Self { binding: Arc::new(binding), keeps_order: false }
    }
}

impl PortEntry {
    /// Waits until a later session takes the port.
    pub async fn taken(&self) {
        self.taken.cancelled().await;
    }

    /// Waits until the gateway stops.
    pub async fn closed(&self) {
        self.kept.closed.cancelled().await;
    }

    /// Replaces the port.
    pub fn set(&self, port: Port) {
        if let Some(entry) = self.kept.flows.lock().entries.get_mut(&self.key)
            && entry.id == self.id
        {
            entry.port = port;
        }
    }
}

impl Drop for PortEntry {
    fn drop(&mut self) {
        let entries = &mut self.kept.flows.lock().entries;
        // Another flow may have an entry with this key now.
        if entries.get(&self.key).is_some_and(|entry| entry.id == self.id) {
            entries.remove(&self.key);
        }
    }
}
