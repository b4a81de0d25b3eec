//! Models of sites for which only totals are known: a document, its style sheets, scripts and
//! pictures on several domains, and the resources found in style sheets and scripts.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Domain, Kind, MAX_RESOURCES, Resource, Site};
use crate::emu;

/// Connections that browsers open to each domain.
const EACH: usize = 6;
/// Fraction of a site's resources that are found in style sheets and scripts. The number is ours;
/// the paper only says that there are many interdependencies (section 4).
const DEEP: f64 = 0.2;
/// Every fifth resource that the document names, or that is found in scripts, is a script.
const SCRIPT_EVERY: usize = 5;
/// Every ninth resource that the document names is a style sheet.
const STYLE_EVERY: usize = 9;
/// σ of the log-normal distribution of lengths: the longest tenth has half of the bytes.
const SPREAD: f64 = 1.3;

/// Totals of a site, as in Table I of *Using SPDY to improve Web 2.0 over satellite links*.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Connections over HTTP/1.1.
    pub connections: u32,
    /// Size of all bodies in kilobytes.
    pub kilobytes: f64,
    /// Number of requests; rounded.
    pub requests: f64,
    /// Number of domains; rounded.
    pub domains: f64,
}

/// The bytes are too few for the site.
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
    /// A site with the totals of `shape`. The same seed gives the same site.
    ///
    /// Requests are distributed over the domains so that a browser opens about as many connections
    /// as the shape says, if there are enough requests. The last domains are those found only in
    /// style sheets and scripts. Domain `n` has the address [`emu::site`]`(n + 1)`.
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

    /// Adds resource `number`, counted without the document.
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
            // Style sheets refer to pictures only.
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

    /// Assigns a length to every resource. The sum is `bytes`.
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

/// Random weight of a resource in the distribution of bytes.
fn weight(kind: Kind, random: &mut ChaCha8Rng) -> f64 {
    let mean = match kind {
        Kind::Document => return 4.0,
        Kind::Script => 2.0,
        Kind::Style => 1.5,
        Kind::Image | Kind::Other => 1.0,
    };
    // Normal variate by the Box–Muller method.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.random::<f64>()).cos();
    mean * (SPREAD * normal - SPREAD * SPREAD / 2.0).exp()
}

/// Domain of each resource except the document.
struct Places {
    /// For each domain, the number of its resources that the document names, and the number found
    /// later.
    each: Vec<[usize; 2]>,
}

impl Places {
    fn new(connections: usize, resources: usize, domains: usize) -> Self {
        // A domain has one resource for each of its connections. The first domains have six.
        let mut each = vec![1; domains];
        // The document belongs to the first domain, which may have no other resources.
        each[0] = usize::from(resources >= domains);
        let mut left = resources - each.iter().sum::<usize>();
        let mut wanted = connections.saturating_sub(each.iter().sum());
        for own in &mut each {
            let more = wanted.min(left).min(EACH - (*own).min(EACH));
            (*own, wanted, left) = (*own + more, wanted - more, left - more);
        }
        // The last domains are found late, and so are the resources that need no further
        // connections.
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
        // A site with a single domain has no resources left for this.
        if domains == 1 && late[0] < enough {
            let more = (enough - late[0]).min(each[0]);
            (each[0], late[0]) = (each[0] - more, late[0] + more);
        }
        Self { each: each.into_iter().zip(late).map(|(early, late)| [early, late]).collect() }
    }

    /// Domain of each resource, and `true` if it is found late. The domains take turns, and the
    /// resources that the document names come first.
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
