//! QUIC DATAGRAM frames of one connection, to and from its flows (RFC 9297 §2.1).
//!
//! ```text
//! quarter stream id (varint): the request's stream id ÷ 4; then the HTTP Datagram
//! ```

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::queue::{Queue, QueueBudget};
use crate::{
    settings::Transport,
    stream::var_int,
    wire::{read_varint, write_varint},
};

/// Maximum number of datagrams buffered for requests that have not arrived, because datagrams may
/// overtake them (RFC 9297 §2.1). About a round trip of first packets: 96 KiB if they are
/// full-sized.
const EARLY_DATAGRAMS: usize = 64;

/// Maximum number of early datagrams for one request.
const EARLY_PER_STREAM: usize = 8;

/// RFC 9297 §5.2.
const H3_DATAGRAM_ERROR: u64 = 0x33;

/// Largest quarter stream id (RFC 9297 §2.1).
const MAX_QUARTER: u64 = (1 << 60) - 1;

/// SETTINGS of the peer, as far as they have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220 §3).
    pub extended_connect: bool,
    /// SETTINGS_H3_DATAGRAM (RFC 9297 §2.1.1), if we use datagrams too.
    pub datagrams: bool,
}

impl Peer {
    /// Publishes the peer's SETTINGS as h3 knows them.
    pub fn publish(to: &watch::Sender<Peer>, h3: &impl h3::ConnectionState, ours: &Transport) {
        let settings = h3.settings();
        let now = Peer {
            extended_connect: settings.enable_extended_connect(),
            datagrams: settings.enable_datagram() && ours.datagrams,
        };
        to.send_if_modified(|known| std::mem::replace(known, now) != now);
    }
}

/// Datagram flows of one connection.
#[derive(Clone)]
pub(crate) struct Router {
    conn: quinn::Connection,
    peer: watch::Receiver<Peer>,
    budget: Arc<QueueBudget>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    flows: HashMap<u64, Arc<Queue>>,
    early: VecDeque<(u64, Bytes)>,
}

impl Router {
    pub fn new(
        conn: quinn::Connection,
        peer: watch::Receiver<Peer>,
        budget: Arc<QueueBudget>,
    ) -> Router {
        Router { conn, peer, budget, table: Arc::default() }
    }

    /// Dispatches arriving datagrams until the connection ends.
    pub async fn run(self) {
        while let Ok(datagram) = self.conn.read_datagram().await {
            match read_varint(&datagram) {
                Some((quarter, payload)) if quarter <= MAX_QUARTER => self.route(quarter, payload),
                _ => self.conn.close(var_int(H3_DATAGRAM_ERROR), b""),
            }
        }
    }

    /// Dispatches datagrams for this stream id to `inbox` until the returned route is dropped.
    pub fn register(&self, stream_id: u64, inbox: Arc<Queue>) -> Route {
        let quarter = stream_id / 4;
        let mut table = self.lock();
        table.early.retain(|(id, payload)| {
            if *id == quarter {
                inbox.push(payload);
            }
            *id != quarter
        });
        table.flows.insert(quarter, inbox);
        drop(table);
        Route { router: self.clone(), quarter }
    }

    pub fn budget(&self) -> &Arc<QueueBudget> {
        &self.budget
    }

    fn route(&self, quarter: u64, payload: &[u8]) {
        let mut table = self.lock();
        match table.flows.get(&quarter) {
            // Without a complete context id a datagram is meaningless (RFC 9298 §4).
            Some(inbox) if read_varint(payload).is_some() => inbox.push(payload),
            Some(_) => self.budget.drop_some(1),
            None => table.keep_early(quarter, payload, &self.budget),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl Table {
    fn keep_early(&mut self, quarter: u64, payload: &[u8], budget: &QueueBudget) {
        if read_varint(payload).is_none() {
            return budget.drop_some(1);
        }
        let same = |(id, _): &(u64, Bytes)| *id == quarter;
        if self.early.iter().filter(|kept| same(kept)).count() >= EARLY_PER_STREAM {
            let oldest = self.early.iter().position(same);
            oldest.map(|place| self.early.remove(place));
            budget.drop_some(1);
        } else if self.early.len() >= EARLY_DATAGRAMS {
            self.early.pop_front();
            budget.drop_some(1);
        }
        self.early.push_back((quarter, Bytes::copy_from_slice(payload)));
    }
}

/// Route of one flow through the connection. Dropping it ends the dispatch.
pub(crate) struct Route {
    router: Router,
    quarter: u64,
}

impl Route {
    /// Maximum size of a datagram. `None` if the peer accepts no datagrams.
    pub fn max_bytes(&self) -> Option<usize> {
        if !self.router.peer.borrow().datagrams {
            return None;
        }
        self.router.conn.max_datagram_size()?.checked_sub(varint_len(self.quarter))
    }

    /// Sends a datagram. Returns `false` if it is too large now, or the connection is gone.
    pub fn send(&self, datagram: &[u8]) -> bool {
        let len = varint_len(self.quarter) + datagram.len();
        let mut bytes = BytesMut::with_capacity(len);
        write_varint(self.quarter, &mut bytes);
        bytes.extend_from_slice(datagram);
        if self.router.conn.datagram_send_buffer_space() < len {
            // quinn makes room by dropping its oldest datagram.
            self.router.budget.drop_some(1);
        }
        self.router.conn.send_datagram(bytes.freeze()).is_ok()
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.router.lock().flows.remove(&self.quarter);
    }
}

fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_datagrams_are_bounded() {
        let budget = QueueBudget::default();
        let mut table = Table::default();
        for n in 0..20u8 {
            table.keep_early(1, &[0, n], &budget);
        }
        let kept: Vec<u8> = table.early.iter().map(|(_, payload)| payload[1]).collect();
        assert_eq!(kept, (12..20).collect::<Vec<u8>>());
        for quarter in 2..1000 {
            table.keep_early(quarter, &[0], &budget);
        }
        assert_eq!(table.early.len(), EARLY_DATAGRAMS);
        assert_eq!(budget.dropped(), 20 + 998 - EARLY_DATAGRAMS as u64);
        table.keep_early(3000, &[], &budget);
        table.keep_early(3000, &[0x40], &budget);
        assert!(table.early.iter().all(|(id, _)| *id != 3000), "no whole context id");
    }

    #[test]
    fn varint_lengths_match_their_encoding() {
        for value in [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MAX_QUARTER] {
            let mut bytes = BytesMut::new();
            write_varint(value, &mut bytes);
            assert_eq!(bytes.len(), varint_len(value));
        }
    }
}
