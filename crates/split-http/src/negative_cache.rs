//! Requests that are suppressed for a while because the ground gateway would refuse them. Each refusal
//! costs the page a round trip.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_prefetch::address::Origin;
use bentpipe_prefetch::wire::Refusal;
use tokio::time::Instant;

/// Time without such requests after the ground gateway reports that it serves no pages, no
/// conditional pages, or none of an origin. Its configuration or version may change meanwhile.
pub const UNSERVED_FOR: Duration = Duration::from_secs(600);

/// Pause after a busy ground gateway refuses a page: the duration of a typical page.
pub const BUSY_FOR: Duration = Duration::from_secs(5);

/// Maximum number of refused origins: 1,024 × at most 350 bytes = 350 KiB. Beyond that, the oldest
/// is forgotten and requested again.
pub const MAX_ORIGINS: usize = 1024;

/// Maximum number of passengers whose pages are paused. The gateway distinguishes no more.
const MAX_BUSY: usize = 4096;

/// Suppressed requests.
#[derive(Debug, Default)]
pub struct NegativeCache {
    all_until: Option<Instant>,
    /// End of the pause of each passenger whose page a busy ground gateway refused.
    busy: BTreeMap<Arc<str>, Instant>,
    conditions_until: Option<Instant>,
    /// `true` if the missing support for conditions has been logged.
    is_logged: bool,
    /// End of the suppression for each origin.
    origins: BTreeMap<Origin, Instant>,
}

impl NegativeCache {
    /// Returns `true` if the ground gateway may serve a page of `origin` to a passenger, requested
    /// with a condition or without.
    pub fn may_ask(
        &self,
        (origin, passenger): (&Origin, &Arc<str>),
        is_conditional: bool,
        now: Instant,
    ) -> bool {
        let is_over = |until: Option<&Instant>| until.is_none_or(|until| *until <= now);
        is_over(self.all_until.as_ref())
            && is_over(self.busy.get(passenger))
            && is_over(self.origins.get(origin))
            && (!is_conditional || is_over(self.conditions_until.as_ref()))
    }

    /// Records that the ground gateway serves no pages.
    pub fn unserved(&mut self, now: Instant) {
        self.all_until = Some(now + UNSERVED_FOR);
    }

    /// Records that the ground gateway refused a passenger a page of `origin`.
    pub fn refused(
        &mut self,
        (origin, passenger): (&Origin, &Arc<str>),
        why: Refusal,
        now: Instant,
    ) {
        match why {
            Refusal::Busy => {
                self.busy.retain(|_, until| *until > now);
                if self.busy.len() < MAX_BUSY {
                    self.busy.insert(passenger.clone(), now + BUSY_FOR);
                }
            }
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

    /// Records that the ground gateway broke off a conditional request. Returns `true` if this
    /// should be logged: once, until a conditional request succeeds.
    pub fn conditions_unknown(&mut self, now: Instant) -> bool {
        self.conditions_until = Some(now + UNSERVED_FOR);
        !std::mem::replace(&mut self.is_logged, true)
    }

    /// Records that the ground gateway answered a conditional request.
    pub fn conditions_known(&mut self) {
        (self.conditions_until, self.is_logged) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: usize) -> Origin {
        Origin { is_secure: false, host: format!("{number}.test"), port: 80 }
    }

    fn alice() -> Arc<str> {
        "alice".into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_ground_pauses_the_pages_of_whoever_it_refused() {
        let (mut negative_cache, now) = (NegativeCache::default(), Instant::now());
        let bob = "bob".into();
        negative_cache.refused((&origin(1), &alice()), Refusal::Busy, now);
        assert!(!negative_cache.may_ask((&origin(2), &alice()), false, now));
        assert!(negative_cache.may_ask((&origin(1), &bob), false, now));
        for passenger in 0..MAX_BUSY + 1 {
            let passenger = passenger.to_string().into();
            negative_cache.refused((&origin(1), &passenger), Refusal::Busy, now);
        }
        assert_eq!(negative_cache.busy.len(), MAX_BUSY);
        negative_cache.refused((&origin(1), &bob), Refusal::Busy, now + BUSY_FOR);
        assert_eq!(negative_cache.busy.len(), 1, "what is over takes no room");
    }

    #[tokio::test(start_paused = true)]
    async fn each_refusal_holds_for_what_it_was_of_and_for_its_time() {
        let (mut negative_cache, now) = (NegativeCache::default(), Instant::now());
        let secure = Origin { is_secure: true, port: 443, ..origin(1) };
        negative_cache.refused((&origin(1), &alice()), Refusal::Name, now);
        assert!(!negative_cache.may_ask((&origin(1), &alice()), false, now));
        assert!(
            negative_cache.may_ask((&secure, &alice()), false, now)
                && negative_cache.may_ask((&origin(2), &alice()), false, now)
        );
        assert!(negative_cache.may_ask((&origin(1), &alice()), false, now + UNSERVED_FOR));

        negative_cache.refused((&origin(2), &alice()), Refusal::Busy, now);
        assert!(!negative_cache.may_ask((&origin(3), &alice()), false, now));
        assert!(negative_cache.may_ask((&origin(2), &alice()), true, now + BUSY_FOR));

        assert!(
            negative_cache.conditions_unknown(now) && !negative_cache.conditions_unknown(now),
            "told once"
        );
        let then = now + BUSY_FOR;
        assert!(
            !negative_cache.may_ask((&origin(2), &alice()), true, then)
                && negative_cache.may_ask((&origin(2), &alice()), false, then)
        );
        assert!(negative_cache.may_ask((&origin(2), &alice()), true, now + UNSERVED_FOR));
        negative_cache.conditions_known();
        assert!(
            negative_cache.may_ask((&origin(2), &alice()), true, then)
                && negative_cache.conditions_unknown(now)
        );

        negative_cache.unserved(now);
        negative_cache.refused((&origin(2), &alice()), Refusal::Busy, now);
        assert!(!negative_cache.may_ask(
            (&origin(3), &alice()),
            false,
            now + UNSERVED_FOR - BUSY_FOR
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_origins_are_remembered() {
        let (mut negative_cache, now) = (NegativeCache::default(), Instant::now());
        for number in 0..MAX_ORIGINS + 1 {
            let at = now + Duration::from_millis(number as u64);
            negative_cache.refused((&origin(number), &alice()), Refusal::Name, at);
        }
        let last = now + Duration::from_secs(2);
        assert!(negative_cache.may_ask((&origin(0), &alice()), false, last));
        assert!(!negative_cache.may_ask((&origin(1), &alice()), false, last));
        negative_cache.refused((&origin(0), &alice()), Refusal::Name, now + 2 * UNSERVED_FOR);
        assert_eq!(negative_cache.origins.len(), 1, "what is over takes no room");
    }
}
