//! Timers of the state machine, as deadlines.

use std::collections::BTreeMap;
use std::time::Duration;

use dlep_fsm::{TimerId, TimerKind};

/// Armed timers: at most one per kind, so at most five.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    armed: BTreeMap<TimerId, Timer>,
}

#[derive(Debug)]
struct Timer {
    kind: TimerKind,
    due: Duration,
    period: Option<Duration>,
}

impl Timers {
    /// Sets the timer `id`, replacing an earlier setting.
    pub fn set(
        &mut self,
        id: TimerId,
        kind: TimerKind,
        now: Duration,
        after: Duration,
        periodic: bool,
    ) {
        // A period of zero would be due for ever.
        let period = periodic.then_some(after.max(Duration::from_millis(1)));
        self.armed.insert(id, Timer { kind, due: now.saturating_add(after), period });
    }

    pub fn cancel(&mut self, id: TimerId) {
        self.armed.remove(&id);
    }

    pub fn clear(&mut self) {
        self.armed.clear();
    }

    /// Time at which the next timer is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.armed.values().map(|timer| timer.due).min()
    }

    /// Takes the timer that has been due longest at `now`. A periodic timer is set again, after
    /// `now`; missed periods are skipped.
    pub fn take_due(&mut self, now: Duration) -> Option<(TimerId, TimerKind)> {
        let due = self.armed.iter().filter(|(_, timer)| timer.due <= now);
        let (id, kind) =
            due.min_by_key(|(id, timer)| (timer.due, **id)).map(|(id, t)| (*id, t.kind))?;
        match self.armed.get_mut(&id) {
            Some(Timer { due, period: Some(period), .. }) => {
                *due = due.saturating_add(*period).max(now.saturating_add(Duration::from_nanos(1)));
            }
            _ => self.cancel(id),
        }
        Some((id, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: TimerId = TimerId::new(3);
    const MISSED: TimerId = TimerId::new(4);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_timer_due_longest_comes_first_and_missed_periods_are_skipped() {
        let mut timers = Timers::default();
        timers.set(HEARTBEAT, TimerKind::Heartbeat, seconds(0), seconds(2), true);
        timers.set(MISSED, TimerKind::HeartbeatMissed, seconds(0), seconds(4), false);
        assert_eq!(timers.next_due(), Some(seconds(2)));
        assert_eq!(timers.take_due(seconds(1)), None);
        assert_eq!(timers.take_due(seconds(9)), Some((HEARTBEAT, TimerKind::Heartbeat)));
        assert_eq!(timers.take_due(seconds(9)), Some((MISSED, TimerKind::HeartbeatMissed)));
        assert_eq!(timers.take_due(seconds(9)), None, "missed periods are skipped");
        timers.set(MISSED, TimerKind::HeartbeatMissed, seconds(9), seconds(4), false);
        timers.cancel(MISSED);
        assert!(timers.next_due().is_some_and(|due| due > seconds(9) && due < seconds(12)));
        timers.clear();
        assert_eq!(timers.next_due(), None);
    }
}
