//! Numbering of records, and what else ran during each.

use std::collections::VecDeque;

use crate::clock::{ClockState, Moment};
use crate::ping::PATIENCE;
use crate::record::{Measurement, Record};
use crate::schedule::{Job, quiet_until};

/// Maximum number of activities remembered. Pings look back 10 s; a lane that runs ten jobs a second fills it in 6 s.
const MAX_ACTIVITIES: usize = 64;

/// A run of a job, which records name as `dns:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The job.
    pub job: Job,
    /// Number of the run, counted over all jobs.
    pub number: u64,
}

impl Activity {
    /// Name in records.
    pub fn name(self) -> String {
        format!("{}:{}", self.job.name(), self.number)
    }
}

/// Maker of records.
#[derive(Debug)]
pub struct Recorder {
    next: u64,
    /// Boot time of the start of the run in microseconds, from which quiet windows count.
    start_us: u64,
    activities: VecDeque<Span>,
    clock: ClockState,
}

#[derive(Debug)]
struct Span {
    activity: Activity,
    began_us: u64,
    ended_us: Option<u64>,
}

impl Recorder {
    /// A recorder of a run that starts at boot time `start_us`.
    pub fn new(start_us: u64) -> Self {
        Self { next: 1, start_us, activities: VecDeque::new(), clock: ClockState::UNKNOWN }
    }

    /// Sets the trust in the wall clock for later records.
    pub fn set_clock(&mut self, clock: ClockState) {
        self.clock = clock;
    }

    /// Notes the begin of an activity. Call it before the first packet of the activity leaves.
    pub fn begin(&mut self, activity: Activity, at: Moment) {
        let horizon = at.boot_us.saturating_sub(2 * crate::micros(PATIENCE));
        self.activities.retain(|span| span.ended_us.is_none_or(|ended| ended >= horizon));
        if self.activities.len() == MAX_ACTIVITIES {
            self.activities.pop_front();
        }
        self.activities.push_back(Span { activity, began_us: at.boot_us, ended_us: None });
    }

    /// Notes the end of an activity.
    pub fn end(&mut self, activity: Activity, at: Moment) {
        let open = self.activities.iter_mut().find(|span| span.activity == activity);
        if let Some(span) = open {
            span.ended_us = Some(at.boot_us);
        }
    }

    /// Makes the record of a measurement that began at `began` and took `runtime_us`. `own` is the activity
    /// that it belongs to.
    pub fn record(
        &mut self,
        began: Moment,
        runtime_us: u64,
        own: Option<Activity>,
        measurement: Measurement,
    ) -> Record {
        let number = self.next;
        self.next += 1;
        let ended_us = began.boot_us.saturating_add(runtime_us);
        let overlaps = |span: &&Span| {
            Some(span.activity) != own
                && span.began_us <= ended_us
                && span.ended_us.is_none_or(|ended| ended >= began.boot_us)
        };
        let mut concurrent: Vec<String> =
            self.activities.iter().filter(overlaps).map(|span| span.activity.name()).collect();
        // Pings never stop, so their own records need not say so.
        if own.is_some() {
            concurrent.push("ping".into());
        }
        let since_start =
            std::time::Duration::from_micros(began.boot_us.saturating_sub(self.start_us));
        let quiet = own.is_none() && concurrent.is_empty() && quiet_until(since_start).is_some();
        Record {
            number,
            began,
            clock_age_s: self.clock.age_s,
            runtime_us,
            quiet,
            activity: own.map(Activity::name),
            concurrent,
            measurement,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockEvent;

    const S: u64 = 1_000_000;

    fn at(boot_us: u64) -> Moment {
        Moment { boot_us, wall_us: 0 }
    }

    fn anything() -> Measurement {
        Measurement::Clock(ClockEvent::Step { by_us: 1 })
    }

    #[test]
    fn a_record_names_what_ran_meanwhile() {
        let mut recorder = Recorder::new(0);
        let dns = Activity { job: Job::Dns, number: 1 };
        let trace = Activity { job: Job::Trace, number: 2 };
        recorder.begin(dns, at(10 * S));
        recorder.end(dns, at(20 * S));
        recorder.begin(trace, at(20 * S + 1));
        let ping = recorder.record(at(15 * S), 10 * S, None, anything());
        assert_eq!(ping.concurrent, ["dns:1", "trace:2"]);
        let early = recorder.record(at(5 * S), 4 * S, None, anything());
        assert!(early.concurrent.is_empty());
        let hop = recorder.record(at(21 * S), S, Some(trace), anything());
        assert_eq!(hop.concurrent, ["ping"]);
        assert_eq!(hop.activity.as_deref(), Some("trace:2"));
        assert_eq!((ping.number, early.number, hop.number), (1, 2, 3));
    }

    #[test]
    fn quiet_pings_are_those_in_a_window_beside_which_nothing_ran() {
        let mut recorder = Recorder::new(1000 * S);
        let quiet = |recorder: &mut Recorder, second: u64| {
            recorder.record(at((1000 + second) * S), S, None, anything()).quiet
        };
        assert!(!quiet(&mut recorder, 200));
        assert!(quiet(&mut recorder, 250));
        let slow = Activity { job: Job::Dns, number: 1 };
        recorder.begin(slow, at(1260 * S));
        assert!(!quiet(&mut recorder, 270), "a job that ran into the window");
        recorder.end(slow, at(1275 * S));
        assert!(quiet(&mut recorder, 280));
    }

    #[test]
    fn memory_of_activities_is_bounded() {
        let mut recorder = Recorder::new(0);
        for number in 0..1000 {
            recorder.begin(Activity { job: Job::Portal, number }, at(number));
        }
        assert_eq!(recorder.activities.len(), MAX_ACTIVITIES);
    }
}
