//! The preferred egress of a site, and when another takes its place.

use std::time::Duration;

use crate::{Estimate, Source};

/// Dials after which the time of an egress to a site is known.
pub const KNOWN_DIALS: usize = 3;
/// Another egress has to be better by this, and by [`MIN_GAIN_PART`] of the time.
const MIN_GAIN: Duration = Duration::from_millis(10);
const MIN_GAIN_PART: f64 = 0.15;
/// It has to be better for so many dials of the site, or for this time.
const PROOF_DIALS: usize = 3;
const PROOF_TIME: Duration = Duration::from_secs(60);

/// The preferred egress of a site.
#[derive(Debug, Clone, Copy)]
pub struct Favourite {
    egress: usize,
    rival: Option<Rival>,
}

/// An egress that is better at present.
#[derive(Debug, Clone, Copy)]
struct Rival {
    egress: usize,
    since: Duration,
    dials: usize,
}

impl Favourite {
    /// Begins with `egress`.
    pub fn new(egress: usize) -> Self {
        Self { egress, rival: None }
    }

    /// The preferred egress.
    pub fn egress(&self) -> usize {
        self.egress
    }

    /// Takes `estimates` into account. `dialled` is the egress whose dial has just changed them, if one
    /// has.
    pub fn review(&mut self, estimates: &[Estimate], dialled: Option<usize>, now: Duration) {
        let known =
            |it: &Estimate| matches!(it.source, Source::Dials(dials) if dials >= KNOWN_DIALS);
        let own = estimates.iter().find(|it| it.egress == self.egress);
        let reaches = |it: &&Estimate| known(it) && !it.fails;
        let best = estimates.iter().filter(reaches).min_by_key(|it| it.total());
        let (Some(own), Some(best)) = (own, best) else { return };
        if best.total() >= own.total() {
            self.rival = None;
            return;
        }
        // The dial that makes a time known decides: before it, nothing was known to keep to.
        let is_new =
            |it: &Estimate| dialled == Some(it.egress) && it.source == Source::Dials(KNOWN_DIALS);
        if known(own) && (is_new(own) || is_new(best)) {
            *self = Self::new(best.egress);
            return;
        }
        let least = MIN_GAIN.max(own.total().mul_f64(MIN_GAIN_PART));
        if own.total() - best.total() < least {
            self.rival = None;
            return;
        }
        let rival = match self.rival {
            Some(rival) if rival.egress == best.egress => rival,
            _ => Rival { egress: best.egress, since: now, dials: 0 },
        };
        let dials = rival.dials + usize::from(dialled.is_some());
        if dials >= PROOF_DIALS || now.saturating_sub(rival.since) >= PROOF_TIME {
            *self = Self::new(best.egress);
        } else {
            self.rival = Some(Rival { dials, ..rival });
        }
    }
}
