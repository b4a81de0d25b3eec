//! The sessions of a hub that need attention: a session with nothing to send, nothing to report to a
//! flow's owner and no timer due costs nothing, however many of them there are.
//!
//! A session is [touched](Agenda::touch) whenever anything may have changed in it: a packet came, a
//! timer fired, a flow's owner reached in. Then it may have a packet, an event, and another timer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::SessionId;

/// Sessions by what they may have, at most one entry each per set: some 100 bytes for each session.
#[derive(Debug, Default)]
pub struct Agenda {
    /// May have a packet. All others returned none since they were touched last.
    ready: BTreeSet<SessionId>,
    /// Had no packet, and are to be asked again when time has passed: see [`Self::ask_again`].
    unpaused: BTreeSet<SessionId>,
    /// May have an event.
    talking: BTreeSet<SessionId>,
    /// Their timers are not known since they were touched.
    untimed: BTreeSet<SessionId>,
    /// Timers, in order.
    timers: BTreeSet<(Duration, SessionId)>,
    timer_of: BTreeMap<SessionId, Duration>,
}

impl Agenda {
    /// Anything may have changed in the session.
    pub fn touch(&mut self, id: SessionId) {
        self.ready.insert(id);
        self.talking.insert(id);
        if self.untimed.insert(id)
            && let Some(at) = self.timer_of.remove(&id)
        {
            self.timers.remove(&(at, id));
        }
    }

    /// The session is over.
    pub fn forget(&mut self, id: SessionId) {
        self.touch(id);
        self.ready.remove(&id);
        self.unpaused.remove(&id);
        self.talking.remove(&id);
        self.untimed.remove(&id);
    }

    /// The first of these sessions that may have a packet.
    pub fn next_ready(&self, ids: RangeInclusive<SessionId>) -> Option<SessionId> {
        self.ready.range(ids).next().copied()
    }

    /// The session had no packet. Asking changed its timers nonetheless.
    pub fn had_no_packet(&mut self, id: SessionId) {
        self.touch(id);
        self.ready.remove(&id);
    }

    /// The session's pacer was shut when it was asked last, and nothing waited. It is asked whenever
    /// time has passed until its pacer sees that it is idle: else the pacer would save up a burst.
    pub fn ask_again(&mut self, id: SessionId) {
        self.unpaused.insert(id);
    }

    /// Time has passed.
    pub fn time_passed(&mut self) {
        self.ready.append(&mut self.unpaused);
    }

    /// The first session that may have an event.
    pub fn next_talking(&self) -> Option<SessionId> {
        self.talking.first().copied()
    }

    /// The session had no event.
    pub fn had_no_event(&mut self, id: SessionId) {
        self.talking.remove(&id);
    }

    /// Sessions whose timer is due, or is not known: in order of their numbers.
    pub fn due(&self, now: Duration) -> BTreeSet<SessionId> {
        let mut due = self.untimed.clone();
        due.extend(self.timers.range(..=(now, SessionId::MAX)).map(|(_, id)| *id));
        due
    }

    /// A session whose timer is not known; [`Self::set_timer`] is to be called for it next.
    pub fn next_untimed(&mut self) -> Option<SessionId> {
        self.untimed.pop_first()
    }

    /// Sets when the session is due, as long as nobody touches it.
    pub fn set_timer(&mut self, id: SessionId, at: Duration) {
        self.timers.insert((at, id));
        self.timer_of.insert(id, at);
    }

    /// The first timer.
    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Takes everything off the agenda, with these timers.
    fn settle(agenda: &mut Agenda, timers: &[(SessionId, Duration)]) {
        while let Some(id) = agenda.next_ready(0..=SessionId::MAX) {
            agenda.had_no_packet(id);
        }
        while let Some(id) = agenda.next_talking() {
            agenda.had_no_event(id);
        }
        while let Some(id) = agenda.next_untimed() {
            let known = timers.iter().find(|(of, _)| *of == id);
            agenda.set_timer(id, known.map_or(S * 100, |(_, at)| *at));
        }
    }

    #[test]
    fn only_a_touched_session_is_asked_and_only_one_that_is_due_is_woken() {
        let mut agenda = Agenda::default();
        (1..=9).for_each(|id| agenda.touch(id));
        settle(&mut agenda, &[(3, S * 5), (7, S * 2)]);
        assert_eq!(agenda.next_timer(), Some(S * 2));
        assert_eq!(agenda.next_ready(0..=SessionId::MAX), None);
        agenda.touch(4);
        assert_eq!(agenda.next_ready(5..=SessionId::MAX), None);
        assert_eq!(agenda.next_ready(0..=4), Some(4));
        assert_eq!(agenda.next_talking(), Some(4));
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
        assert_eq!((agenda.next_timer(), agenda.next_talking()), (None, None));
        assert!(agenda.due(S).is_empty() && agenda.timer_of.is_empty());
    }
}
