//! A beam that several aircraft send into: its division into grants, which never exceed its
//! capacity.
//!
//! A grant counts as in use until it has surely ended: its lifetime is over, or the aircraft
//! reports that it follows a newer grant. So rate that one aircraft loses is granted to another
//! only after the first has confirmed, whatever messages are lost or late. The rule for counting
//! lifetimes ([`crate::wire::lease`]) ensures that the ground's clock is the later one.
//!
//! Two cases are excluded from that promise:
//!
//! - If the *beam* shrinks, existing grants may exceed it until they are taken back.
//! - A new process does not know the grants of the one before. For one lifetime it grants floors
//!   only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bentpipe_units::BitRate;

use super::divide::{Want, divide};
use super::{Demand, GRANT_LIFETIME, Grant, IDLE_GRANT, Share};

/// Maximum number of separate grants of one aircraft that may still be in use, 32 bytes each.
/// Beyond it, the two oldest count as one with the larger rate and the later end.
const MAX_ISSUED: usize = 16;

/// Divisor of the rate for the smallest change that is reported to an aircraft without a request.
const MIN_CHANGE_PART: u64 = 16;

/// A beam that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeamError {
    /// The floors do not fit.
    #[error(
        "the floors of the aircraft come to {floors}, more than the beam's {rate}: \
         lower the floors, or raise the rate"
    )]
    Floors {
        /// Sum of the floors.
        floors: BitRate,
        /// Rate of the beam.
        rate: BitRate,
    },
    /// The sessions are divided over shards, and a beam needs all of them together.
    #[error("a beam needs a hub with one shard, and this one has {0}: start it with one shard")]
    Shards(usize),
}

/// A grant that may still be used.
#[derive(Debug, Clone, Copy)]
struct Issued {
    sequence: u64,
    rate: BitRate,
    until: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    number: u64,
    useful: BitRate,
    at: Duration,
}

#[derive(Debug)]
struct Member {
    share: Share,
    request: Option<Request>,
    issued: VecDeque<Issued>,
    latest: Option<Grant>,
    next_sequence: u64,
}

/// A beam's capacity towards the ground, divided among its aircraft.
#[derive(Debug)]
pub struct Beam<K> {
    rate: BitRate,
    /// Time until which grants of an earlier process may be in use.
    opens_at: Duration,
    members: BTreeMap<K, Member>,
    /// Aircraft with a request or a grant. All others may send at [`IDLE_GRANT`].
    live: BTreeSet<K>,
    /// Members that are not served any more, until their last grants have ended.
    leaving: BTreeSet<K>,
}

impl<K: Ord + Copy> Beam<K> {
    /// Creates a beam of `rate` with all its aircraft. Until `opens_at` it grants floors only.
    pub fn new(
        rate: BitRate,
        shares: impl IntoIterator<Item = (K, Share)>,
        opens_at: Duration,
    ) -> Result<Self, BeamError> {
        let member = |(key, share)| (key, Member::new(share));
        let members: BTreeMap<K, Member> = shares.into_iter().map(member).collect();
        check(rate, members.values().map(|member| member.share))?;
        Ok(Self { rate, opens_at, members, live: BTreeSet::new(), leaving: BTreeSet::new() })
    }

    /// Changes the beam's capacity. Earlier grants may exceed it until the aircraft confirm new
    /// ones.
    pub fn set_rate(&mut self, rate: BitRate) {
        self.rate = rate;
    }

    /// Sets the aircraft that have a share. The rate of a missing one stays in use until its last
    /// grant has ended, because it may not have heard of its end.
    pub fn set_members(&mut self, shares: impl IntoIterator<Item = (K, Share)>) {
        let mut leaving: BTreeSet<K> = self.members.keys().copied().collect();
        for (key, share) in shares {
            leaving.remove(&key);
            let member = self.members.entry(key).or_insert_with(|| Member::new(share));
            member.share = share;
        }
        for key in &leaving {
            if let Some(member) = self.members.get_mut(key) {
                member.request = None;
            }
        }
        self.leaving = leaving;
    }

    /// Notes that the aircraft began a session, whose demands count from one again.
    pub fn joined(&mut self, key: K) {
        if let Some(member) = self.members.get_mut(&key) {
            member.request = None;
            member.latest = None;
        }
    }

    /// Handles a DEMAND, limited by the aircraft's share.
    pub fn on_demand(&mut self, key: K, demand: &Demand, now: Duration) {
        let Some(member) = self.members.get_mut(&key) else { return };
        if member.request.is_some_and(|request| demand.number <= request.number) {
            return;
        }
        let useful = demand.useful.min(member.share.max_return);
        member.request = Some(Request { number: demand.number, useful, at: now });
        self.live.insert(key);
        // A DEMAND that follows a grant never made confirms nothing.
        if demand.follows < member.next_sequence {
            member.issued.retain(|issued| issued.sequence >= demand.follows);
        }
    }

    /// Returns the grants to be sent now: to aircraft that sent a DEMAND, and to aircraft whose
    /// rate changes with the others' demands.
    pub fn grants(&mut self, now: Duration) -> Vec<(K, Grant)> {
        let members = &mut self.members;
        self.live.retain(|key| {
            let Some(member) = members.get_mut(key) else { return false };
            member.issued.retain(|issued| now < issued.until);
            let gone = |request: &Request| now >= request.at + GRANT_LIFETIME;
            member.request = member.request.filter(|request| !gone(request));
            member.request.is_some() || !member.issued.is_empty()
        });
        let live = &self.live;
        self.leaving.retain(|key| live.contains(key) || members.remove(key).is_none());
        let mut due: Vec<(K, BitRate)> = self
            .targets(now)
            .into_iter()
            .filter(|(key, target)| {
                self.members.get(key).is_some_and(|member| member.is_due(*target))
            })
            .collect();
        // Aircraft that lose rate go before those that gain it.
        due.sort_by_key(|(key, target)| {
            let rises = self.members.get(key).is_some_and(|member| *target > member.in_use(now));
            (rises, *key)
        });
        let (mut grants, mut in_use) = (Vec::new(), self.sum_in_use(now));
        for (key, target) in due {
            let Some(member) = self.members.get_mut(&key) else { continue };
            let own = member.in_use(now).bps();
            let free = u128::from(self.rate.bps()).saturating_sub(in_use);
            let max = own.saturating_add(u64::try_from(free).unwrap_or(u64::MAX));
            if let Some(grant) = member.issue(target.min(BitRate::from_bps(max))) {
                grants.push((key, grant));
            }
            in_use = in_use - u128::from(own) + u128::from(member.in_use(now).bps());
        }
        grants
    }

    /// Maximum rate at which all aircraft together may be sending, in bit/s.
    fn sum_in_use(&self, now: Duration) -> u128 {
        let live = self.live.iter().filter_map(|key| self.members.get(key));
        let live = live.map(|member| u128::from(member.in_use(now).bps())).sum::<u128>();
        live + u128::from(self.idle_bps())
    }

    #[cfg(test)]
    fn in_use(&self, now: Duration) -> BitRate {
        BitRate::from_bps(u64::try_from(self.sum_in_use(now)).unwrap_or(u64::MAX))
    }

    /// Maximum rate at which aircraft without request and grant may be sending, in bit/s.
    fn idle_bps(&self) -> u64 {
        (self.members.len() - self.live.len()) as u64 * IDLE_GRANT.bps()
    }

    /// Time at which a grant ends without a confirmation, so that its rate becomes free.
    pub fn next_end(&self, now: Duration) -> Option<Duration> {
        let live = self.live.iter().filter_map(|key| self.members.get(key));
        let ends = live.flat_map(|member| &member.issued).map(|it| it.until);
        ends.filter(|until| now < *until).min()
    }

    /// Target rate of every aircraft with a request.
    fn targets(&self, now: Duration) -> Vec<(K, BitRate)> {
        let live = self.live.iter().filter_map(|key| self.members.get_key_value(key));
        let (here, gone): (Vec<_>, Vec<_>) = live.partition(|(_, member)| member.request.is_some());
        let gone = gone.iter().map(|(_, member)| member.in_use(now).bps()).sum::<u64>();
        let gone = gone + self.idle_bps();
        let open = now >= self.opens_at;
        let want = |member: &Member| {
            let useful = member.request.filter(|_| open).map(|request| request.useful);
            let floor = floor(&member.share);
            Want { weight: member.share.weight, floor, max: useful.unwrap_or(floor) }
        };
        let wants: Vec<Want> = here.iter().map(|(_, member)| want(member)).collect();
        let left = BitRate::from_bps(self.rate.bps().saturating_sub(gone));
        here.iter().map(|(key, _)| **key).zip(divide(left, &wants)).collect()
    }
}

impl Member {
    fn new(share: Share) -> Self {
        let (issued, next_sequence) = (VecDeque::new(), 1);
        Self { share, request: None, issued, latest: None, next_sequence }
    }

    /// Maximum rate at which the aircraft may be sending.
    fn in_use(&self, now: Duration) -> BitRate {
        let live = self.issued.iter().filter(|issued| now < issued.until);
        live.map(|issued| issued.rate).max().unwrap_or(IDLE_GRANT).max(IDLE_GRANT)
    }

    /// Returns `true` if `target` should be sent to the aircraft.
    fn is_due(&self, target: BitRate) -> bool {
        let (Some(request), Some(latest)) = (self.request, self.latest) else { return true };
        let change = target.bps().abs_diff(latest.rate.bps());
        request.number > latest.answers || change > latest.rate.bps() / MIN_CHANGE_PART
    }

    /// Grants `rate`. Returns `None` if the aircraft has that answer already.
    fn issue(&mut self, rate: BitRate) -> Option<Grant> {
        let request = self.request?;
        let said = self.latest.is_some_and(|it| it.answers == request.number && it.rate == rate);
        if said {
            return None;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let until = request.at + GRANT_LIFETIME;
        // A grant that ends no later and is no larger adds nothing to the new one.
        self.issued.retain(|issued| issued.rate > rate || issued.until > until);
        if self.issued.len() == MAX_ISSUED
            && let (Some(oldest), Some(next)) = (self.issued.pop_front(), self.issued.front_mut())
        {
            next.rate = next.rate.max(oldest.rate);
            next.until = next.until.max(oldest.until);
        }
        self.issued.push_back(Issued { sequence, rate, until });
        let grant = Grant { sequence, answers: request.number, rate, lifetime: GRANT_LIFETIME };
        self.latest = Some(grant);
        Some(grant)
    }
}

/// Checks that the floors of `shares` fit into `rate`.
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
