//! Questions under way to the ground, and how long each may take.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::key::Key;
use crate::query::{Query, Room};

/// How long the first question may take before it is sent again.
const FIRST_WAIT: Duration = Duration::from_millis(1500);

/// However quick answers are, and however slow.
const LEAST_WAIT: Duration = Duration::from_millis(300);
const MOST_WAIT: Duration = Duration::from_secs(3);

/// A question is sent this often in all.
const TRIES: u32 = 3;

/// A question over a stream is not sent again: the transport sees to it.
const STREAM_WAIT: Duration = Duration::from_secs(10);

/// Clients that wait for one question; the next is told that it failed.
const MOST_WAITING: usize = 256;

/// Who waits for an answer.
pub struct Waiting<C> {
    /// What to call the client.
    pub client: C,
    /// What it asked.
    pub query: Query,
    /// How much answer it takes.
    pub room: Room,
}

/// A question under way.
pub struct Ask<C> {
    pub key: Key,
    /// Who waits for it.
    pub waiting: Vec<Waiting<C>>,
    /// It was asked ahead of any query.
    pub ahead: bool,
    over_stream: bool,
    tries: u32,
    sent_at: Duration,
    due: Duration,
}

/// All of them.
pub struct Asks<C> {
    asks: HashMap<u16, Ask<C>>,
    by_key: HashMap<Key, u16>,
    timers: BTreeSet<(Duration, u16)>,
    next_id: u16,
    round_trip: RoundTrip,
}

/// What a timer came to.
pub enum Late<C> {
    /// It is to be sent again.
    Again(u16),
    /// Nothing came.
    Over(Ask<C>),
}

impl<C> Asks<C> {
    pub fn new() -> Self {
        let (asks, by_key, timers, next_id) = Default::default();
        Self { asks, by_key, timers, next_id, round_trip: RoundTrip::default() }
    }

    pub fn len(&self) -> usize {
        self.asks.len()
    }

    /// The one about `key`.
    pub fn about(&mut self, key: &Key) -> Option<&mut Ask<C>> {
        self.asks.get_mut(self.by_key.get(key)?)
    }

    pub fn get(&self, id: u16) -> Option<&Ask<C>> {
        self.asks.get(&id)
    }

    /// Begins one about `key`, of which there is none, and gives its id. There have to be fewer than
    /// 65,536.
    pub fn begin(&mut self, key: Key, ahead: bool, now: Duration) -> u16 {
        while self.asks.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let due = now + self.round_trip.patience();
        let (waiting, over_stream) = (Vec::new(), false);
        let ask =
            Ask { key: key.clone(), waiting, ahead, over_stream, tries: 1, sent_at: now, due };
        self.asks.insert(id, ask);
        self.by_key.insert(key, id);
        self.timers.insert((due, id));
        id
    }

    /// It did not fit into a datagram: it is asked over a stream now. False where it is already.
    pub fn over_stream(&mut self, id: u16, now: Duration) -> bool {
        let Some(ask) = self.asks.get_mut(&id).filter(|ask| !ask.over_stream) else { return false };
        ask.over_stream = true;
        self.timers.remove(&(ask.due, id));
        ask.due = now + STREAM_WAIT;
        self.timers.insert((ask.due, id));
        true
    }

    /// It is over. `answered` tells how long answers take.
    pub fn end(&mut self, id: u16, answered: Option<Duration>) -> Option<Ask<C>> {
        let ask = self.asks.remove(&id)?;
        self.by_key.remove(&ask.key);
        self.timers.remove(&(ask.due, id));
        // Which of several an answer is to, nobody knows (Karn).
        if let Some(now) = answered.filter(|_| ask.tries == 1 && !ask.over_stream) {
            self.round_trip.took(now.saturating_sub(ask.sent_at));
        }
        Some(ask)
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// One that has taken too long.
    pub fn late(&mut self, now: Duration) -> Option<Late<C>> {
        let (at, id) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        let patience = self.round_trip.patience();
        let ask = self.asks.get_mut(&id)?;
        if ask.over_stream || ask.tries >= TRIES {
            return self.end(id, None).map(Late::Over);
        }
        self.timers.remove(&(at, id));
        // Twice as long each time.
        ask.due = now + (patience * (1 << ask.tries)).min(MOST_WAIT);
        ask.tries += 1;
        self.timers.insert((ask.due, id));
        Some(Late::Again(id))
    }
}

impl<C> Ask<C> {
    /// One more waits; false where there are too many.
    pub fn join(&mut self, waiting: Waiting<C>) -> bool {
        let room = self.waiting.len() < MOST_WAITING;
        if room {
            self.waiting.push(waiting);
        }
        room
    }
}

/// How long answers take: RFC 6298's estimate, with bounds of our own.
#[derive(Default)]
struct RoundTrip {
    /// The smoothed time and its deviation.
    known: Option<(Duration, Duration)>,
}

impl RoundTrip {
    fn took(&mut self, time: Duration) {
        self.known = Some(match self.known {
            None => (time, time / 2),
            Some((mean, deviation)) => {
                ((mean * 7 + time) / 8, (deviation * 3 + mean.abs_diff(time)) / 4)
            }
        });
    }

    fn patience(&self) -> Duration {
        let wait = self.known.map_or(FIRST_WAIT, |(mean, deviation)| mean + 4 * deviation);
        wait.clamp(LEAST_WAIT, MOST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, query};
    use hickory_proto::rr::RecordType;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn patience_follows_the_link() {
        let mut asks = Asks::<()>::new();
        for n in 0..50 {
            let key = key(&query(&format!("n{n}.test."), RecordType::A));
            let id = asks.begin(key, false, ms(n * 1000));
            asks.end(id, Some(ms(n * 1000 + 760)));
        }
        let patience = asks.round_trip.patience();
        assert!((ms(760)..ms(800)).contains(&patience), "{patience:?}");
        assert_eq!((asks.len(), asks.timers.len(), asks.by_key.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_lost_is_sent_again_and_given_up() {
        let mut asks = Asks::<()>::new();
        let id = asks.begin(key(&query("a.test.", RecordType::A)), false, ms(0));
        let mut sent_at = vec![];
        let over = loop {
            let now = asks.next_timer().unwrap();
            match asks.late(now) {
                Some(Late::Again(again)) => {
                    assert_eq!(again, id);
                    sent_at.push(now);
                }
                Some(Late::Over(_)) => break now,
                None => panic!("a timer that is not due"),
            }
        };
        assert_eq!((sent_at, over), (vec![ms(1500), ms(4500)], ms(7500)));
    }
}
