//! Strangers' packets, told from those of aircraft before anything else is done for them.
//!
//! Whoever knows the hub's address can send it anything. A packet that cannot be for it is dropped by
//! two look-ups that need nothing of the hub's own state: it takes no lock that flows wait for, and
//! leads to no look at timers, flows or what could be sent.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::crypto::MacKey;
use crate::wire::header::{DATA, DATA_OVERHEAD_BYTES, DataHeader, INIT, INIT_BYTES};

/// Tells packets that may be for an end from junk. Clones share what they know.
#[derive(Clone)]
pub struct Filter {
    mac: MacKey,
    /// The receiver indices that name keys. Written while a handshake is answered or takes effect,
    /// read for each packet; never iterated.
    indices: Arc<RwLock<HashSet<u32>>>,
}

impl Filter {
    pub(super) fn new(mac: MacKey) -> Self {
        Self { mac, indices: Arc::default() }
    }

    /// Returns whether the datagram may be for this end: an initiation with a right mac1, or a packet under
    /// an index that names keys.
    pub fn admits(&self, datagram: &[u8]) -> bool {
        match datagram.first() {
            Some(&INIT) => datagram.len() == INIT_BYTES && self.mac.accepts(datagram),
            Some(first) if first & 0xf0 == DATA => {
                datagram.len() >= DATA_OVERHEAD_BYTES
                    && DataHeader::parse(datagram).is_ok_and(|(head, _)| self.knows(head.receiver))
            }
            _ => false,
        }
    }

    fn knows(&self, index: u32) -> bool {
        self.indices.read().unwrap_or_else(PoisonError::into_inner).contains(&index)
    }

    pub(super) fn add(&self, index: u32) {
        self.indices.write().unwrap_or_else(PoisonError::into_inner).insert(index);
    }

    pub(super) fn remove(&self, index: u32) {
        self.indices.write().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }
}
