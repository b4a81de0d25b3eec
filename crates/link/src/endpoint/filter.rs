//! Filter of strangers' packets, before any other work is done for them.
//!
//! Anybody who knows the address of an end can send it packets. Two look-ups drop a packet that cannot
//! be for the end. They need none of its state: no lock that flows wait for, no timers, and no search
//! for something to send.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::crypto::MacKey;
use crate::wire::header::{DATA, DATA_OVERHEAD_BYTES, DataHeader, INIT, INIT_BYTES};

/// Sender of an admitted packet, as far as its header says. Only decryption proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// At a hub: the aircraft with this number in its shard. At an air: the hub.
    Known(usize),
    /// Anybody who begins a handshake.
    Stranger,
}

/// Filter of junk packets. Clones share their state.
#[derive(Clone)]
pub struct Filter {
    admits: Admits,
    /// Datagrams that were not admitted.
    dropped: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Admits {
    /// At a hub: initiations with a valid mac1, and packets with one of these receiver indices, which name
    /// keys of the aircraft with this number. Written when a handshake is answered or takes effect, read for
    /// each packet; never iterated.
    Aircraft { mac: MacKey, indices: Arc<RwLock<HashMap<u32, usize>>> },
    /// At an air: packets from the addresses that it calls.
    Hub(Arc<RwLock<Vec<SocketAddr>>>),
}

impl Filter {
    /// The filter of a hub, which so far knows no indices.
    pub(crate) fn of_hub(mac: MacKey) -> Self {
        Self::new(Admits::Aircraft { mac, indices: Arc::default() })
    }

    /// The filter of an air whose hub has these addresses.
    pub(super) fn of_air(addresses: &[SocketAddr]) -> Self {
        Self::new(Admits::Hub(Arc::new(RwLock::new(addresses.to_vec()))))
    }

    /// From now on the hub has these addresses.
    pub(super) fn set_places(&self, addresses: &[SocketAddr]) {
        if let Admits::Hub(known) = &self.admits {
            *known.write() = addresses.to_vec();
        }
    }

    fn new(admits: Admits) -> Self {
        Self { admits, dropped: Arc::default() }
    }

    /// Returns `true` if the datagram may be for this end, and counts it otherwise.
    pub fn admits(&self, datagram: &[u8], from: SocketAddr) -> bool {
        self.sender(datagram, from).is_some()
    }

    /// Sender of a datagram that may be for this end. Counts any other, and returns `None`.
    pub(crate) fn sender(&self, datagram: &[u8], from: SocketAddr) -> Option<Sender> {
        let sender = match &self.admits {
            Admits::Aircraft { mac, indices } => match datagram.first() {
                Some(&INIT) => (datagram.len() == INIT_BYTES && mac.accepts(datagram))
                    .then_some(Sender::Stranger),
                Some(first) if first & 0xf0 == DATA && datagram.len() >= DATA_OVERHEAD_BYTES => {
                    let head = DataHeader::parse(datagram).ok();
                    let number = head.and_then(|(it, _)| indices.read().get(&it.receiver).copied());
                    number.map(Sender::Known)
                }
                _ => None,
            },
            Admits::Hub(addresses) => addresses.read().contains(&from).then_some(Sender::Known(0)),
        };
        if sender.is_none() {
            self.dropped.fetch_add(1, Relaxed);
        }
        sender
    }

    /// Datagrams that were not admitted since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Relaxed)
    }

    /// Admits packets with `index` of the aircraft with this number.
    pub(crate) fn add(&self, index: u32, aircraft: usize) {
        if let Admits::Aircraft { indices, .. } = &self.admits {
            indices.write().insert(index, aircraft);
        }
    }

    pub(super) fn remove(&self, index: u32) {
        if let Admits::Aircraft { indices, .. } = &self.admits {
            indices.write().remove(&index);
        }
    }
}
