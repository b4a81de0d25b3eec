//! Memory held by sessions: its count, and its recovery while all together hold too much.

use std::time::Duration;

use bentpipe_units::ByteSize;

use super::budget::Shortage;
use super::hub::Member;
use super::strangers::{FlowsRefused, MemoryRefused};
use super::{HubCore, SessionId};

/// Minimum outage after which a session may be ended for its memory: longer than most fades of a
/// radio link.
const MIN_SILENCE: Duration = Duration::from_secs(30);

impl HubCore {
    /// Bytes that sessions hold for flows, sent symbols and repairs.
    pub fn held_bytes(&self) -> u64 {
        let held = |member: &Member| member.session.held_bytes() + member.session.coded_bytes();
        self.sessions.values().map(held).sum()
    }

    /// Sets the memory of all sessions together, in addition to the reserves of their flows.
    pub fn set_memory(&mut self, max: ByteSize) {
        self.budget.set_max(max.bytes());
    }

    /// Counts what a session holds now, and decides what it may use in addition.
    pub(super) fn settle(&mut self, id: SessionId) {
        let Some(Member { key, session, held, .. }) = self.sessions.get_mut(&id) else { return };
        let (reserved, key) = (session.reserved_bytes(), *key);
        let waiting = session.held_bytes().saturating_sub(reserved);
        let holds = waiting + session.coded_bytes();
        self.budget.settle(std::mem::replace(held, holds), holds);
        session.set_lending(self.budget.lending(waiting));
        let refused = session.take_refused_writes();
        if refused > 0 {
            self.shortage.refused += refused;
            self.shortage.newcomer = Some(key);
        }
        let flows = session.take_flow_refusals();
        if !flows.is_empty() {
            let entry = self.aircraft.get(&key);
            let label = entry.map(|entry| entry.settings.peer_label(&key).to_string());
            let new = FlowsRefused { session: label.unwrap_or_default(), flows };
            self.flows_refused = Some(match self.flows_refused.take() {
                Some(old) => old.and(new),
                None => new,
            });
        }
    }

    /// Takes the counts of refusals for memory since the last call, with who holds how much now.
    pub(super) fn take_shortage(&mut self) -> Option<MemoryRefused> {
        let Shortage { refused, ended, newcomer } = std::mem::take(&mut self.shortage);
        if refused + ended == 0 {
            return None;
        }
        let holder = |member: &Member| {
            let entry = self.aircraft.get(&member.key);
            let name = entry.map(|entry| entry.settings.peer_label(&member.key).to_string());
            (name.unwrap_or_else(|| member.key.to_string()), member.held)
        };
        let newcomer = newcomer.and_then(|key| self.responder.session_of(&key));
        let newcomer = newcomer.and_then(|id| self.sessions.get(&id)).map(holder);
        let largest = self.sessions.values().max_by_key(|member| member.held).map(holder);
        let (max, held) = self.budget.sums();
        Some(MemoryRefused { refused, ended, newcomer, largest, held, max })
    }

    /// Recovers memory: first what sessions keep for repairs alone, then silent sessions, the longest
    /// silent one first.
    pub(super) fn reclaim(&mut self, now: Duration) {
        let holders = self.sessions.iter().filter(|(_, it)| it.held > 0);
        let mut holders: Vec<_> =
            holders.map(|(id, it)| (it.session.heard_at(), *id, it.key)).collect();
        holders.sort_unstable();
        for (_, id, _) in &holders {
            if !self.budget.is_short() {
                return;
            }
            if let Some(Member { session, .. }) = self.sessions.get_mut(id) {
                session.free_decoded();
            }
            self.settle(*id);
        }
        let silent = holders.into_iter().take_while(|(heard, ..)| now >= *heard + MIN_SILENCE);
        for (heard_at, id, key) in silent {
            let held = self.sessions.get(&id).map_or(0, |member| member.held);
            if !self.budget.is_short() {
                return;
            }
            let (bytes, silent) = (ByteSize::from_bytes(held), now.saturating_sub(heard_at));
            let aircraft = self.aircraft.get(&key).map(|entry| entry.settings.peer_label(&key));
            tracing::warn!(
                aircraft = %aircraft.unwrap_or(&key), held = %bytes, ?silent,
                "the memory for all sessions is used up: the session of a silent aircraft ends"
            );
            self.shortage.ended += 1;
            self.drop_session(id);
        }
    }
}
