//! Requests that the ground is spared for a while, because it would refuse them: each costs a page
//! a round trip.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_prefetch::address::Origin;
use bentpipe_prefetch::wire::Refusal;
use tokio::time::Instant;

/// Time for which a ground that serves no pages, or none with a condition, is not asked for such;
/// and the same for an origin of which it serves none. Its configuration or version may change
/// meanwhile.
pub const UNSERVED_FOR: Duration = Duration::from_secs(600);

/// Time for which a busy ground is not asked: as long as a usual page takes.
pub const BUSY_FOR: Duration = Duration::from_secs(5);

/// Origins that are remembered: at 350 bytes at most, 350 KiB. Beyond it the oldest is asked for again.
pub const MAX_ORIGINS: usize = 1024;

/// Requests that are not made.
#[derive(Debug, Default)]
pub struct Unasked {
    all_until: Option<Instant>,
    conditions_until: Option<Instant>,
    /// `true` once the log has told that the ground knows no conditions.
    is_told: bool,
    /// Until when, of each.
    origins: BTreeMap<Origin, Instant>,
}

impl Unasked {
    /// Returns `true` if the ground may give a page of `origin`, requested with a condition or not.
    pub fn may_ask(&self, origin: &Origin, is_conditional: bool, now: Instant) -> bool {
        let is_over = |until: Option<&Instant>| until.is_none_or(|until| *until <= now);
        is_over(self.all_until.as_ref())
            && is_over(self.origins.get(origin))
            && (!is_conditional || is_over(self.conditions_until.as_ref()))
    }

    /// The ground serves no pages.
    pub fn unserved(&mut self, now: Instant) {
        self.all_until = Some(now + UNSERVED_FOR);
    }

    /// The ground has refused a page of `origin`.
    pub fn refused(&mut self, origin: &Origin, why: Refusal, now: Instant) {
        match why {
            Refusal::Busy => self.all_until = self.all_until.max(Some(now + BUSY_FOR)),
            Refusal::Name => {
                self.origins.retain(|_, until| *until > now);
                let oldest = self.origins.iter().min_by_key(|(_, until)| **until);
                if self.origins.len() >= MAX_ORIGINS
                    && let Some(oldest) = oldest.map(|(origin, _)| origin.clone())
                {
                    self.origins.remove(&oldest);
                }
                self.origins.insert(origin.clone(), now + UNSERVED_FOR);
            }
        }
    }

    /// The ground has broken off at a condition. Says whether the log should tell: once, until it knows one.
    pub fn conditions_unknown(&mut self, now: Instant) -> bool {
        self.conditions_until = Some(now + UNSERVED_FOR);
        !std::mem::replace(&mut self.is_told, true)
    }

    /// The ground has answered a request with a condition.
    pub fn conditions_known(&mut self) {
        (self.conditions_until, self.is_told) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: usize) -> Origin {
        Origin { is_secure: false, host: format!("{number}.test"), port: 80 }
    }

    #[tokio::test(start_paused = true)]
    async fn each_refusal_holds_for_what_it_was_of_and_for_its_time() {
        let (mut unasked, now) = (Unasked::default(), Instant::now());
        let secure = Origin { is_secure: true, port: 443, ..origin(1) };
        unasked.refused(&origin(1), Refusal::Name, now);
        assert!(!unasked.may_ask(&origin(1), false, now));
        assert!(unasked.may_ask(&secure, false, now) && unasked.may_ask(&origin(2), false, now));
        assert!(unasked.may_ask(&origin(1), false, now + UNSERVED_FOR));

        unasked.refused(&origin(2), Refusal::Busy, now);
        assert!(!unasked.may_ask(&origin(3), false, now));
        assert!(unasked.may_ask(&origin(2), true, now + BUSY_FOR));

        assert!(unasked.conditions_unknown(now) && !unasked.conditions_unknown(now), "told once");
        let then = now + BUSY_FOR;
        assert!(
            !unasked.may_ask(&origin(2), true, then) && unasked.may_ask(&origin(2), false, then)
        );
        assert!(unasked.may_ask(&origin(2), true, now + UNSERVED_FOR));
        unasked.conditions_known();
        assert!(unasked.may_ask(&origin(2), true, then) && unasked.conditions_unknown(now));

        unasked.unserved(now);
        unasked.refused(&origin(2), Refusal::Busy, now);
        assert!(!unasked.may_ask(&origin(3), false, now + UNSERVED_FOR - BUSY_FOR));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_origins_are_remembered() {
        let (mut unasked, now) = (Unasked::default(), Instant::now());
        for number in 0..MAX_ORIGINS + 1 {
            let at = now + Duration::from_millis(number as u64);
            unasked.refused(&origin(number), Refusal::Name, at);
        }
        let last = now + Duration::from_secs(2);
        assert!(unasked.may_ask(&origin(0), false, last));
        assert!(!unasked.may_ask(&origin(1), false, last));
        unasked.refused(&origin(0), Refusal::Name, now + 2 * UNSERVED_FOR);
        assert_eq!(unasked.origins.len(), 1, "what is over takes no room");
    }
}
