//! Choice of the class of the next packet: guaranteed rates, ceilings, and the rest by weight.

use std::time::Duration;

use bentpipe_units::BitRate;

use crate::Class;
use crate::tokens::Bucket;

/// Guaranteed rate and ceiling of a class, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Rate that it gets whenever it asks for it and the link has it.
    ///
    /// With a rate the operator's and the network's class, and lower effort, take more than it only
    /// from what assured and best effort leave. Zero for lower effort: nothing but that. Without
    /// one each of them shares what is left with the others, by weight.
    pub rate: Option<BitRate>,
    /// Rate that it never exceeds, even on an idle link; it bounds the guaranteed rate too.
    pub ceil: Option<BitRate>,
}

/// Virtual time of a byte beyond the guaranteed rate; the share of a class is the inverse.
/// Operator, network, assured and best effort share as 32 : 16 : 8 : 4, so a passenger who marks
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

/// Order of the waiting classes. First come those below their guaranteed rate, in the order of
/// classes. Then come shares by weight. Last come classes that may use only what the others leave,
/// in the order of classes.
///
/// A share by weight is start-time fair queueing (Goyal, Vin and Cheng, 1996): the class that got
/// least for its weight is next, the more favoured of two; and who was away starts level with who is
/// next. So a class that uses less than its share waits for the packet in service alone.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    classes: [Share; Class::ALL.len()],
    /// The virtual time: where the class served last by weight began.
    now: u64,
}

#[derive(Debug, Default)]
struct Share {
    rate: Option<Bucket>,
    ceil: Option<Bucket>,
    /// Virtual time at which its last bytes by weight ended.
    end: u64,
    /// Its last new bytes were part of its guaranteed rate.
    guaranteed: bool,
}

/// Reason for which a class may send; the least is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Guaranteed,
    Share(u64),
    Leftover,
}

impl Shares {
    /// From `now` on the class has these limits.
    pub fn configure(&mut self, class: Class, limits: Limits, now: Duration) {
        let share = &mut self.classes[class.index()];
        set(&mut share.rate, limits.rate, now);
        set(&mut share.ceil, limits.ceil, now);
    }

    /// The class whose turn it is among those that have something to send and may.
    pub fn choose(&mut self, waits: impl Fn(Class) -> bool, now: Duration) -> Option<Class> {
        let mut best: Option<(Claim, Class)> = None;
        for class in Class::ALL {
            if waits(class)
                && let Some(claim) = self.claim(class, now)
                && best.is_none_or(|(least, _)| claim < least)
            {
                best = Some((claim, class));
            }
        }
        let (claim, class) = best?;
        if let Claim::Share(start) = claim {
            self.now = start;
        }
        Some(class)
    }

    /// New bytes of the class left.
    pub fn spent(&mut self, class: Class, bytes: usize, now: Duration) {
        let share = &mut self.classes[class.index()];
        share.guaranteed = share.rate.as_mut().is_some_and(|rate| rate.is_open(now));
        let guaranteed = share.guaranteed;
        self.pay(class, bytes, guaranteed, now);
    }

    /// `bytes` were charged to the class. They count where its new bytes did that they go with, or
    /// else the rate would not be of all that the class sends: new bytes empty the bucket, and what
    /// they cost comes after.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        let share = &mut self.classes[class.index()];
        let open = share.rate.as_mut().is_some_and(|rate| rate.is_open(now));
        let guaranteed = open || share.guaranteed;
        self.pay(class, bytes, guaranteed, now);
    }

    fn pay(&mut self, class: Class, bytes: usize, guaranteed: bool, now: Duration) {
        let share = &mut self.classes[class.index()];
        if let Some(ceil) = &mut share.ceil {
            ceil.refill(now); // what it earned until now would not fit into it later
            ceil.spend(bytes);
        }
        if guaranteed && let Some(rate) = &mut share.rate {
            rate.spend(bytes);
        } else if has_share(class, share.rate.as_ref()) {
            let cost = (bytes as u64).saturating_mul(cost(class));
            share.end = share.end.max(self.now).saturating_add(cost);
        }
    }

    /// Nobody waits: what some had more than others cost nobody anything.
    pub fn forgive(&mut self) {
        let end = self.classes.iter().map(|share| share.end).max().unwrap_or(0);
        self.now = self.now.max(end);
    }

    /// Time at which the first class of those that wait for their ceiling may send.
    pub fn next_ready(&mut self, waits: impl Fn(Class) -> bool, now: Duration) -> Option<Duration> {
        let held = |class: Class| {
            let ceil = self.classes[class.index()].ceil.as_mut().filter(|_| waits(class))?;
            if ceil.is_open(now) { None } else { ceil.opens_at() }
        };
        Class::ALL.into_iter().filter_map(held).min()
    }

    /// `None` at the ceiling.
    fn claim(&mut self, class: Class, now: Duration) -> Option<Claim> {
        let share = &mut self.classes[class.index()];
        if share.ceil.as_mut().is_some_and(|ceil| !ceil.is_open(now)) {
            return None;
        }
        if share.rate.as_mut().is_some_and(|rate| rate.is_open(now)) {
            return Some(Claim::Guaranteed);
        }
        let shares = has_share(class, share.rate.as_ref());
        Some(if shares { Claim::Share(share.end.max(self.now)) } else { Claim::Leftover })
    }
}

/// Returns `true` if the class takes part in the sharing by weight.
fn has_share(class: Class, rate: Option<&Bucket>) -> bool {
    matches!(class, Class::Assured | Class::BestEffort) || rate.is_none()
}

fn set(bucket: &mut Option<Bucket>, rate: Option<BitRate>, now: Duration) {
    match (bucket.as_mut(), rate) {
        (Some(bucket), Some(rate)) => bucket.set_rate(rate, now),
        (_, rate) => *bucket = rate.map(|rate| Bucket::new(rate, now)),
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
    fn who_was_away_is_next_and_has_saved_up_nothing() {
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
        shares.forgive();
        assert_eq!(order(&mut shares, &[assured, best], 3), [assured, best, assured]);
    }

    #[test]
    fn charges_count_against_the_rate_that_the_bytes_came_from() {
        let (mut shares, mut now) = (Shares::default(), NOW);
        let rate = BitRate::from_bps(800_000);
        let limits = Limits { rate: Some(rate), ceil: None };
        shares.configure(Class::LowerEffort, limits, now);
        // A tenth of each packet is charged, and the link has ten times the rate.
        let mut sent = 0;
        while now < NOW + Duration::from_secs(60) {
            let class = shares.choose(|class| class >= Class::BestEffort, now).unwrap();
            shares.spent(class, 900, now);
            shares.charge(class, 100, now);
            sent += if class == Class::LowerEffort { 1000 } else { 0 };
            now += Duration::from_millis(1);
        }
        let most = rate.bytes_in(now - NOW) + crate::BURST_BYTES + 1000;
        assert!((rate.bytes_in(now - NOW)..=most).contains(&sent), "{sent} bytes");
    }

    #[test]
    fn oversold_rates_are_served_in_the_order_of_classes() {
        let mut shares = Shares::default();
        let limits = Limits { rate: Some(BitRate::from_bps(1_000_000)), ceil: None };
        for class in Class::ALL {
            shares.configure(class, limits, NOW);
        }
        // Full buckets, of six packets each, and no time for more.
        let served = order(&mut shares, &Class::ALL, 30);
        assert!(
            served.is_sorted() && served.iter().filter(|&&c| c == Class::Operator).count() == 6
        );
    }
}
