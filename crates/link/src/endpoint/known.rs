//! Handshakes and keys of one aircraft at the ground's end.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::SessionId;
use super::filter::Filter;
use crate::crypto::{InitPayload, Keys};
use crate::key::PublicKey;

/// Maximum number of handshakes of one aircraft that wait for their first packet.
pub const MAX_PENDING: usize = 4;
/// Time for which they refuse smaller counters: longer than any round trip, after which the first
/// packet should have arrived.
const COUNTER_LIFETIME: Duration = Duration::from_secs(20);

/// Number of handshakes with used counters since the last effective one that is not an accident of
/// the network …
const USED_COUNTERS: u32 = 3;
/// … and interval of its reports.
const USED_COUNTER_INTERVAL: Duration = Duration::from_secs(600);

/// Owner of the keys with an index.
#[derive(Clone, Copy)]
pub struct Owner {
    pub aircraft: PublicKey,
    /// Session of the keys, once they have taken effect.
    pub session: Option<SessionId>,
}

/// Handshakes and keys of one aircraft.
#[derive(Default)]
pub struct Known {
    /// Number of the aircraft in its shard.
    pub number: usize,
    /// Counter of the last effective handshake.
    pub confirmed_counter: Option<u64>,
    pub pending: VecDeque<Pending>,
    pub current: Option<Current>,
    /// All indices that name its keys, pending or in use.
    pub indices: Vec<u32>,
    /// Number of handshakes without a higher counter since, and time of the last report of them.
    pub used: u32,
    told: Option<Duration>,
}

/// The present session, and the instances of its two ends.
#[derive(Clone, Copy)]
pub struct Current {
    pub id: SessionId,
    pub air: u64,
    pub here: u64,
}

/// A handshake that was answered.
pub struct Pending {
    pub keys: Keys,
    pub payload: InitPayload,
    pub address: SocketAddr,
    /// Instance in the answer.
    pub here: u64,
    /// `true` if that is the present session's.
    pub resumes: bool,
}

impl Known {
    /// An aircraft without handshakes or keys.
    pub fn new(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// Removes an index that no longer names keys.
    pub fn forget(&mut self, index: u32, indices: &mut HashMap<u32, Owner>, filter: &Filter) {
        self.indices.retain(|known| *known != index);
        indices.remove(&index);
        filter.remove(index);
    }

    /// Returns `true` if a message 1 with `counter` is neither a recording nor overtaken: its
    /// counter is above that of the last effective handshake, and above those answered recently.
    ///
    /// A counter takes effect only with the first packet, because message 1 alone does not prove
    /// the aircraft's key: a holder of *our* private key can compute its `ss` too and name any
    /// counter. That must not lock the aircraft out for longer than the attack lasts. A recording
    /// is worthless once it or a later message took effect. Until then it is answered at most once
    /// in [`COUNTER_LIFETIME`], without effect, and displaces nothing newer.
    pub fn is_new(&self, counter: u64, now: Duration) -> bool {
        let passed = |pending: &Pending| {
            let counts = now < pending.keys.made_at + COUNTER_LIFETIME;
            let known = pending.payload.counter;
            counter > known || (counter < known && !counts)
        };
        self.confirmed_counter.is_none_or(|last| counter > last) && self.pending.iter().all(passed)
    }

    /// Notes a refused message 1. Returns `true` if used counters should be reported again.
    pub fn reports_used(&mut self, counter: u64, now: Duration) -> bool {
        if self.confirmed_counter.is_none_or(|last| counter > last) {
            return false;
        }
        self.used = self.used.saturating_add(1);
        let due = self.told.is_none_or(|told| now >= told + USED_COUNTER_INTERVAL);
        let tells = due && self.used >= USED_COUNTERS;
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// The instance that `payload` wants to resume, if it is here, and whether it is in use.
    pub fn resumed(&self, payload: &InitPayload) -> Option<(u64, bool)> {
        let current = self.current.map(|current| (current.air, current.here, true));
        let pending = self.pending.iter().map(|it| (it.payload.instance, it.here, it.resumes));
        let asked = (payload.instance, payload.resumes);
        let mut known = current.into_iter().chain(pending);
        known.find(|(air, here, _)| (*air, *here) == asked).map(|(_, here, in_use)| (here, in_use))
    }
}
