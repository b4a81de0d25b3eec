//! Memory that sessions hold, counted, and taken back while all together hold too much.

use std::time::Duration;

use bentpipe_units::ByteSize;

use super::hub::Member;
use super::{Core, HubCore, SessionId};

/// Sessions that were not heard for so long may have to give their memory back: longer than most
/// fades of a radio link.
const MIN_SILENCE: Duration = Duration::from_secs(30);

impl HubCore {
    /// Bytes of memory that sessions hold for flows, for what was sent, and for repairs.
    pub fn held_bytes(&self) -> u64 {
        let held = |member: &Member| member.session.held_bytes() + member.session.coded_bytes();
        self.sessions.values().map(held).sum()
    }

    /// All sessions together may hold so much memory, from now on, beside the reserves of their flows.
    pub fn set_memory(&mut self, most: ByteSize) {
        self.budget.set_most(most.bytes());
    }

    /// Counts what a session holds now.
    pub(super) fn settle(&mut self, id: SessionId) {
        if let Some(Member { session, held, .. }) = self.sessions.get_mut(&id) {
            let holds = session.held_bytes() + session.coded_bytes();
            self.budget.settle(std::mem::replace(held, holds), holds);
        }
    }

    /// Takes memory back until there is enough: first what sessions keep for repairs alone, then
    /// sessions that are silent. The longest silent session is always the first.
    pub(super) fn reclaim(&mut self, now: Duration) {
        let holders = self.sessions.iter().filter(|(_, it)| it.held > 0);
        let mut holders: Vec<_> =
            holders.map(|(id, it)| (it.session.heard_at(), *id, it.key)).collect();
        holders.sort_unstable();
        for (_, id, _) in &holders {
            if !self.budget.is_exceeded() {
                return;
            }
            if let Some(session) = self.session(*id) {
                session.give_back();
            }
            self.settle(*id);
        }
        let silent = holders.into_iter().take_while(|(heard, ..)| now >= *heard + MIN_SILENCE);
        for (heard_at, id, key) in silent {
            let held = self.sessions.get(&id).map_or(0, |member| member.held);
            if !self.budget.is_exceeded() {
                return;
            }
            let (bytes, silent) = (ByteSize::from_bytes(held), now.saturating_sub(heard_at));
            let aircraft = self.aircraft.get(&key).map(|entry| entry.settings.called(&key));
            tracing::warn!(
                aircraft = %aircraft.unwrap_or(&key), held = %bytes, ?silent,
                "the memory for all sessions is used up: the session of a silent aircraft ends"
            );
            self.drop_session(id);
        }
    }
}
