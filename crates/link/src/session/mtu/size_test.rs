//! Test of one packet size: does the path carry it?
//!
//! Probes are sent in pairs, one of the tested size and one of a size that the path carries, with
//! either one first in turns. Loss takes both alike. So a pair of which only the smaller packet
//! arrived is a sign, and one of which neither arrived is not. One large packet that arrived
//! decides.
//!
//! Let p be the loss. If the path carries both sizes, the probability of n signs before any large
//! packet arrives is at most (p/(1+p))^n: a pair is a sign with probability at most p·(1−p), and
//! decides in favour with 1−p. Bursts of losses take both packets of a pair and make signs rarer.
//! The size is too large once that probability is small enough. The larger of two losses counts as
//! p: the one measured before, and that of the smaller packets here.

use std::collections::VecDeque;
use std::time::Duration;

use crate::rtt::Rtt;
use crate::settings::MIN_MTU_BYTES;

/// Number of pairs in a round trip once the first was waited for. Bursts of losses are shorter than
/// their distance on the links we know.
const PER_ROUND_TRIP: u32 = 8;
/// Minimum interval of pairs, on short paths.
const MIN_INTERVAL: Duration = Duration::from_millis(25);
/// Number of pairs without a result after which there is one in each round trip.
const MANY_PAIRS: u32 = 64;
/// Number of pairs in a row without an arrival after which they become less and less frequent.
const MANY_UNANSWERED: u32 = 8;
/// Maximum number of pairs without an outcome: those sent in four round trips.
const MAX_WAITING: usize = 32;
/// Slack added to the timeout: the reports' own pacing on a short path.
const SLACK: Duration = Duration::from_millis(50);
/// Prior: two of six packets count as lost.
const PRIOR_LOST: u32 = 2;
const PRIOR: u32 = 6;

/// Result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestResult {
    /// Undecided.
    Open,
    /// The path does not carry the size.
    TooLarge,
}

/// The test of one size.
#[derive(Debug)]
pub struct SizeTest {
    bytes: usize,
    from: u64,
    /// Time at which the first packet of the next pair is sent.
    next_pair: Duration,
    /// The first packet of a pair was sent, and the second is due.
    half: Option<Option<u64>>,
    waiting: VecDeque<Pair>,
    pairs: u32,
    /// Pairs in a row without an arrival.
    unanswered: u32,
    signs: u32,
    known_lost: u32,
}

/// A pair that was sent.
#[derive(Debug)]
struct Pair {
    /// Number of the smaller packet.
    known: u64,
    came: bool,
    judged_at: Duration,
}

impl SizeTest {
    /// Creates a test of `bytes` that begins at once, before `next_packet` is sent.
    pub fn new(bytes: usize, next_packet: u64, now: Duration) -> Self {
        Self {
            bytes,
            from: next_packet,
            next_pair: now,
            half: None,
            waiting: VecDeque::new(),
            pairs: 0,
            unanswered: 0,
            signs: 0,
            known_lost: 0,
        }
    }

    /// The tested size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if `packet` was sent after the beginning of the test.
    pub fn is_later(&self, packet: u64) -> bool {
        packet >= self.from
    }

    /// Time at which the next packet should be sent; `None` while enough packets await their
    /// outcome.
    pub fn due_at(&self) -> Option<Duration> {
        (self.waiting.len() < MAX_WAITING).then_some(self.next_pair)
    }

    /// Size of the next packet, and whether the path is known to carry it.
    pub fn next_probe(&self) -> (usize, bool) {
        let large_first = self.pairs.is_multiple_of(2);
        let large = large_first == self.half.is_none();
        if large { (self.bytes, false) } else { (MIN_MTU_BYTES, true) }
    }

    /// Notes that the next packet was sent.
    pub fn sent(&mut self, packet: u64, rtt: &Rtt, now: Duration) {
        let known = self.next_probe().1.then_some(packet);
        let Some(first) = self.half.take() else {
            self.half = Some(known);
            return;
        };
        let interval = (rtt.get() / PER_ROUND_TRIP).max(MIN_INTERVAL);
        let judged_at = now + rtt.overdue_after() + interval + SLACK;
        if let Some(known) = known.or(first) {
            self.waiting.push_back(Pair { known, came: false, judged_at });
        }
        self.pairs = self.pairs.saturating_add(1);
        self.next_pair = match self.pairs {
            1 => judged_at,
            MANY_PAIRS.. => now + rtt.get().max(MIN_INTERVAL),
            // If nothing arrives at all, there is an outage, and more probes would not help.
            _ => now + interval * (1 + self.unanswered.saturating_sub(MANY_UNANSWERED)),
        };
    }

    /// Notes that `packet` has arrived at the peer.
    pub fn arrived(&mut self, packet: u64) {
        if let Some(pair) = self.waiting.iter_mut().find(|pair| pair.known == packet) {
            pair.came = true;
        }
    }

    /// Notes an outage: packets in flight say nothing, and the next pair waits.
    pub fn interrupt(&mut self, now: Duration) {
        self.waiting.clear();
        self.half = None;
        self.next_pair = self.next_pair.max(now);
    }

    /// Time at which the oldest pair's outcome is known.
    pub fn judged_at(&self) -> Option<Duration> {
        self.waiting.front().map(|pair| pair.judged_at)
    }

    /// Judges the pairs. `loss` was measured before, and one mistake in `sure` tests is permitted.
    pub fn judge(&mut self, loss: f64, sure: f64, now: Duration) -> TestResult {
        let mut verdict = TestResult::Open;
        while self.judged_at().is_some_and(|at| at <= now)
            && let Some(pair) = self.waiting.pop_front()
        {
            if !pair.came {
                self.known_lost += 1;
                self.unanswered += 1;
                continue;
            }
            self.unanswered = 0;
            self.signs += 1;
            let seen = f64::from(self.known_lost + PRIOR_LOST)
                / f64::from(self.known_lost + self.signs + PRIOR);
            let p = loss.max(seen);
            if f64::from(self.signs) * (p / (1.0 + p)).ln() <= -sure.ln() {
                verdict = TestResult::TooLarge;
            }
        }
        verdict
    }
}
