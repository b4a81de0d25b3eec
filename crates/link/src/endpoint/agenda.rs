//! The sessions of a hub that need attention. A session with nothing to send, no event and no timer
//! due costs nothing, whatever their number.
//!
//! A session is [touched](Agenda::touch) whenever anything may have changed in it: a packet
//! arrived, a timer fired, a flow's owner called it. Then it may have a packet, an event, and
//! another timer.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::SessionId;

/// Sessions by what they may have, at most one entry in each set: some 100 bytes for each session.
#[derive(Debug, Default)]
pub struct Agenda {
    /// May have a packet. All others returned none since they were last touched.
    ready: BTreeSet<SessionId>,
    /// Had no packet, and have to be asked again after some time: see [`Self::ask_again`].
    unpaused: BTreeSet<SessionId>,
    /// May have an event.
    eventful: BTreeSet<SessionId>,
    /// Have an unknown timer since they were touched.
    untimed: BTreeSet<SessionId>,
    /// Timers in order: those that were near when they were set, and the others. Those of active
    /// sessions change with each packet, and stay among few.
    timers: [BTreeSet<(Duration, SessionId)>; 2],
    /// Timers by session, each with the index of its set. Never iterated.
    timer_of: HashMap<SessionId, (Duration, usize)>,
}

/// Maximum distance of a timer that counts as near.
const NEAR: Duration = Duration::from_secs(1);

impl Agenda {
    /// Notes that anything may have changed in the session.
    pub fn touch(&mut self, id: SessionId) {
        self.ready.insert(id);
        self.eventful.insert(id);
        self.untimed.insert(id);
    }

    /// Removes a session that is over.
    pub fn forget(&mut self, id: SessionId) {
        if let Some((at, set)) = self.timer_of.remove(&id) {
            self.timers[set].remove(&(at, id));
        }
        self.ready.remove(&id);
        self.unpaused.remove(&id);
        self.eventful.remove(&id);
        self.untimed.remove(&id);
    }

    /// Returns the first of these sessions that may have a packet.
    pub fn next_ready(&self, ids: RangeInclusive<SessionId>) -> Option<SessionId> {
        self.ready.range(ids).next().copied()
    }

    /// Notes that the session had no packet. Asking changed its timers nevertheless.
    pub fn had_no_packet(&mut self, id: SessionId) {
        self.touch(id);
        self.ready.remove(&id);
    }

    /// Notes that the session's pacer was closed and nothing waited. The session is asked whenever
    /// time has passed, until its pacer sees that it is idle; otherwise the pacer would save up a
    /// burst.
    pub fn ask_again(&mut self, id: SessionId) {
        self.unpaused.insert(id);
    }

    /// Notes that time has passed.
    pub fn time_passed(&mut self) {
        self.ready.append(&mut self.unpaused);
    }

    /// Returns the first session that may have an event.
    pub fn next_eventful(&self) -> Option<SessionId> {
        self.eventful.first().copied()
    }

    /// Notes that the session had no event.
    pub fn had_no_event(&mut self, id: SessionId) {
        self.eventful.remove(&id);
    }

    /// Sessions with a due or unknown timer, in the order of their numbers.
    pub fn due(&self, now: Duration) -> BTreeSet<SessionId> {
        let mut due = self.untimed.clone();
        for timers in &self.timers {
            due.extend(timers.range(..=(now, SessionId::MAX)).map(|(_, id)| *id));
        }
        due
    }

    /// Takes a session with an unknown timer; [`Self::set_timer`] has to be called for it next.
    pub fn next_untimed(&mut self) -> Option<SessionId> {
        self.untimed.pop_first()
    }

    /// Sets the session's timer, which is valid until the session is touched.
    pub fn set_timer(&mut self, id: SessionId, at: Duration, now: Duration) {
        let set = usize::from(at > now + NEAR);
        match self.timer_of.entry(id) {
            Entry::Occupied(entry) if entry.get().0 == at => return,
            Entry::Occupied(mut entry) => {
                let (before, set) = entry.insert((at, set));
                self.timers[set].remove(&(before, id));
            }
            Entry::Vacant(entry) => _ = entry.insert((at, set)),
        }
        self.timers[set].insert((at, id));
    }

    /// The first timer, if all are known.
    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.iter().filter_map(|timers| timers.first()).map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Empties the agenda, and sets these timers.
    fn settle(agenda: &mut Agenda, timers: &[(SessionId, Duration)]) {
        while let Some(id) = agenda.next_ready(0..=SessionId::MAX) {
            agenda.had_no_packet(id);
        }
        while let Some(id) = agenda.next_eventful() {
            agenda.had_no_event(id);
        }
        while let Some(id) = agenda.next_untimed() {
            let known = timers.iter().find(|(of, _)| *of == id);
            agenda.set_timer(id, known.map_or(S * 100, |(_, at)| *at), Duration::ZERO);
        }
    }

    #[test]
    fn only_touched_sessions_are_asked_and_only_due_ones_are_woken() {
        let mut agenda = Agenda::default();
        (1..=9).for_each(|id| agenda.touch(id));
        settle(&mut agenda, &[(3, S * 5), (7, S * 2)]);
        assert_eq!(agenda.next_timer(), Some(S * 2));
        assert_eq!(agenda.next_ready(0..=SessionId::MAX), None);
        agenda.touch(4);
        assert_eq!(agenda.next_ready(5..=SessionId::MAX), None);
        assert_eq!(agenda.next_ready(0..=4), Some(4));
        assert_eq!(agenda.next_eventful(), Some(4));
        assert_eq!(Vec::from_iter(agenda.due(S)), [4], "its timer is not known");
        assert_eq!(Vec::from_iter(agenda.due(S * 5)), [3, 4, 7]);
        settle(&mut agenda, &[(4, S * 3)]);
        assert_eq!(Vec::from_iter(agenda.due(S * 3)), [4, 7]);
    }

    #[test]
    fn a_session_that_is_over_leaves_nothing() {
        let mut agenda = Agenda::default();
        agenda.touch(1);
        settle(&mut agenda, &[(1, S)]);
        agenda.forget(1);
        assert_eq!((agenda.next_timer(), agenda.next_eventful()), (None, None));
        assert!(agenda.due(S).is_empty() && agenda.timer_of.is_empty());
    }
}
