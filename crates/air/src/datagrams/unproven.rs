//! First packets of clients whose device is not known yet.
//!
//! A device that takes another address may send from it before the kernel knows the neighbour. Its
//! packets wait briefly while the kernel resolves the address, so that the flow counts for the
//! device from its start. Spoofed addresses are never resolved; they share a small allowance.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

use super::key::Key;
use crate::client_packet::Sent;

/// Maximum number of addresses with delayed packets.
const MAX_ADDRESSES: usize = 64;

/// Maximum number of delayed bytes per address: a QUIC client's first flight. 64 × 16 KiB = 1 MiB
/// in total.
const MAX_BYTES: usize = 16 * 1024;

/// Maximum number of delayed packets per address.
const MAX_PACKETS: usize = 32;

/// Delayed packets, by address.
#[derive(Default)]
pub struct Unproven(Mutex<HashMap<IpAddr, Vec<Held>>>);

/// A delayed packet.
pub struct Held {
    pub key: Key,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub payload: Vec<u8>,
    pub cut_bytes: usize,
}

/// Result of trying to delay a packet.
pub enum Fate {
    /// The packet waits, as the first of its address.
    First,
    /// The packet waits with others of its address.
    Waits,
    /// The address has reached its maximum.
    Dropped,
    /// The packet cannot wait, because too many addresses do.
    None,
}

impl Unproven {
    /// Delays a packet if its address may wait.
    pub fn keep(&self, key: &Key, sent: &Sent<'_>) -> Fate {
        let mut waiting = self.0.lock();
        let client = key.client.ip();
        let held = Held {
            key: key.clone(),
            hop_limit: sent.hop_limit,
            traffic_class: sent.traffic_class,
            payload: sent.payload.to_vec(),
            cut_bytes: sent.cut_bytes,
        };
        if let Some(its) = waiting.get_mut(&client) {
            let bytes: usize = its.iter().map(|held| held.payload.len()).sum();
            if its.len() >= MAX_PACKETS || bytes + sent.payload.len() > MAX_BYTES {
                return Fate::Dropped;
            }
            its.push(held);
            return Fate::Waits;
        }
        if waiting.len() >= MAX_ADDRESSES || sent.payload.len() > MAX_BYTES {
            return Fate::None;
        }
        waiting.insert(client, vec![held]);
        Fate::First
    }

    /// Removes and returns the packets of an address.
    pub fn take(&self, client: IpAddr) -> Vec<Held> {
        let mut waiting = self.0.lock();
        waiting.remove(&client).unwrap_or_default()
    }
}
