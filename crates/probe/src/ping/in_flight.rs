//! Pings whose replies are awaited.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Outcome, PATIENCE};
use crate::target::Method;

/// Time for which a lost ping is remembered, so that a straggling reply can be recorded.
const MEMORY: Duration = Duration::from_secs(60);

/// Maximum number of pings remembered: 60 s at one each 2 s, for the current method and a scout. 64 × 40 bytes =
/// 2.5 KiB for each target.
const MAX_REMEMBERED: usize = 64;

/// A ping that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time of the send.
    pub at: Duration,
    /// Delay after the scheduled time.
    pub start_error: Duration,
    /// Method.
    pub method: Method,
    /// Set if the ping tries another method.
    pub scout: bool,
}

/// A ping without a reply in time.
pub type Expired = (u32, Sent);

/// Meaning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first reply in time.
    Answered(Sent, Outcome),
    /// The first reply after the ping was counted as lost, with its round-trip time.
    Straggler(Duration),
    /// A duplicate, or a reply to nothing that was sent.
    Unknown,
}

/// Pings of one target, by number.
#[derive(Debug, Default)]
pub struct InFlight {
    waiting: BTreeMap<u32, Sent>,
    lost: BTreeMap<u32, Sent>,
}

impl InFlight {
    /// Notes a ping that was sent.
    pub fn sent(&mut self, sequence: u32, sent: Sent) {
        self.waiting.insert(sequence, sent);
    }

    /// Judges the reply to ping `sequence`.
    pub fn replied(&mut self, sequence: u32, at: Duration, refused: bool) -> Verdict {
        if let Some(sent) = self.waiting.remove(&sequence) {
            let rtt = at.saturating_sub(sent.at);
            return Verdict::Answered(sent, Outcome::of_reply(rtt, refused));
        }
        match self.lost.remove(&sequence) {
            Some(sent) => Verdict::Straggler(at.saturating_sub(sent.at)),
            None => Verdict::Unknown,
        }
    }

    /// Takes out the pings that are lost at `now`.
    pub fn expire(&mut self, now: Duration) -> Vec<Expired> {
        let due = |sent: &Sent| sent.at + PATIENCE <= now;
        let gone: Vec<Expired> = self
            .waiting
            .iter()
            .filter(|(_, sent)| due(sent))
            .map(|(k, sent)| (*k, *sent))
            .collect();
        self.waiting.retain(|_, sent| !due(sent));
        self.lost.extend(gone.iter().copied());
        self.lost.retain(|_, sent| sent.at + MEMORY > now);
        while self.lost.len() > MAX_REMEMBERED {
            self.lost.pop_first();
        }
        gone
    }

    /// Time at which the next ping is lost.
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.values().map(|sent| sent.at + PATIENCE).min()
    }

    /// Number of the oldest ping whose reply is awaited.
    pub fn oldest(&self) -> Option<u32> {
        self.waiting.keys().next().copied()
    }

    /// Number of pings whose replies are awaited.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sent(at: Duration) -> Sent {
        Sent { at, start_error: Duration::ZERO, method: Method::Icmp, scout: false }
    }

    #[test]
    fn replies_are_in_time_late_or_stragglers() {
        let mut pings = InFlight::default();
        for number in 0..3 {
            pings.sent(number, sent(2000 * number * MS));
        }
        let Verdict::Answered(_, first) = pings.replied(0, 761 * MS, false) else { panic!() };
        assert_eq!(first, Outcome::Reply { rtt_us: 761_000, refused: false });
        assert_eq!(pings.replied(0, 762 * MS, false), Verdict::Unknown, "a duplicate");
        let Verdict::Answered(_, late) = pings.replied(1, 2000 * MS + 9999 * MS, false) else {
            panic!()
        };
        assert_eq!(late, Outcome::Late { rtt_us: 9_999_000, refused: false });
        assert_eq!(pings.deadline(), Some(14_000 * MS));
        assert!(pings.expire(13_999 * MS).is_empty());
        assert_eq!(pings.expire(14_000 * MS), [(2, sent(4000 * MS))]);
        assert_eq!(pings.replied(2, 16_000 * MS, false), Verdict::Straggler(12_000 * MS));
        assert_eq!(pings.replied(2, 16_001 * MS, false), Verdict::Unknown);
        assert_eq!(pings.replied(99, 16_001 * MS, false), Verdict::Unknown);
    }

    #[test]
    fn memory_of_lost_pings_is_bounded() {
        let mut pings = InFlight::default();
        for number in 0..10_000 {
            let at = 2 * number * MS;
            pings.sent(number, sent(at));
            pings.expire(at);
        }
        assert!(pings.lost.len() <= MAX_REMEMBERED);
        assert_eq!(pings.waiting(), 5000, "10 s at one each 2 ms");
    }
}
