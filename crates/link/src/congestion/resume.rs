//! Careful Resume (RFC 9959): use of an earlier session's measurements of the path.
//!
//! ```text
//! Reconnaissance ──path confirmed, window full──► Unvalidated ──first of it reported──► Validating ──all of it──► Normal
//!       │ congestion, other path, nothing to gain      │ congestion                        │ congestion
//!       ▼                                              └──────────────► SafeRetreat ◄──────┘
//!     Normal                                                                └──all of it reported──► Normal
//! ```

use std::time::Duration;

/// Divisor of the saved window for the jump (RFC 9959, section 4.3).
const JUMP_PART: u64 = 2;
/// The path counts as another one unless the round trip exceeds the saved one divided by this …
const MIN_RTT_PART: u32 = 2;
/// … and is below the saved one times this.
const MAX_RTT_TIMES: u32 = 10;

/// Returns `true` if a path with round trip `rtt` may be that of an earlier session.
pub fn is_same_path(saved: Duration, rtt: Duration) -> bool {
    rtt > saved / MIN_RTT_PART && rtt < saved * MAX_RTT_TIMES
}

/// Phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is confirmed yet.
    Reconnaissance,
    /// The window has jumped; packets from `first` on use the jump.
    Unvalidated { first: u64, since: Duration },
    /// The first unvalidated packets were delivered; `last` is the last of them.
    Validating { last: u64 },
    /// The jump was too far: the capacity is measured up to packet `last`.
    SafeRetreat { last: u64 },
    /// There is nothing to resume, or the resumption is over.
    Normal,
}

/// State saved by an earlier session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Bytes in flight.
    pub window_bytes: u64,
    /// Its smallest round trip.
    pub rtt: Duration,
    /// Expiry.
    pub until: Duration,
}

/// A report, as far as Careful Resume uses it.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub now: Duration,
    /// The smallest round trip of this session; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// The newest packet judged, and the next to be sent.
    pub largest: u64,
    pub next: u64,
    /// Bytes that this report confirms as delivered.
    pub delivered_bytes: u64,
    /// `true` if the report shows congestion.
    pub congested: bool,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// The window, whether it limits sending, and its initial size.
    pub window_bytes: u64,
    pub limited: bool,
    pub initial_bytes: u64,
}

/// Action for the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Work as usual.
    Normal,
    /// Keep the window.
    Hold,
    /// Set the window.
    Window(u64),
    /// Set the window and end slow start, because the jump was too far.
    Retreat(u64),
    /// Set the window and the threshold to the capacity that the path has shown.
    Settle(u64),
}

/// Careful Resume of one path.
#[derive(Debug, Clone)]
pub struct Resume {
    saved: Option<Saved>,
    phase: Phase,
    /// Bytes delivered until the path is confirmed; afterwards the capacity shown.
    pipe_bytes: u64,
}

impl Resume {
    pub fn new(saved: Option<Saved>) -> Self {
        let phase = if saved.is_some() { Phase::Reconnaissance } else { Phase::Normal };
        Self { saved, phase, pipe_bytes: 0 }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Handles a report.
    pub fn reported(&mut self, seen: &Report) -> Step {
        match self.phase {
            Phase::Normal => Step::Normal,
            Phase::Reconnaissance => self.reconnoitre(seen),
            Phase::Unvalidated { first, since } => self.check_first(first, since, seen),
            Phase::Validating { last } => self.validate(last, seen),
            Phase::SafeRetreat { last } => {
                self.pipe_bytes += seen.delivered_bytes;
                if seen.largest < last {
                    return Step::Hold;
                }
                self.phase = Phase::Normal;
                Step::Settle(self.pipe_bytes)
            }
        }
    }

    /// Ends the resumption after a long time without deliveries, because the path has changed.
    pub fn give_up(&mut self) {
        self.phase = Phase::Normal;
        self.saved = None;
    }

    fn reconnoitre(&mut self, seen: &Report) -> Step {
        self.pipe_bytes += seen.delivered_bytes;
        let Some(saved) = self.saved else { return self.normal() };
        let jump_bytes = saved.window_bytes / JUMP_PART;
        if seen.congested || seen.now > saved.until || seen.window_bytes >= jump_bytes {
            return self.normal();
        }
        if seen.rtt.is_some_and(|rtt| !is_same_path(saved.rtt, rtt)) {
            return self.normal();
        }
        // The initial window was delivered, and more data waits.
        if seen.rtt.is_none() || self.pipe_bytes < seen.initial_bytes || !seen.limited {
            return Step::Normal;
        }
        self.phase = Phase::Unvalidated { first: seen.next, since: seen.now };
        self.pipe_bytes = seen.in_flight;
        Step::Window(jump_bytes)
    }

    fn check_first(&mut self, first: u64, since: Duration, seen: &Report) -> Step {
        self.pipe_bytes += seen.delivered_bytes;
        if seen.congested {
            return self.retreat(seen.next.saturating_sub(1), seen);
        }
        let round_trip_over = seen.rtt.is_some_and(|rtt| seen.now >= since + rtt);
        if seen.largest < first && !round_trip_over {
            return Step::Hold;
        }
        if seen.in_flight <= self.pipe_bytes {
            // Too little was sent to try more than was delivered.
            self.phase = Phase::Normal;
            return Step::Window(self.pipe_bytes);
        }
        self.phase = Phase::Validating { last: seen.next.saturating_sub(1) };
        Step::Window(seen.in_flight)
    }

    fn validate(&mut self, last: u64, seen: &Report) -> Step {
        self.pipe_bytes += seen.delivered_bytes;
        if seen.congested {
            return self.retreat(last, seen);
        }
        if seen.largest >= last {
            self.phase = Phase::Normal;
        }
        Step::Normal
    }

    fn retreat(&mut self, last: u64, seen: &Report) -> Step {
        self.saved = None;
        self.phase = Phase::SafeRetreat { last };
        Step::Retreat((self.pipe_bytes / 2).max(seen.initial_bytes))
    }

    fn normal(&mut self) -> Step {
        self.give_up();
        Step::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const SAVED: Saved = Saved { window_bytes: 800_000, rtt: RTT, until: Duration::from_secs(900) };

    /// Returns a report after which the initial window is delivered and the next is full.
    fn confirmed() -> Report {
        Report {
            now: Duration::from_secs(1),
            rtt: Some(RTT),
            largest: 9,
            next: 30,
            delivered_bytes: 10_000,
            congested: false,
            in_flight: 20_000,
            window_bytes: 20_000,
            limited: true,
            initial_bytes: 10_000,
        }
    }

    fn jumped() -> Resume {
        let mut resume = Resume::new(Some(SAVED));
        assert_eq!(resume.reported(&confirmed()), Step::Window(400_000));
        let since = Duration::from_secs(1);
        assert_eq!(resume.phase(), Phase::Unvalidated { first: 30, since });
        resume
    }

    /// Returns a report within the jump.
    fn within(largest: u64, next: u64, delivered_bytes: u64, in_flight: u64) -> Report {
        let now = Duration::from_millis(1500);
        Report { now, largest, next, delivered_bytes, in_flight, ..confirmed() }
    }

    #[test]
    fn without_saved_state_all_is_normal() {
        assert_eq!(Resume::new(None).phase(), Phase::Normal);
        assert_eq!(Resume::new(None).reported(&confirmed()), Step::Normal);
    }

    #[test]
    fn reconnaissance_waits_for_the_initial_window_and_for_data() {
        let mut resume = Resume::new(Some(SAVED));
        for waits in [
            Report { delivered_bytes: 1000, ..confirmed() },
            Report { limited: false, delivered_bytes: 0, ..confirmed() },
            Report { rtt: None, delivered_bytes: 0, ..confirmed() },
        ] {
            assert_eq!(resume.reported(&waits), Step::Normal);
            assert_eq!(resume.phase(), Phase::Reconnaissance);
        }
        assert_eq!(resume.reported(&confirmed()), Step::Window(400_000));
    }

    #[test]
    fn another_path_congestion_age_or_no_gain_end_the_resumption() {
        for ends in [
            Report { rtt: Some(RTT / 2), ..confirmed() },
            Report { rtt: Some(RTT * 10), ..confirmed() },
            Report { congested: true, ..confirmed() },
            Report { now: Duration::from_secs(901), ..confirmed() },
            Report { window_bytes: 400_000, ..confirmed() },
        ] {
            let mut resume = Resume::new(Some(SAVED));
            assert_eq!(resume.reported(&ends), Step::Normal);
            assert_eq!(resume.phase(), Phase::Normal);
        }
    }

    #[test]
    fn a_delivered_jump_is_validated() {
        let mut resume = jumped();
        assert_eq!(resume.reported(&within(20, 200, 10_000, 190_000)), Step::Hold);
        let first = within(31, 420, 11_000, 389_000);
        assert_eq!(resume.reported(&first), Step::Window(389_000));
        assert_eq!(resume.phase(), Phase::Validating { last: 419 });
        assert_eq!(resume.reported(&within(300, 700, 269_000, 400_000)), Step::Normal);
        assert_eq!(resume.phase(), Phase::Validating { last: 419 });
        assert_eq!(resume.reported(&within(419, 900, 119_000, 400_000)), Step::Normal);
        assert_eq!(resume.phase(), Phase::Normal);
    }

    #[test]
    fn an_unused_jump_is_not_kept() {
        let mut resume = jumped();
        assert_eq!(resume.reported(&within(31, 35, 22_000, 5_000)), Step::Window(42_000));
        assert_eq!(resume.phase(), Phase::Normal);
    }

    #[test]
    fn a_jump_too_far_retreats_to_half_of_what_was_delivered_and_settles_on_it() {
        let mut resume = jumped();
        let lost = Report { congested: true, ..within(31, 420, 11_000, 389_000) };
        assert_eq!(resume.reported(&lost), Step::Retreat(15_500));
        assert_eq!(resume.phase(), Phase::SafeRetreat { last: 419 });
        let more = Report { congested: true, ..within(300, 430, 100_000, 120_000) };
        assert_eq!(resume.reported(&more), Step::Hold, "one retreat is enough");
        assert_eq!(resume.reported(&within(419, 440, 50_000, 20_000)), Step::Settle(181_000));
        assert_eq!(resume.phase(), Phase::Normal);
    }

    #[test]
    fn congestion_while_validating_retreats_too() {
        let mut resume = jumped();
        resume.reported(&within(31, 420, 11_000, 389_000));
        let lost = Report { congested: true, ..within(300, 700, 200_000, 400_000) };
        assert_eq!(resume.reported(&lost), Step::Retreat(115_500));
        assert_eq!(resume.phase(), Phase::SafeRetreat { last: 419 });
    }
}
