//! The knowledge of a hub about its egresses, and the choice.

use std::time::Duration;

use crate::favourite::{Favourite, KNOWN_DIALS};
use crate::owned::Owned;
use crate::times::{Mean, Recent};
use crate::{Estimate, Leg, Passenger, Site, Source};

/// Maximum number of sites whose times are kept.
pub const MAX_SITES: usize = 16_384;
/// Maximum number of pins: passengers at sites.
pub const MAX_PINS: usize = 65_536;
/// A passenger keeps the egress at a site until no flow was opened or ended there for this time. Sites
/// tie logins to addresses.
pub const PIN_IDLE: Duration = Duration::from_secs(15 * 60);
/// Ports of HTTP, at which a site is expected to answer.
const WEB_PORTS: [u16; 2] = [80, 443];
/// Number of other ports of a site that are remembered.
const KEPT_PORTS: usize = 4;
/// Part of new pins that try another egress.
const EXPLORED: f64 = 0.02;
/// Loss of a leg from which on it counts. By Mathis' formula the rate of a flow falls with the root of
/// the loss, as it does with the round-trip time.
const MIN_LOSS: f64 = 0.01;

/// A new flow that needs an egress.
pub struct Query<'a> {
    /// The passenger.
    pub who: Passenger,
    /// Its destination.
    pub site: &'a Site,
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
    pins: Owned<(Passenger, Site), Pinned>,
}

/// An egress.
#[derive(Default)]
struct Known {
    leg: Option<Leg>,
    mean: Mean,
}

/// Dials to a site, by egress.
#[derive(Default)]
struct Times {
    dials: Vec<Recent>,
    favourite: Option<Favourite>,
    ports: Ports,
}

/// The last ports of a site that have answered.
#[derive(Default)]
struct Ports([Option<u16>; KEPT_PORTS]);

/// A passenger's egress at a site.
struct Pinned {
    egress: usize,
    used_at: Duration,
    /// Open flows.
    flows: u32,
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

    /// Sets the state of the path to an egress.
    pub fn set_leg(&mut self, egress: usize, leg: Leg) {
        self.egresses[egress].leg = Some(leg);
    }

    /// Adds a dial of `egress` to a requested port of a site. It took `took`; `None` if nothing
    /// answered. A failure counts only at a web port, and at one that has answered before: a passenger who
    /// tries closed ports moves nobody.
    pub fn dialled(
        &mut self,
        egress: usize,
        (site, port): (&Site, u16),
        took: Option<Duration>,
        now: Duration,
    ) {
        if let Some(took) = took {
            self.egresses[egress].mean.add(took);
        }
        let Some(times) = self.sites.touch(site) else { return };
        match took {
            Some(_) => times.ports.add(port),
            None if !WEB_PORTS.contains(&port) && !times.ports.contains(port) => return,
            None => {}
        }
        if times.dials.len() <= egress {
            times.dials.resize(egress + 1, Recent::default());
        }
        times.dials[egress].add(took, now);
        let Some(mut favourite) = times.favourite else { return };
        let estimates = self.estimates(site, now, |_| true);
        favourite.review(&estimates, Some(egress), now);
        if let Some(times) = self.sites.touch(site) {
            times.favourite = Some(favourite);
        }
    }

    /// Chooses among the egresses that are up; `None` if there are none.
    pub fn choose(&mut self, query: &Query<'_>, is_up: impl Fn(usize) -> bool) -> Option<usize> {
        let Query { who, site, now, .. } = *query;
        if let Some(fixed) = self.fixed(site).filter(|egress| is_up(*egress)) {
            return Some(fixed);
        }
        let pin = (who, site.clone());
        let pinned = self.pins.get(&pin).filter(|it| it.holds(now)).map(|it| it.egress);
        let fails = |egress| self.sites.get(site).is_some_and(|it| it.fails(egress, now));
        let egress = match pinned.filter(|egress| is_up(*egress)) {
            Some(pinned) if !fails(pinned) => pinned,
            // The pin stays for the time after the failure.
            Some(pinned) => {
                let estimates = self.estimates(site, now, &is_up);
                best(&estimates).map_or(pinned, |it| it.egress)
            }
            None => self.choose_unpinned(query, &is_up)?,
        };
        let keeps = pinned.is_some_and(is_up);
        let entry = self.pins.obtain(&pin, who, || Pinned { egress, used_at: now, flows: 0 });
        entry.used_at = now;
        entry.flows += 1;
        if !keeps {
            entry.egress = egress;
        }
        Some(egress)
    }

    /// Notes the end of a passenger's flow to a site.
    pub fn ended(&mut self, who: Passenger, site: &Site, now: Duration) {
        if let Some(pinned) = self.pins.touch(&(who, site.clone())) {
            pinned.used_at = now;
            pinned.flows = pinned.flows.saturating_sub(1);
        }
    }

    /// Estimates for a site at `now`, of the egresses that are up.
    pub fn estimates(
        &self,
        site: &Site,
        now: Duration,
        is_up: impl Fn(usize) -> bool,
    ) -> Vec<Estimate> {
        let times = self.sites.get(site);
        let known = self.egresses.iter().filter_map(|it| it.mean.get());
        let dialling = self.egresses.iter().filter(|it| it.mean.get().is_some()).count();
        let usual = known.sum::<Duration>().checked_div(dialling as u32).unwrap_or_default();
        let of = |(number, egress): (usize, &Known)| {
            let recent = times.and_then(|it| it.dials.get(number)).copied().unwrap_or_default();
            let (dial, source) = match recent.typical() {
                Some(typical) => (typical, Source::Dials(recent.len())),
                None => (egress.mean.get().unwrap_or(usual), Source::Mean),
            };
            Estimate { egress: number, leg: egress.leg(), dial, source, fails: recent.fails(now) }
        };
        let all = self.egresses.iter().enumerate().filter(|(number, _)| is_up(*number));
        all.map(of).collect()
    }

    /// The egress that passengers without a pin get at a site, of those that are up.
    pub fn expected(
        &self,
        site: &Site,
        now: Duration,
        is_up: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let fixed = self.fixed(site).filter(|egress| is_up(*egress));
        let favourite = self.sites.get(site).and_then(|it| it.favourite);
        fixed.or_else(|| Some(usual(&self.estimates(site, now, is_up), favourite)?.egress))
    }

    /// The egress that the operator has chosen for a site.
    pub fn fixed(&self, site: &Site) -> Option<usize> {
        self.fixed.iter().find(|(fixed, _)| fixed.contains(site)).map(|(_, egress)| *egress)
    }

    fn choose_unpinned(
        &mut self,
        query: &Query<'_>,
        is_up: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let favourite = self.sites.obtain(query.site, query.who, Times::default).favourite;
        let estimates = self.estimates(query.site, query.now, &is_up);
        let favourite = match favourite {
            None => Favourite::new(usual(&estimates, None)?.egress),
            Some(mut favourite) => {
                favourite.review(&estimates, None, query.now);
                favourite
            }
        };
        self.sites.touch(query.site)?.favourite = Some(favourite);
        let usual = usual(&estimates, Some(favourite))?;
        let explored = (query.random < EXPLORED).then(|| unknown(&estimates, usual)).flatten();
        Some(explored.unwrap_or(usual.egress))
    }
}

impl Times {
    fn fails(&self, egress: usize, now: Duration) -> bool {
        self.dials.get(egress).is_some_and(|it| it.fails(now))
    }
}

impl Ports {
    fn add(&mut self, port: u16) {
        if !self.contains(port) {
            self.0.rotate_right(1);
            self.0[0] = Some(port);
        }
    }

    fn contains(&self, port: u16) -> bool {
        self.0.contains(&Some(port))
    }
}

impl Pinned {
    fn holds(&self, now: Duration) -> bool {
        self.flows > 0 || now.saturating_sub(self.used_at) < PIN_IDLE
    }
}

impl Known {
    fn leg(&self) -> Duration {
        let Some(leg) = self.leg else { return Duration::ZERO };
        leg.rtt.mul_f64((leg.loss / MIN_LOSS).clamp(1.0, 100.0).sqrt())
    }
}

/// The favourite; if that is down or does not reach the site, the best of the others.
fn usual(estimates: &[Estimate], favourite: Option<Favourite>) -> Option<&Estimate> {
    let favourite =
        favourite.and_then(|favourite| estimates.iter().find(|it| it.egress == favourite.egress()));
    // If none reaches it, the favourite is as good as any.
    let reaches = favourite.filter(|it| !it.fails);
    reaches.or_else(|| best(estimates)).or(favourite).or(estimates.first())
}

/// The egress with the least time of those that reach the site.
fn best(estimates: &[Estimate]) -> Option<&Estimate> {
    estimates.iter().filter(|it| !it.fails).min_by_key(|it| it.total())
}

/// The egress with the fewest dials of those that may be better than `usual`.
fn unknown(estimates: &[Estimate], usual: &Estimate) -> Option<usize> {
    let dials = |it: &Estimate| match it.source {
        Source::Dials(dials) => dials.min(KNOWN_DIALS),
        Source::Mean => 0,
    };
    let others = estimates.iter().filter(|it| it.egress != usual.egress);
    // Not even a dial in no time would make the others better.
    let possible = others.filter(|it| it.leg < usual.total() && !it.fails);
    possible.min_by_key(|it| (dials(it), it.total())).map(|it| it.egress)
}
