//! The schedule: pings at fixed times, everything else in one lane, and quiet windows.
//!
//! Measurements must not disturb each other. So all but the pings run one after another, with jitter, and
//! rest for a minute in every ten. Pings of that minute tell the round-trip time of the unloaded path.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Period of quiet windows.
pub const QUIET_EVERY: Duration = Duration::from_secs(600);

/// Start of the quiet window within its period.
pub const QUIET_AT: Duration = Duration::from_secs(240);

/// Length of a quiet window.
pub const QUIET_FOR: Duration = Duration::from_secs(60);

/// Largest deviation of an interval, in parts of it: ±10 %.
const JITTER: f64 = 0.1;

/// A job of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// The question whether a captive portal holds the access.
    Portal,
    /// The question for the public address.
    Address,
    /// The question for the position.
    Gps,
    /// A traceroute to one target.
    Trace,
    /// A round of DNS pairs.
    Dns,
    /// A round of HTTP objects.
    Objects,
    /// Trains of packets in both directions.
    Rate,
    /// An EPB test of one direction.
    Epb,
    /// An ndt7 test in each direction.
    Ndt7,
}

impl Job {
    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portal => "portal",
            Self::Address => "address",
            Self::Gps => "gps",
            Self::Trace => "trace",
            Self::Dns => "dns",
            Self::Objects => "objects",
            Self::Rate => "rate",
            Self::Epb => "epb",
            Self::Ndt7 => "ndt7",
        }
    }

    /// Default interval: traceroute and DNS as in Mile High WiFi, section 3.
    pub fn interval(self) -> Duration {
        match self {
            Self::Portal | Self::Gps => Duration::from_secs(60),
            Self::Address => Duration::from_secs(120),
            Self::Trace => Duration::from_secs(180),
            Self::Dns => Duration::from_secs(300),
            Self::Objects => Duration::from_secs(900),
            Self::Rate => Duration::from_secs(1800),
            Self::Ndt7 | Self::Epb => Duration::from_secs(3600),
        }
    }

    /// Expected duration of the first run, until one was measured.
    fn first_guess(self) -> Duration {
        match self {
            Self::Portal | Self::Address | Self::Gps => Duration::from_secs(3),
            Self::Trace | Self::Rate | Self::Ndt7 | Self::Epb => Duration::from_secs(30),
            Self::Dns | Self::Objects => Duration::from_secs(60),
        }
    }
}

/// Time of the k-th ping of target `index` of `count`: targets take turns within the interval.
pub fn ping_time(k: u64, index: usize, count: usize, interval: Duration) -> Duration {
    let turn = interval.as_nanos() as u64 * index as u64 / count.max(1) as u64;
    Duration::from_nanos((interval.as_nanos() as u64).saturating_mul(k).saturating_add(turn))
}

/// Number of the first ping that is not before `now`. After a suspension the missed ones are skipped, not
/// sent in a burst.
pub fn ping_after(now: Duration, index: usize, count: usize, interval: Duration) -> u64 {
    let first = ping_time(0, index, count, interval);
    now.saturating_sub(first).as_nanos().div_ceil(interval.as_nanos().max(1)) as u64
}

/// Next step of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the job now.
    Run(Job),
    /// Do nothing until then.
    Wait(Duration),
}

/// The lane of jobs. Times count from the start of the run.
#[derive(Debug)]
pub struct Lane {
    jobs: Vec<Planned>,
    random: Random,
}

#[derive(Debug)]
struct Planned {
    job: Job,
    every: Duration,
    next: Duration,
    takes: Duration,
}

impl Lane {
    /// A lane of the given jobs with their intervals; all are due at once, in this order.
    pub fn new(jobs: &[(Job, Duration)], seed: u64) -> Self {
        let planned = |&(job, every): &(Job, Duration)| Planned {
            job,
            every,
            next: Duration::ZERO,
            takes: job.first_guess(),
        };
        Self { jobs: jobs.iter().map(planned).collect(), random: Random::new(seed) }
    }

    /// The step at `now`. A job that would not end before the quiet window waits for its end.
    pub fn step(&self, now: Duration) -> Step {
        if let Some(end) = quiet_until(now) {
            return Step::Wait(end);
        }
        let quiet = next_quiet(now);
        let due = self.jobs.iter().filter(|planned| planned.next <= now);
        let fits = |planned: &&Planned| now + planned.takes.min(QUIET_AT) <= quiet;
        if let Some(planned) = due.filter(fits).min_by_key(|planned| planned.next) {
            return Step::Run(planned.job);
        }
        let later = self.jobs.iter().map(|planned| planned.next).filter(|next| *next > now).min();
        Step::Wait(later.unwrap_or(quiet).min(quiet))
    }

    /// Notes that `job` ran from `began` to `ended`, and plans its next run.
    pub fn ran(&mut self, job: Job, began: Duration, ended: Duration) {
        let factor = 1.0 + JITTER * (2.0 * self.random.unit() - 1.0);
        let Some(planned) = self.jobs.iter_mut().find(|planned| planned.job == job) else { return };
        planned.takes = ended.saturating_sub(began);
        // Intervals count from the start, so that a slow access does not stretch them. Runs that it has
        // no time for are skipped.
        planned.next = (began + planned.every.mul_f64(factor)).max(ended);
    }

    /// Plans the next run of `job` at a time of its own schedule.
    pub fn postpone(&mut self, job: Job, until: Duration) {
        if let Some(planned) = self.jobs.iter_mut().find(|planned| planned.job == job) {
            planned.next = until;
        }
    }
}

/// End of the quiet window around `now`, if there is one.
pub fn quiet_until(now: Duration) -> Option<Duration> {
    let start = period(now) + QUIET_AT;
    (start <= now && now < start + QUIET_FOR).then_some(start + QUIET_FOR)
}

/// Start of the next quiet window after `now`.
fn next_quiet(now: Duration) -> Duration {
    let start = period(now) + QUIET_AT;
    if now < start { start } else { start + QUIET_EVERY }
}

fn period(now: Duration) -> Duration {
    QUIET_EVERY * u32::try_from(now.as_secs() / QUIET_EVERY.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pings_take_turns_and_skip_what_a_suspension_missed() {
        assert_eq!(ping_time(3, 1, 4, s(2)), Duration::from_millis(6500));
        assert_eq!(ping_after(Duration::ZERO, 1, 4, s(2)), 0);
        assert_eq!(ping_after(Duration::from_millis(6500), 1, 4, s(2)), 3);
        assert_eq!(ping_after(Duration::from_millis(6501), 1, 4, s(2)), 4);
        let awake = s(40_000);
        let next = ping_time(ping_after(awake, 1, 4, s(2)), 1, 4, s(2));
        assert!(next >= awake && next < awake + s(2));
    }

    /// Runs a lane in virtual time, with jobs that take a share of a minute. Returns (job, begin, end).
    fn run(jobs: &[(Job, Duration)], length: Duration) -> Vec<(Job, Duration, Duration)> {
        let mut lane = Lane::new(jobs, 7);
        let (mut now, mut done) = (Duration::ZERO, Vec::new());
        while now < length {
            match lane.step(now) {
                Step::Wait(until) => {
                    assert!(until > now, "a wait must pass time");
                    now = until;
                }
                Step::Run(job) => {
                    let takes = match job {
                        Job::Portal | Job::Address | Job::Gps => Duration::from_millis(800),
                        Job::Trace | Job::Rate | Job::Ndt7 | Job::Epb => s(20),
                        Job::Objects => s(40),
                        Job::Dns => s(90),
                    };
                    lane.ran(job, now, now + takes);
                    done.push((job, now, now + takes));
                    now += takes;
                }
            }
        }
        done
    }

    #[test]
    fn jobs_keep_their_intervals_and_leave_quiet_windows_alone() {
        let jobs = [Job::Portal, Job::Trace, Job::Address, Job::Dns, Job::Objects]
            .map(|job| (job, job.interval()));
        let done = run(&jobs, s(12 * 3600));
        let quiet = |at: Duration| quiet_until(at).is_some();
        // The first round of DNS takes longer than was guessed, and nothing else.
        let disturbing =
            done.iter().filter(|(_, began, ended)| quiet(*began) || quiet(*ended)).count();
        assert_eq!(disturbing, 0);
        let count = |job| done.iter().filter(|(ran, ..)| *ran == job).count();
        // In 12 h: 240 traceroutes and 144 rounds without quiet windows, which postpone some.
        assert!((200..=245).contains(&count(Job::Trace)), "{}", count(Job::Trace));
        assert!((115..=150).contains(&count(Job::Dns)), "{}", count(Job::Dns));
        assert!((480..=760).contains(&count(Job::Portal)), "{}", count(Job::Portal));
        assert!(done.windows(2).all(|pair| pair[0].2 <= pair[1].1), "one after another");
        assert_eq!(done[0].1, Duration::ZERO, "the first at once");
    }

    #[test]
    fn jitter_spreads_the_starts() {
        let done = run(&[(Job::Trace, s(180))], s(3600 * 4));
        let gaps: Vec<u64> =
            done.windows(2).map(|pair| (pair[1].1 - pair[0].1).as_millis() as u64).collect();
        let distinct: std::collections::BTreeSet<_> = gaps.iter().collect();
        assert!(distinct.len() > gaps.len() / 2);
        assert!(gaps.iter().all(|gap| *gap >= 162_000));
    }

    #[test]
    fn a_job_with_a_schedule_of_its_own_waits_for_it() {
        let mut lane = Lane::new(&[(Job::Ndt7, s(3600))], 1);
        lane.ran(Job::Ndt7, s(0), s(30));
        lane.postpone(Job::Ndt7, s(9000));
        let mut now = s(30);
        while let Step::Wait(until) = lane.step(now) {
            now = until;
        }
        assert_eq!(now, s(9000));
    }

    #[test]
    fn a_job_longer_than_the_time_between_windows_still_runs() {
        let mut lane = Lane::new(&[(Job::Dns, s(300))], 1);
        lane.ran(Job::Dns, s(0), s(900));
        assert_eq!(lane.step(s(900)), Step::Run(Job::Dns));
    }
}
