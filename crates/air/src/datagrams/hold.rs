//! Packets delayed until their client's device is known.

use std::sync::Arc;

use super::key::Key;
use super::unproven::{Fate, Held};
use super::{Back, Table};
use crate::client_packet::Sent;

impl<B: Back> Table<B> {
    /// Delays a packet whose source may be spoofed. Returns `false` if it need not or cannot wait.
    pub(super) fn hold(self: &Arc<Self>, key: &Key, sent: &Sent<'_>) -> bool {
        let client = key.client.ip();
        if !self.uplink.is_unproven(client) {
            return false;
        }
        match self.unproven.keep(key, sent) {
            Fate::None => false,
            Fate::Waits => true,
            Fate::Dropped => {
                self.uplink.counters.datagrams_dropped.add(1);
                true
            }
            Fate::First => {
                let (table, over) = (self.clone(), self.over.clone());
                self.uplink.flows.spawn(async move {
                    over.run_until_cancelled(table.uplink.prove(client)).await;
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
