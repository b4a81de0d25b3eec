//! Idle time of a flow while its link was up.

use std::time::Duration;

use tokio::time::Instant;

use crate::Standing;

/// Maximum outage time that is excluded from one idle limit. If the link stays down, a flow ends
/// this much later than its limit.
pub const MAX_FORGIVEN: Duration = Duration::from_secs(3600);

/// Length of an outage after which new flows are refused at once, and flows that wait for their
/// opening are too. Most fades are shorter.
pub const OUTAGE_LASTS: Duration = Duration::from_secs(20);

/// Minimum time between two checks of a flow's state, because each check takes the lock of its
/// session.
const MIN_LOOK_GAP: Duration = Duration::from_secs(1);

/// Idle time of a flow. It excludes outages of the link, and the time in which written bytes are
/// still being sent.
#[derive(Debug)]
pub struct Stillness {
    since: Instant,
    /// `true` if data has moved since the latest check.
    has_moved: bool,
    looked_at: Option<Instant>,
    /// Outage time at the latest check, and at the last check before the flow became idle.
    unheard: (Duration, Duration),
    unsent_bytes: usize,
    forgiven: Duration,
}

impl Stillness {
    /// Starts the idle time `now`, for a flow in this state.
    pub fn new(standing: Standing, now: Instant) -> Self {
        Self {
            since: now,
            has_moved: true,
            looked_at: None,
            unheard: (standing.unheard, standing.unheard),
            unsent_bytes: 0,
            forgiven: Duration::ZERO,
        }
    }

    /// Records that data has moved `now`.
    pub fn moved(&mut self, now: Instant) {
        (self.since, self.has_moved) = (now, true);
        (self.unsent_bytes, self.forgiven) = (0, Duration::ZERO);
    }

    /// Records the state of the flow `now`.
    pub fn look(&mut self, standing: Standing, now: Instant) {
        self.looked_at = Some(now);
        if standing.unsent_bytes != self.unsent_bytes {
            self.moved(now);
            self.unsent_bytes = standing.unsent_bytes;
        }
        if std::mem::take(&mut self.has_moved) {
            self.unheard.1 = self.unheard.0;
        }
        self.unheard.0 = standing.unheard;
        let outages = standing.unheard.saturating_sub(self.unheard.1);
        // The check before the idle time may have been long before it.
        let silent = now.saturating_duration_since(self.since);
        self.forgiven = outages.min(silent).min(MAX_FORGIVEN);
    }

    /// Returns the end of an idle time of `limit`, according to the checks so far.
    pub fn over_at(&self, limit: Duration) -> Instant {
        self.since + limit + self.forgiven
    }

    /// Returns the time of the next check that `limit` needs.
    pub fn look_at(&self, limit: Duration) -> Instant {
        let over_at = self.over_at(limit);
        self.looked_at.map_or(over_at, |looked_at| over_at.max(looked_at + MIN_LOOK_GAP))
    }
}

/// Wait of a new flow for the peer's acknowledgement of its opening. A flow that waits when an
/// outage reaches [`OUTAGE_LASTS`] is refused, like new flows from then on.
#[derive(Debug)]
pub struct Opening {
    /// Time of the next check; `None` once the peer knows the flow.
    look_at: Option<Instant>,
}

impl Opening {
    /// Starts the wait `now`, for a flow in this state.
    pub fn new(standing: Standing, now: Instant) -> Self {
        let mut opening = Self { look_at: None };
        opening.look(standing, now);
        opening
    }

    /// Time of the next check, if one is needed.
    pub fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Returns `true` if the flow must be refused in its state `now`.
    pub fn look(&mut self, standing: Standing, now: Instant) -> bool {
        let left = standing.unopened.map(|outage| OUTAGE_LASTS.saturating_sub(outage));
        self.look_at = left.map(|left| now + left.max(MIN_LOOK_GAP));
        left == Some(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flow_that_waits_for_its_opening_is_refused_after_twenty_seconds_of_outage() {
        // Second of the flow, begin of the outage, acknowledgement; end.
        for (at, outage, opened, end) in [
            (0, 0, u64::MAX, Some(20)),
            (10, 0, u64::MAX, Some(20)),
            (0, 10, u64::MAX, Some(30)),
            (0, 10, 5, None),
            (19, 0, u64::MAX, Some(20)),
            (30, 0, u64::MAX, Some(31)),
            (0, 100, u64::MAX, Some(120)),
        ] {
            let began = Instant::now();
            let standing = |now: Instant| {
                let second = (now - began).as_secs();
                let unopened = (second < opened).then(|| seconds(second.saturating_sub(outage)));
                Standing { unopened, ..Standing::default() }
            };
            let now = began + seconds(at);
            let mut opening = Opening::new(standing(now), now);
            let mut ended = None;
            while let Some(now) = opening.look_at().filter(|_| ended.is_none()) {
                ended = opening.look(standing(now), now).then(|| (now - began).as_secs());
            }
            assert_eq!(ended, end, "{at}, {outage}, {opened}");
        }
    }

    const LIMIT: Duration = Duration::from_secs(180);

    fn new(began: Instant) -> Stillness {
        Stillness::new(Standing::default(), began)
    }

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    /// Checks like a timer until the idle time is over; returns that second, and the number of
    /// checks.
    fn over(
        still: &mut Stillness,
        began: Instant,
        standing: impl Fn(u64) -> Standing,
    ) -> (u64, u32) {
        for looks in 1.. {
            let now = still.look_at(LIMIT);
            still.look(standing((now - began).as_secs()), now);
            if still.over_at(LIMIT) <= now {
                return ((now - began).as_secs(), looks);
            }
        }
        unreachable!()
    }

    /// An outage from second `from` to second `to`.
    fn outage(from: u64, to: u64) -> impl Fn(u64) -> Standing {
        move |at| Standing { unheard: seconds(at.clamp(from, to) - from), ..Standing::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn outages_do_not_count_as_idle_time() {
        for ((from, to), end) in
            [((0, 0), 180), ((10, 610), 780), ((0, 100), 280), ((179, 779), 780), ((200, 900), 180)]
        {
            let began = Instant::now();
            let (second, looks) = over(&mut new(began), began, outage(from, to));
            assert_eq!(second, end, "{from}..{to}");
            assert!(looks <= 603, "{looks}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_before_the_last_bytes_is_not_counted_twice() {
        let began = Instant::now();
        let mut still = new(began);
        still.look(outage(0, 100)(0), began);
        // The link was up when data moved, 20 s before this check.
        still.moved(began + seconds(200));
        still.look(outage(0, 100)(220), began + seconds(220));
        assert!(still.over_at(LIMIT) <= began + seconds(220) + LIMIT);
        still.moved(began + seconds(300));
        still.look(outage(0, 100)(400), began + seconds(400));
        assert_eq!(still.over_at(LIMIT), began + seconds(300) + LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_before_the_flow_began_is_not_counted() {
        let began = Instant::now();
        let before = Standing { unheard: seconds(500), ..Standing::default() };
        let (second, _) = over(&mut Stillness::new(before, began), began, |_| before);
        assert_eq!(second, LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn sending_written_bytes_counts_as_activity() {
        let began = Instant::now();
        let leaving = |at| Standing {
            unheard: Duration::ZERO,
            unsent_bytes: 100_000_usize.saturating_sub(100 * at as usize),
            unopened: None,
        };
        let (second, _) = over(&mut new(began), began, leaving);
        assert!((1000..=1000 + 2 * LIMIT.as_secs()).contains(&second), "{second}");
        // Bytes that the peer never accepts do not count as activity.
        let stuck = |_| Standing { unsent_bytes: 7, ..Standing::default() };
        let began = Instant::now();
        assert_eq!(over(&mut new(began), began, stuck).0, 2 * LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_outage_ends_the_flow() {
        let began = Instant::now();
        let (second, _) = over(&mut new(began), began, outage(0, u64::MAX));
        assert_eq!(second, (LIMIT + MAX_FORGIVEN).as_secs());
    }
}
