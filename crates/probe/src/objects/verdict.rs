//! Hits and misses of a cache in flight, by all evidence together.

use super::{Fetch, ObjectKind, ObjectPair};

/// A finding about one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A cache in the aircraft answered.
    Hit(Witness),
    /// A cache in the aircraft forwarded the request.
    Miss(Witness),
    /// There is no sign of a cache in the aircraft.
    None,
    /// There was no usable response.
    Failed,
}

/// The evidence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// The response came before a packet can be back from the ground.
    Time,
    /// `Via` names a private address as the last proxy, which says so of its own cache.
    Proxy,
    /// The serial number of an own origin, on a flight with a cache in the aircraft.
    Serial,
}

/// Findings of a flight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// Both fetches of each pair with their findings, in order. A second fetch that was not made is absent.
    pub found: Vec<(Verdict, Option<Verdict>)>,
}

impl Verdicts {
    /// Judges all pairs of a flight, given its own minimum round-trip time to the ground.
    pub fn of<'p>(pairs: impl Iterator<Item = &'p ObjectPair> + Clone, minimum_us: u64) -> Self {
        let alone = |fetch: &Fetch| alone(fetch, minimum_us);
        // A serial number that repeats tells of some cache between the origin and here. It is in the aircraft if
        // any such response was too fast for the ground, or if its proxy names itself.
        let in_flight = pairs.clone().any(|pair| {
            pair.second.as_ref().is_some_and(|second| {
                repeats(pair) && matches!(alone(second), Verdict::Hit(_) | Verdict::Miss(_))
            })
        });
        let judged = |pair: &ObjectPair| {
            let own = in_flight && pair.kind == ObjectKind::Origin;
            let refine = |found: Verdict, repeated: bool| match found {
                // The proxy's word is about its memory; the number is about the response itself.
                Verdict::None if own && repeated => Verdict::Hit(Witness::Serial),
                Verdict::None if own => Verdict::Miss(Witness::Serial),
                found => found,
            };
            let second = pair.second.as_ref().map(|second| refine(alone(second), repeats(pair)));
            (refine(alone(&pair.first), false), second)
        };
        Self { found: pairs.map(judged).collect() }
    }

    /// All findings.
    pub fn all(&self) -> impl Iterator<Item = Verdict> + '_ {
        self.found.iter().flat_map(|(first, second)| [Some(*first), *second]).flatten()
    }
}

/// The finding of one fetch by itself.
fn alone(fetch: &Fetch, minimum_us: u64) -> Verdict {
    let Some(first_byte_us) = fetch.first_byte_us.filter(|_| fetch.answered()) else {
        return Verdict::Failed;
    };
    if first_byte_us < minimum_us {
        return Verdict::Hit(Witness::Time);
    }
    match fetch.signs.private_proxy().and_then(|_| fetch.signs.nearest_hit()) {
        Some(true) => Verdict::Hit(Witness::Proxy),
        Some(false) => Verdict::Miss(Witness::Proxy),
        None => Verdict::None,
    }
}

fn repeats(pair: &ObjectPair) -> bool {
    let second = pair.second.as_ref().and_then(|second| second.serial);
    pair.first.serial.is_some() && pair.first.serial == second
}

#[cfg(test)]
mod tests;
