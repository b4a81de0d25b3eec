//! A beam that several aircraft send into: who may use how much of it, and never more than it has.
//!
//! A grant that was given out counts until it has surely ended: until its lifetime is over, or the
//! aircraft says that it follows a newer one. So a rate that one aircraft loses is given to another
//! only when the first has confirmed, however much is lost or late on the way. The wire's rule for
//! counting lifetimes ([`crate::wire::lease`]) is what makes the ground's clock the later one.
//!
//! Two cases are outside of that promise: when the *beam* shrinks, what is granted already may
//! exceed it until it is taken back; and a process that begins anew does not know what the one
//! before had granted, so for one lifetime it grants floors only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bentpipe_units::BitRate;

use super::divide::{Want, divide};
use super::{Demand, IDLE_GRANT, Share};

/// Lifetime of a grant: ten round trips of a satellite. An aircraft that is gone for longer is left
/// with [`IDLE_GRANT`], and its part goes to the others.
pub const GRANT_LIFETIME: Duration = Duration::from_secs(6);

/// Grants of one aircraft that may still be in use are kept one by one up to here, 32 bytes each;
/// beyond, the two oldest are counted as one with the larger rate and the later end.
const MAX_ISSUED: usize = 16;

/// Unless the aircraft asked, it is told of a new rate only when that differs by this part.
const WORTH_TELLING: u64 = 16;

/// A rate for an aircraft, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Rises with every grant to an aircraft.
    pub sequence: u64,
    /// The number of the DEMAND since whose sending the lifetime counts.
    pub answers: u64,
    /// Granted rate.
    pub rate: BitRate,
    /// For how long.
    pub lifetime: Duration,
}

/// A beam that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeamError {
    /// The floors do not fit.
    #[error(
        "the floors of the aircraft come to {floors}, more than the beam's {rate}: \
         lower the floors, or raise the rate"
    )]
    Floors {
        /// Their sum.
        floors: BitRate,
        /// Rate of the beam.
        rate: BitRate,
    },
}

/// Grant that may still be used.
#[derive(Debug, Clone, Copy)]
struct Issued {
    sequence: u64,
    rate: BitRate,
    until: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u64,
    useful: BitRate,
    at: Duration,
}

#[derive(Debug)]
struct Member {
    share: Share,
    asked: Option<Asked>,
    issued: VecDeque<Issued>,
    latest: Option<Grant>,
    next_sequence: u64,
}

/// One beam's capacity towards the ground, divided among the aircraft in it.
#[derive(Debug)]
pub struct Beam<K> {
    rate: BitRate,
    /// Earlier, grants of a process before this one may live.
    opens_at: Duration,
    members: BTreeMap<K, Member>,
    /// Those who asked, or to whom something is granted. All others may send at [`IDLE_GRANT`].
    live: BTreeSet<K>,
}

impl<K: Ord + Copy> Beam<K> {
    /// A beam of `rate` with all its aircraft. Until `opens_at` it grants floors only.
    pub fn new(
        rate: BitRate,
        shares: impl IntoIterator<Item = (K, Share)>,
        opens_at: Duration,
    ) -> Result<Self, BeamError> {
        let member = |(key, share)| {
            let (issued, next_sequence) = (VecDeque::new(), 1);
            (key, Member { share, asked: None, issued, latest: None, next_sequence })
        };
        let members: BTreeMap<K, Member> = shares.into_iter().map(member).collect();
        check(rate, members.values().map(|member| member.share))?;
        Ok(Self { rate, opens_at, members, live: BTreeSet::new() })
    }

    /// The beam has another capacity from now on. What was granted before may exceed it until it
    /// is confirmed to be taken back.
    pub fn set_rate(&mut self, rate: BitRate) {
        self.rate = rate;
    }

    /// The aircraft begins a session, whose demands count from one again.
    pub fn joined(&mut self, key: K) {
        if let Some(member) = self.members.get_mut(&key) {
            member.asked = None;
            member.latest = None;
        }
    }

    /// The aircraft says what it wants. Its share clamps that.
    pub fn asked(&mut self, key: K, demand: &Demand, now: Duration) {
        let Some(member) = self.members.get_mut(&key) else { return };
        if member.asked.is_some_and(|asked| demand.number <= asked.number) {
            return;
        }
        let useful = demand.useful.min(member.share.most_return);
        member.asked = Some(Asked { number: demand.number, useful, at: now });
        self.live.insert(key);
        // Who claims to follow what was never granted confirms nothing.
        if demand.follows < member.next_sequence {
            member.issued.retain(|issued| issued.sequence >= demand.follows);
        }
    }

    /// The grants that are to be told now: to whoever asked since the last, and to whomever the
    /// others' demands have left more or less.
    pub fn grants(&mut self, now: Duration) -> Vec<(K, Grant)> {
        let members = &mut self.members;
        self.live.retain(|key| {
            let Some(member) = members.get_mut(key) else { return false };
            member.issued.retain(|issued| now < issued.until);
            let gone = |asked: &Asked| now >= asked.at + GRANT_LIFETIME;
            member.asked = member.asked.filter(|asked| !gone(asked));
            member.asked.is_some() || !member.issued.is_empty()
        });
        let mut due: Vec<(K, BitRate)> = self
            .targets(now)
            .into_iter()
            .filter(|(key, target)| {
                self.members.get(key).is_some_and(|member| member.is_due(*target))
            })
            .collect();
        // Who gives something back does so before another takes it.
        due.sort_by_key(|(key, target)| {
            let rises = self.members.get(key).is_some_and(|member| *target > member.in_use(now));
            (rises, *key)
        });
        let (mut grants, mut in_use) = (Vec::new(), self.sum_in_use(now));
        for (key, target) in due {
            let Some(member) = self.members.get_mut(&key) else { continue };
            let own = member.in_use(now).bps();
            let free = u128::from(self.rate.bps()).saturating_sub(in_use);
            let most = own.saturating_add(u64::try_from(free).unwrap_or(u64::MAX));
            if let Some(grant) = member.issue(target.min(BitRate::from_bps(most))) {
                grants.push((key, grant));
            }
            in_use = in_use - u128::from(own) + u128::from(member.in_use(now).bps());
        }
        grants
    }

    /// The most that all aircraft together may be sending, in bit/s.
    fn sum_in_use(&self, now: Duration) -> u128 {
        let live = self.live.iter().filter_map(|key| self.members.get(key));
        let live = live.map(|member| u128::from(member.in_use(now).bps())).sum::<u128>();
        live + u128::from(self.idle_bps())
    }

    #[cfg(test)]
    fn in_use(&self, now: Duration) -> BitRate {
        BitRate::from_bps(u64::try_from(self.sum_in_use(now)).unwrap_or(u64::MAX))
    }

    /// The most that aircraft may send that are not live, in bit/s.
    fn idle_bps(&self) -> u64 {
        (self.members.len() - self.live.len()) as u64 * IDLE_GRANT.bps()
    }

    /// Time at which a grant ends without having been confirmed away, so that its rate is free for
    /// others.
    pub fn next_end(&self, now: Duration) -> Option<Duration> {
        let live = self.live.iter().filter_map(|key| self.members.get(key));
        let ends = live.flat_map(|member| &member.issued).map(|it| it.until);
        ends.filter(|until| now < *until).min()
    }

    /// Target rate of every aircraft that asked.
    fn targets(&self, now: Duration) -> Vec<(K, BitRate)> {
        let live = self.live.iter().filter_map(|key| self.members.get_key_value(key));
        let (here, gone): (Vec<_>, Vec<_>) = live.partition(|(_, member)| member.asked.is_some());
        let gone = gone.iter().map(|(_, member)| member.in_use(now).bps()).sum::<u64>();
        let gone = gone + self.idle_bps();
        let open = now >= self.opens_at;
        let want = |member: &Member| {
            let useful = member.asked.filter(|_| open).map(|asked| asked.useful);
            let floor = floor(&member.share);
            Want { weight: member.share.weight, floor, most: useful.unwrap_or(floor) }
        };
        let wants: Vec<Want> = here.iter().map(|(_, member)| want(member)).collect();
        let left = BitRate::from_bps(self.rate.bps().saturating_sub(gone));
        here.iter().map(|(key, _)| **key).zip(divide(left, &wants)).collect()
    }
}

impl Member {
    /// The most that the aircraft may be sending at.
    fn in_use(&self, now: Duration) -> BitRate {
        let live = self.issued.iter().filter(|issued| now < issued.until);
        live.map(|issued| issued.rate).max().unwrap_or(IDLE_GRANT).max(IDLE_GRANT)
    }

    /// Returns `true` if the aircraft should be told `target`.
    fn is_due(&self, target: BitRate) -> bool {
        let (Some(asked), Some(latest)) = (self.asked, self.latest) else { return true };
        let change = target.bps().abs_diff(latest.rate.bps());
        asked.number > latest.answers || change > latest.rate.bps() / WORTH_TELLING
    }

    /// Grants `rate`; `None` when that would say nothing new.
    fn issue(&mut self, rate: BitRate) -> Option<Grant> {
        let asked = self.asked?;
        let said = self.latest.is_some_and(|it| it.answers == asked.number && it.rate == rate);
        if said {
            return None;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let until = asked.at + GRANT_LIFETIME;
        // What ends no later and is no larger than the new one adds nothing to it.
        self.issued.retain(|issued| issued.rate > rate || issued.until > until);
        if self.issued.len() == MAX_ISSUED
            && let (Some(oldest), Some(next)) = (self.issued.pop_front(), self.issued.front_mut())
        {
            next.rate = next.rate.max(oldest.rate);
            next.until = next.until.max(oldest.until);
        }
        self.issued.push_back(Issued { sequence, rate, until });
        let grant = Grant { sequence, answers: asked.number, rate, lifetime: GRANT_LIFETIME };
        self.latest = Some(grant);
        Some(grant)
    }
}

/// Refuses shares that do not fit into `rate`.
pub fn check(rate: BitRate, shares: impl Iterator<Item = Share>) -> Result<(), BeamError> {
    let floors = shares.fold(0u64, |sum, share| sum.saturating_add(floor(&share).bps()));
    let floors = BitRate::from_bps(floors);
    if floors > rate { Err(BeamError::Floors { floors, rate }) } else { Ok(()) }
}

fn floor(share: &Share) -> BitRate {
    share.floor.max(IDLE_GRANT)
}

#[cfg(test)]
#[path = "beam_tests.rs"]
mod tests;
