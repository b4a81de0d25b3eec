//! Sessions with learned rates that share a bottleneck, and the division of what they learned.
//!
//! The hub sends to all of its aircraft. Packets that it sends at the same time through one
//! bottleneck meet the same queue. So sessions whose queues go up and down together share one
//! (RFC 8382 groups flows by similar statistics). Each learns only its own part, and nothing makes
//! the parts equal. Here the members of a group give each other, in small steps, what is missing to
//! their shares by weight, and they drain together. They take turns in sending trains: together, the
//! trains would be a queue. A turn lasts from one comparison to the next.
//!
//! A wrong group does little harm. A step is small. A session that gets too much finds a queue and
//! lowers its rate, and one that gets too little finds more with its next train. And then their
//! queues are no longer alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::SessionId;
use super::sharing::Sessions;

/// Interval of comparisons.
const EVERY: Duration = Duration::from_millis(500);
/// Maximum number of sessions that are compared: 496 pairs × 64 bins take some 50 us.
const MAX_COMPARED: usize = 32;
/// Maximum number of pairs that are remembered: those of one comparison, 496 × 40 bytes = 20 KiB.
/// Beyond it, no new pair is made until one ends.
const MAX_PAIRS: usize = MAX_COMPARED * (MAX_COMPARED - 1) / 2;
/// Correlation of two queues from which on they look alike …
const ALIKE: f64 = 0.6;
/// … and up to which they do not.
const UNLIKE: f64 = 0.3;
/// Comparisons in a row that make a pair …
const PAIRED: u8 = 3;
/// … and its maximum score, so that a pair lasts over as many contrary comparisons less one.
const MAX_SCORE: u8 = 8;
/// Maximum change of a rate in a step.
const STEP: f64 = 0.2;

/// Two sessions, the smaller number first.
type Pair = (SessionId, SessionId);

/// The groups of a hub.
#[derive(Debug, Default)]
pub struct Bottlenecks {
    /// Sessions that sent since the last comparison.
    active: BTreeSet<SessionId>,
    scores: BTreeMap<Pair, u8>,
    /// The other members of each session's group.
    siblings: BTreeMap<SessionId, Vec<SessionId>>,
    next: Option<Duration>,
    /// Number of comparisons, which decides whose turn it is.
    comparisons: usize,
}

impl Bottlenecks {
    /// Notes a packet of a session. Only sessions that learn their rate are compared.
    pub fn sent(&mut self, id: SessionId, learns: bool, now: Duration) {
        if !learns {
            return;
        }
        if self.active.len() < MAX_COMPARED {
            self.active.insert(id);
        }
        self.next.get_or_insert(now + EVERY);
    }

    /// Forgets a session.
    pub fn left(&mut self, id: SessionId) {
        self.active.remove(&id);
        self.scores.retain(|pair, _| pair.0 != id && pair.1 != id);
        self.siblings.remove(&id);
        for others in self.siblings.values_mut() {
            others.retain(|other| *other != id);
        }
    }

    /// Time at which [`Self::compare`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.next
    }

    /// Other sessions through the bottleneck of `id`.
    pub fn siblings(&self, id: SessionId) -> &[SessionId] {
        self.siblings.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Compares the sessions that sent, and divides among groups.
    pub fn compare(&mut self, sessions: &mut impl Sessions, now: Duration) {
        let active: Vec<SessionId> = std::mem::take(&mut self.active).into_iter().collect();
        self.next = None;
        self.comparisons = self.comparisons.wrapping_add(1);
        let mut traces = Vec::new();
        for id in active {
            let trace = sessions.get(id).and_then(|(_, session)| session.queue_trace(now));
            traces.extend(trace.map(|trace| (id, trace)));
        }
        for (index, (a, trace)) in traces.iter().enumerate() {
            for (b, other) in &traces[index + 1..] {
                self.score((*a, *b), trace.correlation(other));
            }
        }
        let members: Vec<SessionId> = traces.iter().map(|(id, _)| *id).collect();
        self.regroup(&members);
        let mut done = BTreeSet::new();
        for id in &members {
            if let Some((_, session)) = sessions.get(*id) {
                let are_there = !self.siblings(*id).is_empty();
                session.set_siblings(are_there, self.turn(*id, &members), now);
            }
        }
        for id in members {
            let group: Vec<SessionId> =
                std::iter::once(id).chain(self.siblings(id).iter().copied()).collect();
            if done.insert(id) && group.len() > 1 {
                done.extend(&group);
                divide(sessions, &group, now);
            }
        }
    }

    /// Number of members of a session's group that are in `active`, if it is this session's turn to send
    /// trains.
    fn turn(&self, id: SessionId, active: &[SessionId]) -> Option<u32> {
        let others = self.siblings(id).iter().filter(|other| active.contains(other));
        let (count, before) = others
            .fold((1, 0), |(count, before), other| (count + 1, before + usize::from(*other < id)));
        (self.comparisons % count == before).then_some(count as u32)
    }

    fn score(&mut self, pair: Pair, correlation: Option<f64>) {
        if self.scores.len() >= MAX_PAIRS && !self.scores.contains_key(&pair) {
            return;
        }
        let score = self.scores.entry(pair).or_default();
        match correlation {
            Some(found) if found >= ALIKE => *score = (*score + 1).min(MAX_SCORE),
            Some(found) if found > UNLIKE => {}
            Some(_) => *score = score.saturating_sub(1),
            None => {}
        }
        if *score == 0 {
            self.scores.remove(&pair);
        }
    }

    /// Puts those that are connected by pairs into groups.
    fn regroup(&mut self, members: &[SessionId]) {
        let mut groups: Vec<BTreeSet<SessionId>> = Vec::new();
        for ((a, b), _) in self.scores.iter().filter(|(_, score)| **score >= PAIRED) {
            let (with, without) = groups
                .into_iter()
                .partition::<Vec<_>, _>(|group| group.contains(a) || group.contains(b));
            groups = without;
            groups.push(with.into_iter().flatten().chain([*a, *b]).collect());
        }
        for id in members {
            self.siblings.remove(id);
        }
        for group in &groups {
            for id in group {
                let others = group.iter().copied().filter(|other| other != id);
                self.siblings.insert(*id, others.collect());
            }
        }
    }
}

/// Moves the rates of a group's busy members towards their shares of the sum.
fn divide(sessions: &mut impl Sessions, group: &[SessionId], now: Duration) {
    let mut busy = Vec::new();
    for id in group {
        let Some((_, session)) = sessions.get(*id) else { continue };
        let weight = f64::from(session.share().weight.max(1));
        if let Some(bps) = session.busy_capacity_bps(now) {
            busy.push((*id, weight, bps));
        }
    }
    let (weights, sum) = busy
        .iter()
        .fold((0.0, 0.0), |(weights, sum), (_, weight, bps)| (weights + weight, sum + bps));
    let part = |weight: f64| sum * weight / weights;
    // As far as nobody changes by more than a step. The sum stays.
    let steps =
        busy.iter().map(|(_, weight, bps)| STEP * bps / (part(*weight) - bps).abs().max(1.0));
    let way = steps.fold(1.0, f64::min);
    for (id, weight, bps) in busy {
        if let Some((_, session)) = sessions.get(id) {
            session.set_capacity_bps(bps + way * (part(weight) - bps), now);
            sessions.touch(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_members_of_a_group_take_turns() {
        let group: [SessionId; 4] = [1, 2, 3, 4];
        let mut bottlenecks = Bottlenecks::default();
        for member in group {
            let others = group.into_iter().filter(|other| *other != member).collect();
            bottlenecks.siblings.insert(member, others);
        }
        // Session 4 sends nothing, and session 9 has no siblings.
        let active = [1, 2, 3, 9];
        for (comparisons, whose) in [1, 2, 3, 1, 2, 3].into_iter().enumerate() {
            bottlenecks.comparisons = comparisons;
            let turn = |id| bottlenecks.turn(id, &active);
            let turns = [1, 2, 3].map(turn);
            assert_eq!(turns, [1, 2, 3].map(|id| (id == whose).then_some(3)));
            assert_eq!(turn(9), Some(1));
        }
    }
}
