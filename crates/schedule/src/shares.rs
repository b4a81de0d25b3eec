//! Choice of the class of the next packet: guaranteed rates, ceilings, and shares by weight.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::Class;
use crate::tokens::ClassBucket;

/// Guaranteed rate and ceiling of a class, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Guaranteed rate: the class gets it whenever it has data and the link has capacity.
    ///
    /// With a rate, the operator, network and lower-effort classes use more than the rate only if
    /// assured and best effort leave capacity. A rate of zero for lower effort leaves it only that
    /// spare capacity. Without a rate, each class shares the remaining capacity with the others, by
    /// weight.
    pub rate: Option<BitRate>,
    /// Rate that the class never exceeds, even on an idle link. It also bounds the guaranteed rate.
    pub ceil: Option<BitRate>,
}

/// Virtual time of a byte beyond the guaranteed rate; the weight of a class is the inverse.
/// Operator, network, assured and best effort share 32 : 16 : 8 : 4, so a passenger who marks
/// everything as urgent leaves a fifth to best effort. Lower effort gets a twentieth next to best
/// effort alone; that is its floor if none is configured.
const fn cost(class: Class) -> u64 {
    match class {
        Class::Operator => 1,
        Class::Network => 2,
        Class::Assured => 4,
        Class::BestEffort => 8,
        Class::LowerEffort => 8 * 19,
    }
}

/// Order of the waiting classes:
///
/// 1. classes below their guaranteed rate, in class order
/// 2. classes that share by weight
/// 3. classes that may use only spare capacity, in class order
///
/// Sharing by weight is start-time fair queueing (Goyal, Vin and Cheng, 1996). The class with the
/// lowest service for its weight is next; ties go to the higher priority. A class that was idle
/// starts level with the class that is next. A class that uses less than its share therefore is_backlogged
/// only for the packet in service.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    classes: [Share; Class::ALL.len()],
    /// Virtual time: start of the class served last by weight.
    now: u64,
}

#[derive(Debug, Default)]
struct Share {
    rate: Option<ClassBucket>,
    ceil: Option<ClassBucket>,
    /// Virtual time at which its last bytes by weight end.
    end: u64,
    /// `true` if its last new bytes were part of its guaranteed rate.
    guaranteed: bool,
}

/// Precedence of a class that may send; the lowest is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Guaranteed,
    Share(u64),
    Leftover,
}

impl Shares {
    /// Sets the limits of the class from `now` on.
    pub fn configure(&mut self, class: Class, limits: Limits, now: Duration) {
        let share = &mut self.classes[class.index()];
        set(&mut share.rate, limits.rate, now);
        set(&mut share.ceil, limits.ceil, now);
    }

    /// Class whose turn it is, among those that are backlogged and below their ceiling.
    pub fn choose(
        &mut self,
        is_backlogged: impl Fn(Class) -> bool,
        now: Duration,
    ) -> Option<Class> {
        let mut best: Option<(Rank, Class)> = None;
        for class in Class::ALL {
            if is_backlogged(class)
                && let Some(rank) = self.rank(class, now)
                && best.is_none_or(|(lowest, _)| rank < lowest)
            {
                best = Some((rank, class));
            }
        }
        let (rank, class) = best?;
        if let Rank::Share(start) = rank {
            self.now = start;
        }
        Some(class)
    }

    /// Records new bytes sent in the class.
    pub fn spent(&mut self, class: Class, bytes: usize, now: Duration) {
        let share = &mut self.classes[class.index()];
        share.guaranteed = share.rate.as_mut().is_some_and(|rate| rate.is_open(now));
        let guaranteed = share.guaranteed;
        self.record(class, bytes, guaranteed, now);
    }

    /// Charges `bytes` of overhead to the class. They count where the new bytes counted that they
    /// belong to. Otherwise the rate would not cover all that the class sends, because new bytes
    /// empty the bucket before their overhead is charged.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        let share = &mut self.classes[class.index()];
        let open = share.rate.as_mut().is_some_and(|rate| rate.is_open(now));
        let guaranteed = open || share.guaranteed;
        self.record(class, bytes, guaranteed, now);
    }

    fn record(&mut self, class: Class, bytes: usize, guaranteed: bool, now: Duration) {
        let share = &mut self.classes[class.index()];
        if let Some(ceil) = &mut share.ceil {
            ceil.refill(now); // else tokens earned until now would exceed the burst
            ceil.spend(bytes);
        }
        if guaranteed && let Some(rate) = &mut share.rate {
            rate.spend(bytes);
        } else if has_share(class, share.rate.as_ref()) {
            let cost = (bytes as u64).saturating_mul(cost(class));
            share.end = share.end.max(self.now).saturating_add(cost);
        }
    }

    /// Levels all classes. Nobody is waiting, so past service beyond the share harmed nobody.
    pub fn resync(&mut self) {
        let end = self.classes.iter().map(|share| share.end).max().unwrap_or(0);
        self.now = self.now.max(end);
    }

    /// Earliest time at which a backlogged class at its ceiling may send.
    pub fn next_ready(
        &mut self,
        is_backlogged: impl Fn(Class) -> bool,
        now: Duration,
    ) -> Option<Duration> {
        let opens_at = |class: Class| {
            let ceil =
                self.classes[class.index()].ceil.as_mut().filter(|_| is_backlogged(class))?;
            if ceil.is_open(now) { None } else { ceil.opens_at() }
        };
        Class::ALL.into_iter().filter_map(opens_at).min()
    }

    /// Precedence of the class; `None` at its ceiling.
    fn rank(&mut self, class: Class, now: Duration) -> Option<Rank> {
        let share = &mut self.classes[class.index()];
        if share.ceil.as_mut().is_some_and(|ceil| !ceil.is_open(now)) {
            return None;
        }
        if share.rate.as_mut().is_some_and(|rate| rate.is_open(now)) {
            return Some(Rank::Guaranteed);
        }
        let shares = has_share(class, share.rate.as_ref());
        Some(if shares { Rank::Share(share.end.max(self.now)) } else { Rank::Leftover })
    }
}

/// Returns `true` if the class shares by weight.
fn has_share(class: Class, rate: Option<&ClassBucket>) -> bool {
    matches!(class, Class::Assured | Class::BestEffort) || rate.is_none()
}

fn set(bucket: &mut Option<ClassBucket>, rate: Option<BitRate>, now: Duration) {
    match (bucket.as_mut(), rate) {
        (Some(bucket), Some(rate)) => bucket.set_rate(rate, now),
        (_, rate) => *bucket = rate.map(|rate| ClassBucket::new(rate, now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn order(shares: &mut Shares, waiting: &[Class], turns: usize) -> Vec<Class> {
        (0..turns)
            .map(|_| {
                let class = shares.choose(|class| waiting.contains(&class), NOW).unwrap();
                shares.spent(class, 1000, NOW);
                class
            })
            .collect()
    }

    #[test]
    fn shares_are_by_weight() {
        let mut shares = Shares::default();
        let served = order(&mut shares, &Class::ALL, 60_000);
        let part = |class| served.iter().filter(|&&other| other == class).count() as f64;
        let best = part(Class::BestEffort);
        let parts = Class::ALL.map(|class| part(class) / best);
        let weights = [8.0, 4.0, 2.0, 1.0, 1.0 / 19.0];
        for (part, weight) in parts.into_iter().zip(weights) {
            assert!((part / weight - 1.0).abs() < 0.01, "{parts:?}");
        }
    }

    #[test]
    fn an_idle_class_is_next_but_saves_up_nothing() {
        let (mut shares, [net, best]) = (Shares::default(), [Class::Network, Class::BestEffort]);
        order(&mut shares, &[best], 1000);
        let served = order(&mut shares, &[net, best], 10);
        assert_eq!(served, [net, net, net, net, net, best, net, net, net, net]);
    }

    #[test]
    fn charges_count_against_a_share() {
        let (mut shares, [assured, best]) =
            (Shares::default(), [Class::Assured, Class::BestEffort]);
        order(&mut shares, &[assured, best], 3);
        shares.spent(assured, 10_000, NOW);
        assert!(order(&mut shares, &[assured, best], 5).iter().all(|&class| class == best));
        shares.spent(best, 1_000_000, NOW);
        shares.resync();
        assert_eq!(order(&mut shares, &[assured, best], 3), [assured, best, assured]);
    }

    #[test]
    fn charges_count_where_their_new_bytes_counted() {
        let (mut shares, mut now) = (Shares::default(), NOW);
        let rate = BitRate::from_bps(800_000);
        let limits = Limits { rate: Some(rate), ceil: None };
        shares.configure(Class::LowerEffort, limits, now);
        // A tenth of each packet is overhead, and the link has ten times the rate.
        let mut sent = 0;
        while now < NOW + Duration::from_secs(60) {
            let class = shares.choose(|class| class >= Class::BestEffort, now).unwrap();
            shares.spent(class, 900, now);
            shares.charge(class, 100, now);
            sent += if class == Class::LowerEffort { 1000 } else { 0 };
            now += Duration::from_millis(1);
        }
        let max = rate.bytes_in(now - NOW) + crate::BURST_BYTES + 1000;
        assert!((rate.bytes_in(now - NOW)..=max).contains(&sent), "{sent} bytes");
    }

    #[test]
    fn oversold_rates_are_served_in_class_order() {
        let mut shares = Shares::default();
        let limits = Limits { rate: Some(BitRate::from_bps(1_000_000)), ceil: None };
        for class in Class::ALL {
            shares.configure(class, limits, NOW);
        }
        // Full buckets of six packets each, and no time to refill.
        let served = order(&mut shares, &Class::ALL, 30);
        assert!(
            served.is_sorted() && served.iter().filter(|&&c| c == Class::Operator).count() == 6
        );
    }
}
