//! Division of a hub's sessions over shards, so that each can have a processor core of its own.
//!
//! A shard is a complete [`HubCore`](super::HubCore) with its own sessions, timers and keys. Every
//! receiver index modulo the number of shards is the number of its shard, so that
//! [`shard_of_packet`] needs no table. Handshakes all begin at shard 0. It alone has the load meter,
//! the cookies and the queue of waiting messages; the others never read a stranger's message. Once
//! the decrypted key names an aircraft of another shard, the opened handshake goes there as a
//! [`ShardMessage`](super::ShardMessage), and no curve operation is repeated.
//!
//! The shards share only the limits on handshakes ([`Gate`]), the filter of junk and the count of
//! memory.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::SessionId;
use super::budget::Account;
use super::filter::Filter;
use super::handshake_limiter::HandshakeLimiter;
use super::strangers::Callers;
use crate::crypto::MacKey;
use crate::key::PublicKey;
use crate::wire::header::DataHeader;

/// Maximum number of shards: one task reads for all of them, and feeds no more.
pub const MAX_SHARDS: usize = 16;

/// Place of a core among the shards of its hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub number: usize,
    pub count: usize,
}

impl Shard {
    /// A hub that is not divided.
    pub const ONLY: Self = Self { number: 0, count: 1 };

    /// Returns `true` if packets with this receiver index belong to the shard.
    pub fn has_index(self, index: u32) -> bool {
        index as usize % self.count == self.number
    }

    /// Identifier of the shard's `nth` session, counted from one. No other shard uses it.
    pub fn session(self, nth: u64) -> SessionId {
        (nth - 1) * self.count as u64 + self.number as u64 + 1
    }

    /// Numbers of the other shards.
    pub fn others(self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(move |number| *number != self.number)
    }
}

/// Number of the shard of a packet that the filter admitted.
pub fn shard_of_packet(datagram: &[u8], shards: usize) -> usize {
    DataHeader::parse(datagram).map_or(0, |(header, _)| header.receiver as usize % shards)
}

/// Number of the shard of a session.
pub fn shard_of_session(id: SessionId, shards: usize) -> usize {
    (id.saturating_sub(1) % shards as u64) as usize
}

/// Number of each aircraft's shard: they take turns in the order of their keys.
pub fn shards_of_aircraft(
    aircraft: impl IntoIterator<Item = PublicKey>,
    shards: usize,
) -> impl Iterator<Item = (PublicKey, usize)> {
    let mut keys: Vec<PublicKey> = aircraft.into_iter().collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().enumerate().map(move |(at, key)| (key, at % shards))
}

/// Limits on handshakes, and their counts. Taken for a few handshakes in a millisecond at most.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<Reception>>);

#[derive(Default)]
pub struct Reception {
    pub limiter: HandshakeLimiter,
    pub refused: Callers,
}

impl Gate {
    pub fn lock(&self) -> MutexGuard<'_, Reception> {
        self.0.lock()
    }
}

/// The parts of a hub that its shards share.
#[derive(Clone)]
pub struct Common {
    pub gate: Gate,
    pub filter: Filter,
    pub memory: Account,
}

impl Common {
    pub fn of(hub: &PublicKey) -> Self {
        let filter = Filter::of_hub(MacKey::new(hub));
        Self { gate: Gate::default(), filter, memory: Account::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_indices_belong_to_one_shard() {
        for count in [1, 2, 3, 16] {
            let shards = || (0..count).map(|number| Shard { number, count });
            let mut ids: Vec<_> =
                shards().flat_map(|shard| (1..=5).map(move |nth| shard.session(nth))).collect();
            for shard in shards() {
                assert!(
                    (1..=5)
                        .all(|nth| { shard_of_session(shard.session(nth), count) == shard.number })
                );
            }
            ids.sort_unstable();
            assert_eq!(ids, Vec::from_iter(1..=5 * count as u64));
            for index in [0, 1, 77, u32::MAX] {
                let owner: Vec<_> = shards().filter(|shard| shard.has_index(index)).collect();
                assert_eq!(owner.len(), 1);
                let mut packet = Vec::new();
                DataHeader { path: 0, receiver: index, number: 9 }.put(&mut packet);
                assert_eq!(shard_of_packet(&packet, count), owner[0].number);
            }
        }
    }

    #[test]
    fn aircraft_are_divided_evenly_in_any_order() {
        let keys: Vec<_> = (0..9).map(|byte| PublicKey::from_bytes([byte; 32])).collect();
        let shards = Vec::from_iter(shards_of_aircraft(keys.clone(), 4));
        assert!(shards.iter().map(|(_, shard)| *shard).eq([0, 1, 2, 3, 0, 1, 2, 3, 0]));
        let backwards = Vec::from_iter(shards_of_aircraft(keys.into_iter().rev(), 4));
        assert_eq!(shards, backwards);
    }
}
