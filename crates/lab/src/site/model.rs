//! Models of sites of which only sums are known: a document, its style sheets, scripts and pictures
//! over several domains, and what style sheets and scripts lead to.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Domain, Kind, MAX_RESOURCES, Resource, Site};
use crate::emu;

/// Connections that browsers open to one domain.
const EACH: usize = 6;
/// The share of a site's resources that are found in style sheets and scripts: ours, the paper has
/// only that there are many interdependencies (section 4).
const DEEP: f64 = 0.2;
/// Interval of scripts among the resources that the document names, and among those found in
/// scripts.
const SCRIPT_EVERY: usize = 5;
/// Interval of style sheets among the resources that the document names.
const STYLE_EVERY: usize = 9;
/// The lengths' distribution is log-normal with this σ: the longest tenth has half of the bytes.
const SPREAD: f64 = 1.3;

/// A site's sums, as Table I of *Using SPDY to improve Web 2.0 over satellite links* has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Connections over HTTP/1.1.
    pub connections: u32,
    /// Bytes of all bodies, in thousands.
    pub kilobytes: f64,
    /// Requests; rounded.
    pub requests: f64,
    /// Domains; rounded.
    pub domains: f64,
}

/// A site cannot be made of so few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{requests} requests are {least} bytes at least, and kilobytes allows for {given}: raise it"
)]
pub struct TooShort {
    requests: usize,
    least: u64,
    given: u64,
}

impl Site {
    /// A site with the sums of `shape`: the same seed gives the same site.
    ///
    /// Requests are spread over the domains so that about as many connections are opened as the shape
    /// says, where there are so many requests. The last domains are those that only style sheets and
    /// scripts lead to. Domain `n` lives at [`emu::site`]`(n + 1)`.
    pub fn model(name: &str, shape: &Shape, seed: u64, visit: u64) -> Result<Self, TooShort> {
        let rounded = |value: f64, most: usize| (value.round().max(1.0) as usize).min(most);
        let requests = rounded(shape.requests, MAX_RESOURCES);
        let domains = rounded(shape.domains, requests);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut site = Self {
            name: name.into(),
            visit,
            domains: (0..domains)
                .map(|number| Domain {
                    name: match number {
                        0 => format!("www.{name}.test"),
                        _ => format!("d{number}.{name}.test"),
                    },
                    address: emu::site(number as u32 + 1).into(),
                })
                .collect(),
            resources: vec![Resource::new(0, "/".into(), Kind::Document, None)],
        };
        let places = Places::new(shape.connections as usize, requests - 1, domains);
        for (number, (domain, is_deep)) in places.all().enumerate() {
            site.add(number, domain, is_deep, &mut random);
        }
        site.lengthen((shape.kilobytes * 1000.0).round() as u64, &mut random)?;
        Ok(site)
    }

    /// Adds resource `number` of those beside the document.
    fn add(&mut self, number: usize, domain: usize, is_deep: bool, random: &mut ChaCha8Rng) {
        let mut kind = match number {
            _ if number % SCRIPT_EVERY == 1 => Kind::Script,
            _ if number.is_multiple_of(STYLE_EVERY) && !is_deep => Kind::Style,
            _ => Kind::Image,
        };
        let leads = |it: &(usize, &Resource)| matches!(it.1.kind, Kind::Script | Kind::Style);
        let leading: Vec<_> = self.resources.iter().enumerate().filter(leads).collect();
        let mut after = 0;
        if is_deep && !leading.is_empty() {
            let (place, found_in) = leading[random.random_range(0..leading.len())];
            after = place;
            // Style sheets lead to pictures only.
            if found_in.kind == Kind::Style {
                kind = Kind::Image;
            }
        }
        let suffix = match kind {
            Kind::Script => "js",
            Kind::Style => "css",
            _ => "bmp",
        };
        let path = format!("/{}.{suffix}", number + 1);
        self.resources.push(Resource::new(domain, path, kind, Some(after)));
    }

    /// Gives every resource its length: the sum is `bytes`.
    fn lengthen(&mut self, bytes: u64, random: &mut ChaCha8Rng) -> Result<(), TooShort> {
        let least: Vec<u64> = (0..self.resources.len()).map(|it| self.least_bytes(it)).collect();
        let floor = least.iter().sum();
        let spare = bytes.checked_sub(floor).ok_or(TooShort {
            requests: self.resources.len(),
            least: floor,
            given: bytes,
        })?;
        let weights: Vec<f64> = self.resources.iter().map(|it| weight(it.kind, random)).collect();
        let all: f64 = weights.iter().sum();
        let mut left = spare;
        for ((resource, weight), least) in self.resources.iter_mut().zip(weights).zip(least) {
            let more = ((spare as f64 * weight / all) as u64).min(left);
            left -= more;
            resource.bytes = least + more;
        }
        self.resources[0].bytes += left;
        Ok(())
    }
}

/// Share of the bytes for a resource, in parts.
fn weight(kind: Kind, random: &mut ChaCha8Rng) -> f64 {
    let mean = match kind {
        Kind::Document => return 4.0,
        Kind::Script => 2.0,
        Kind::Style => 1.5,
        Kind::Image | Kind::Other => 1.0,
    };
    // Box and Muller's normal variate.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.random::<f64>()).cos();
    mean * (SPREAD * normal - SPREAD * SPREAD / 2.0).exp()
}

/// Domain of each resource other than the document.
struct Places {
    /// For each domain, how many of its resources the document names, and how many are found later.
    each: Vec<[usize; 2]>,
}

impl Places {
    fn new(connections: usize, resources: usize, domains: usize) -> Self {
        // A domain has as many resources as it is to have connections, the first ones six.
        let mut each = vec![1; domains];
        // The document is the first domain's, which may have nothing else.
        each[0] = usize::from(resources >= domains);
        let mut left = resources - each.iter().sum::<usize>();
        let mut wanted = connections.saturating_sub(each.iter().sum());
        for own in &mut each {
            let more = wanted.min(left).min(EACH - (*own).min(EACH));
            (*own, wanted, left) = (*own + more, wanted - more, left - more);
        }
        // The last domains are found late, as are the resources that need no more connections.
        let mut late = vec![0; domains];
        let enough = (DEEP * resources as f64).round() as usize;
        for domain in (1..domains).rev() {
            if late.iter().sum::<usize>() + left >= enough {
                break;
            }
            late[domain] = std::mem::take(&mut each[domain]);
        }
        for number in 0..left {
            late[number % domains] += 1;
        }
        // A site with a single domain has nothing that is left.
        if domains == 1 && late[0] < enough {
            let more = (enough - late[0]).min(each[0]);
            (each[0], late[0]) = (each[0] - more, late[0] + more);
        }
        Self { each: each.into_iter().zip(late).map(|(early, late)| [early, late]).collect() }
    }

    /// The domain of each resource, and whether it is found late: by turns over the domains, those
    /// that the document names first.
    fn all(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let most = self.each.iter().flatten().copied().max().unwrap_or(0);
        [0, 1].into_iter().flat_map(move |level| {
            (0..most).flat_map(move |turn| {
                let has = move |each: &&[usize; 2]| each[level] > turn;
                let domains = self.each.iter().enumerate();
                domains
                    .filter(move |(_, each)| has(each))
                    .map(move |(domain, _)| (domain, level == 1))
            })
        })
    }
}

#[cfg(test)]
mod tests;
