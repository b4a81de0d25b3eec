//! The knowledge of a hub about its egresses, and the choice.

use std::time::Duration;

use crate::favourite::{Favourite, KNOWN_DIALS};
use crate::owned::Owned;
use crate::times::{Mean, Recent};
use crate::{Aircraft, Estimate, Leg, Place, Site, Source};

/// Maximum number of sites whose times are kept.
pub const MAX_SITES: usize = 16_384;
/// Maximum number of pins: passengers at sites.
pub const MAX_PINS: usize = 65_536;
/// A passenger keeps the egress at a site until no flow was opened or ended there for this time. Sites
/// tie logins to addresses.
pub const PIN_IDLE: Duration = Duration::from_secs(15 * 60);
/// Part of new pins that try another egress.
const EXPLORED: f64 = 0.02;
/// Loss of a leg from which on it counts. By Mathis' formula the rate of a flow falls with the root of
/// the loss, as it does with the round-trip time.
const LEAST_LOSS: f64 = 0.01;

/// Question for an egress.
pub struct Asked<'a> {
    /// The passenger: the aircraft's key, and a number there.
    pub who: (Aircraft, u32),
    /// Its destination.
    pub site: &'a Site,
    /// Place of the destination, if a table has it.
    pub place: Option<Place>,
    /// Time since any epoch.
    pub now: Duration,
    /// A random number from 0 to 1.
    pub random: f64,
}

/// A hub's egresses, their times, and its passengers' pins.
pub struct Choice {
    egresses: Vec<Known>,
    /// Sites with an egress that the operator has chosen.
    fixed: Vec<(Site, usize)>,
    sites: Owned<Site, Times>,
    pins: Owned<Pin, Pinned>,
}

/// An egress.
#[derive(Default)]
struct Known {
    leg: Option<Leg>,
    place: Option<Place>,
    mean: Mean,
}

/// Dials to a site, by egress.
#[derive(Default)]
struct Times {
    dials: Vec<Recent>,
    place: Option<Place>,
    favourite: Option<Favourite>,
}

type Pin = (Aircraft, u32, Site);

struct Pinned {
    egress: usize,
    used_at: Duration,
}

impl Choice {
    /// Chooses among so many egresses. If nothing tells them apart, the first is preferred.
    pub fn new(egresses: usize) -> Self {
        let egresses = (0..egresses).map(|_| Known::default()).collect();
        Self {
            egresses,
            fixed: Vec::new(),
            sites: Owned::new(MAX_SITES),
            pins: Owned::new(MAX_PINS),
        }
    }

    /// Gives a site to an egress whenever that is up, whatever the times are. The first one counts.
    pub fn fix(&mut self, site: Site, egress: usize) {
        self.fixed.push((site, egress));
    }

    /// Says where an egress is.
    pub fn set_place(&mut self, egress: usize, place: Place) {
        self.egresses[egress].place = Some(place);
    }

    /// Says what the path to an egress is like.
    pub fn set_leg(&mut self, egress: usize, leg: Leg) {
        self.egresses[egress].leg = Some(leg);
    }

    /// Adds a dial of `egress` to a site that was asked for. It took `took`; `None` if nothing answered.
    pub fn dialled(&mut self, egress: usize, site: &Site, took: Option<Duration>, now: Duration) {
        if let Some(took) = took {
            self.egresses[egress].mean.add(took);
        }
        let Some(times) = self.sites.touch(site) else { return };
        if times.dials.len() <= egress {
            times.dials.resize(egress + 1, Recent::default());
        }
        times.dials[egress].add(took);
        let Some(mut favourite) = times.favourite else { return };
        let estimates = self.estimates(site, |_| true);
        favourite.review(&estimates, Some(egress), now);
        if let Some(times) = self.sites.touch(site) {
            times.favourite = Some(favourite);
        }
    }

    /// Chooses among the egresses that are up; `None` if there are none.
    pub fn choose(&mut self, asked: &Asked<'_>, is_up: impl Fn(usize) -> bool) -> Option<usize> {
        let Asked { who: (aircraft, passenger), site, now, .. } = *asked;
        if let Some(fixed) = self.fixed(site).filter(|egress| is_up(*egress)) {
            return Some(fixed);
        }
        let pin = (aircraft, passenger, site.clone());
        let fails = |egress| self.sites.get(site).is_some_and(|it| it.fails(egress));
        if let Some(pinned) = self.pins.touch(&pin)
            && now.saturating_sub(pinned.used_at) < PIN_IDLE
            && is_up(pinned.egress)
            && !fails(pinned.egress)
        {
            pinned.used_at = now;
            return Some(pinned.egress);
        }
        let egress = self.choose_unpinned(asked, is_up)?;
        let pinned = self.pins.obtain(&pin, aircraft, || Pinned { egress, used_at: now });
        *pinned = Pinned { egress, used_at: now };
        Some(egress)
    }

    /// Notes the end of a passenger's flow to a site.
    pub fn ended(&mut self, (aircraft, passenger): (Aircraft, u32), site: &Site, now: Duration) {
        if let Some(pinned) = self.pins.touch(&(aircraft, passenger, site.clone())) {
            pinned.used_at = now;
        }
    }

    /// Estimates for a site, of the egresses that are up.
    pub fn estimates(&self, site: &Site, is_up: impl Fn(usize) -> bool) -> Vec<Estimate> {
        let times = self.sites.get(site);
        let known = self.egresses.iter().filter_map(|it| it.mean.get());
        let dialling = self.egresses.iter().filter(|it| it.mean.get().is_some()).count();
        let usual = known.sum::<Duration>().checked_div(dialling as u32).unwrap_or_default();
        let of = |(number, egress): (usize, &Known)| {
            let recent = times.and_then(|it| it.dials.get(number)).copied().unwrap_or_default();
            let place = times.and_then(|it| it.place);
            let distance = || Some(egress.place?.rtt(&place?));
            let (dial, source) = match (recent.typical(), distance()) {
                (Some(typical), _) => (typical, Source::Dials(recent.len())),
                (None, Some(rtt)) => (rtt, Source::Distance),
                (None, None) => (egress.mean.get().unwrap_or(usual), Source::Mean),
            };
            Estimate { egress: number, leg: egress.leg(), dial, source, fails: recent.fails() }
        };
        let all = self.egresses.iter().enumerate().filter(|(number, _)| is_up(*number));
        all.map(of).collect()
    }

    /// The egress that passengers without a pin get at a site, of those that are up.
    pub fn expected(&self, site: &Site, is_up: impl Fn(usize) -> bool) -> Option<usize> {
        let fixed = self.fixed(site).filter(|egress| is_up(*egress));
        let favourite = self.sites.get(site).and_then(|it| it.favourite).map(|it| it.egress());
        let best = || Some(self.estimates(site, &is_up).iter().min_by_key(|it| it.total())?.egress);
        fixed.or(favourite.filter(|egress| is_up(*egress))).or_else(best)
    }

    /// The egress that the operator has chosen for a site.
    pub fn fixed(&self, site: &Site) -> Option<usize> {
        self.fixed.iter().find(|(fixed, _)| fixed.contains(site)).map(|(_, egress)| *egress)
    }

    fn choose_unpinned(
        &mut self,
        asked: &Asked<'_>,
        is_up: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let times = self.sites.obtain(asked.site, asked.who.0, Times::default);
        times.place = asked.place.or(times.place);
        let favourite = times.favourite;
        let estimates = self.estimates(asked.site, &is_up);
        let best = estimates.iter().min_by_key(|it| it.total())?;
        let favourite = match favourite {
            None => Favourite::new(best.egress),
            Some(mut favourite) => {
                favourite.review(&estimates, None, asked.now);
                favourite
            }
        };
        self.sites.touch(asked.site)?.favourite = Some(favourite);
        let usual = estimates.iter().find(|it| it.egress == favourite.egress()).unwrap_or(best);
        let tries = usual.fails || asked.random < EXPLORED;
        let explored = tries.then(|| unknown(&estimates, usual)).flatten();
        Some(explored.unwrap_or(usual.egress))
    }
}

impl Times {
    fn fails(&self, egress: usize) -> bool {
        self.dials.get(egress).is_some_and(Recent::fails)
    }
}

impl Known {
    fn leg(&self) -> Duration {
        let Some(leg) = self.leg else { return Duration::ZERO };
        leg.rtt.mul_f64((leg.loss / LEAST_LOSS).clamp(1.0, 100.0).sqrt())
    }
}

/// The egress with the fewest dials of those that may be better than `usual`.
fn unknown(estimates: &[Estimate], usual: &Estimate) -> Option<usize> {
    let dials = |it: &Estimate| match it.source {
        Source::Dials(dials) => dials.min(KNOWN_DIALS),
        Source::Distance | Source::Mean => 0,
    };
    let others = estimates.iter().filter(|it| it.egress != usual.egress);
    // Not even a dial in no time would make the others better.
    let possible = others.filter(|it| it.leg < usual.total() && !it.fails);
    possible.min_by_key(|it| (dials(it), it.total())).map(|it| it.egress)
}
