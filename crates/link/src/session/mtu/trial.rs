//! Does the path carry packets of this size?
//!
//! Probes go in pairs, one of the size in question and one of a size that the path carries, in
//! turns either first. Loss takes both alike, so a pair of which only the smaller came is a sign,
//! and one of which neither came is none; and one large packet that came settles it. Let p be the
//! loss. That n signs come before any large packet does, although the path carries both, has at
//! most the probability (p/(1+p))^n: a pair is a sign with at most p·(1−p), and says yes with 1−p.
//! Bursts of losses take both of a pair and make signs rarer. So the size is too large once that
//! probability has become small enough, with p as the larger of what was measured before and what
//! became of the smaller packets here.

use std::collections::VecDeque;
use std::time::Duration;

use crate::rtt::Rtt;
use crate::settings::MIN_MTU_BYTES;

/// Pairs are this part of a round trip apart, once the first has been waited for: bursts of losses
/// are shorter on the links we know.
const PER_ROUND_TRIP: u32 = 8;
/// Pairs are never closer, however short the path.
const LEAST_INTERVAL: Duration = Duration::from_millis(25);
/// After so many pairs without a verdict there is one in each round trip.
const MANY_PAIRS: u32 = 64;
/// After so many pairs in a row of which nothing came, they go ever more rarely.
const MANY_IN_VAIN: u32 = 8;
/// Pairs that wait for their fate: what leaves in four round trips.
const MAX_WAITING: usize = 32;
/// Added to what is overdue: the reports' own pacing on a short path.
const SLACK: Duration = Duration::from_millis(50);
/// Before anything is known two of six packets count as lost.
const PRIOR_LOST: u32 = 2;
const PRIOR: u32 = 6;

/// Result of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet.
    Open,
    /// The path does not carry it.
    TooLarge,
}

/// The trial of one size.
#[derive(Debug)]
pub struct Trial {
    bytes: usize,
    from: u64,
    /// The next pair's first packet leaves then.
    next_pair: Duration,
    /// The first of a pair has left, the second is due.
    half: Option<Option<u64>>,
    waiting: VecDeque<Pair>,
    pairs: u32,
    /// Pairs in a row of which nothing came.
    in_vain: u32,
    signs: u32,
    known_lost: u32,
}

/// A pair that has left.
#[derive(Debug)]
struct Pair {
    /// The smaller packet's number.
    known: u64,
    came: bool,
    judged_at: Duration,
}

impl Trial {
    /// A trial of `bytes` that begins at once, before `next_packet` leaves.
    pub fn new(bytes: usize, next_packet: u64, now: Duration) -> Self {
        Self {
            bytes,
            from: next_packet,
            next_pair: now,
            half: None,
            waiting: VecDeque::new(),
            pairs: 0,
            in_vain: 0,
            signs: 0,
            known_lost: 0,
        }
    }

    /// The size in question.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if `packet` left after the trial had begun.
    pub fn is_later(&self, packet: u64) -> bool {
        packet >= self.from
    }

    /// Time at which the next packet should leave; `None` while enough wait for their fate.
    pub fn due_at(&self) -> Option<Duration> {
        (self.waiting.len() < MAX_WAITING).then_some(self.next_pair)
    }

    /// The next packet's size, and whether the path is known to carry it.
    pub fn next_probe(&self) -> (usize, bool) {
        let large_first = self.pairs.is_multiple_of(2);
        let large = large_first == self.half.is_none();
        if large { (self.bytes, false) } else { (MIN_MTU_BYTES, true) }
    }

    /// That packet left.
    pub fn sent(&mut self, packet: u64, rtt: &Rtt, now: Duration) {
        let known = self.next_probe().1.then_some(packet);
        let Some(first) = self.half.take() else {
            self.half = Some(known);
            return;
        };
        let interval = (rtt.get() / PER_ROUND_TRIP).max(LEAST_INTERVAL);
        let judged_at = now + rtt.overdue_after() + interval + SLACK;
        if let Some(known) = known.or(first) {
            self.waiting.push_back(Pair { known, came: false, judged_at });
        }
        self.pairs = self.pairs.saturating_add(1);
        self.next_pair = match self.pairs {
            1 => judged_at,
            MANY_PAIRS.. => now + rtt.get().max(LEAST_INTERVAL),
            // Where nothing comes at all the link is out, and more of the same would not help.
            _ => now + interval * (1 + self.in_vain.saturating_sub(MANY_IN_VAIN)),
        };
    }

    /// The peer has `packet`.
    pub fn arrived(&mut self, packet: u64) {
        if let Some(pair) = self.waiting.iter_mut().find(|pair| pair.known == packet) {
            pair.came = true;
        }
    }

    /// Nothing is heard: what is under way says nothing, and the next pair waits.
    pub fn interrupt(&mut self, now: Duration) {
        self.waiting.clear();
        self.half = None;
        self.next_pair = self.next_pair.max(now);
    }

    /// Time at which the oldest pair's fate is known.
    pub fn judged_at(&self) -> Option<Duration> {
        self.waiting.front().map(|pair| pair.judged_at)
    }

    /// Judges, where `loss` was measured before and an error may happen once in `sure` trials.
    pub fn judge(&mut self, loss: f64, sure: f64, now: Duration) -> Verdict {
        let mut verdict = Verdict::Open;
        while self.judged_at().is_some_and(|at| at <= now)
            && let Some(pair) = self.waiting.pop_front()
        {
            if !pair.came {
                self.known_lost += 1;
                self.in_vain += 1;
                continue;
            }
            self.in_vain = 0;
            self.signs += 1;
            let seen = f64::from(self.known_lost + PRIOR_LOST)
                / f64::from(self.known_lost + self.signs + PRIOR);
            let p = loss.max(seen);
            if f64::from(self.signs) * (p / (1.0 + p)).ln() <= -sure.ln() {
                verdict = Verdict::TooLarge;
            }
        }
        verdict
    }
}
