//! First packets of clients whose device is not known yet.
//!
//! A device that takes a further address may send from it before the kernel has ever spoken with that
//! address. Its packets wait a moment while the kernel looks for it, so that the flow is its own from the
//! beginning. Whoever invents addresses gets no answer for them, and shares a small allowance.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Back, Key, Table};
use crate::air::sent::Sent;

/// Addresses whose packets wait.
const MAX_ADDRESSES: usize = 64;

/// Bytes that wait for one of them: a QUIC client's first flight. 1 MiB in all.
const MAX_BYTES: usize = 16 * 1024;

/// Packets that wait for one of them.
const MAX_PACKETS: usize = 32;

/// Packets that wait, by address.
#[derive(Default)]
pub struct Unproven(Mutex<HashMap<IpAddr, Vec<Held>>>);

struct Held {
    key: Key,
    hop_limit: u8,
    traffic_class: u8,
    payload: Vec<u8>,
    cut_bytes: usize,
}

/// Fate of a packet.
enum Place {
    /// It waits, as the first of its address.
    First,
    /// It waits with others of its address.
    Waits,
    /// As much waits already as may.
    Dropped,
    /// Its address cannot wait.
    None,
}

impl Unproven {
    fn keep(&self, key: &Key, sent: &Sent<'_>) -> Place {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
                return Place::Dropped;
            }
            its.push(held);
            return Place::Waits;
        }
        if waiting.len() >= MAX_ADDRESSES || sent.payload.len() > MAX_BYTES {
            return Place::None;
        }
        waiting.insert(client, vec![held]);
        Place::First
    }

    fn take(&self, client: IpAddr) -> Vec<Held> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&client).unwrap_or_default()
    }
}

impl<B: Back> Table<B> {
    /// Holds a packet whose source may be invented until that is known; false if it does not wait.
    pub(super) fn hold(self: &Arc<Self>, key: &Key, sent: &Sent<'_>) -> bool {
        let client = key.client.ip();
        if !self.intake.is_unproven(client) {
            return false;
        }
        match self.unproven.keep(key, sent) {
            Place::None => false,
            Place::Waits => true,
            Place::Dropped => {
                self.intake.counters.datagrams_dropped.add(1);
                true
            }
            Place::First => {
                let (table, over) = (self.clone(), self.over.clone());
                self.intake.flows.spawn(async move {
                    over.run_until_cancelled(table.intake.prove(client)).await;
                    for held in table.unproven.take(client) {
                        let Held { key, hop_limit, traffic_class, payload, cut_bytes } = held;
                        let payload = &payload[..];
                        table.send_now(key, Sent { hop_limit, traffic_class, payload, cut_bytes });
                    }
                });
                true
            }
        }
    }
}
