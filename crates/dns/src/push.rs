//! Push of frequent answers from the ground to an aircraft that starts with an empty cache.
//!
//! The air resolver prefetches a name only after three queries, so it does not prefetch in its
//! first minutes. The ground acts only during this time, and only when the aircraft announces its
//! start. From then on the air resolver keeps used answers fresh by itself. The ground no longer
//! pushes a name that the aircraft queries itself.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hickory_proto::op::{MessageType, Metadata, OpCode};

use crate::key::Key;
use crate::parts::Parts;
use crate::wire::{self, HEADER};

/// Number of names counted per aircraft: 512 × about 200 bytes = 100 KiB.
pub const MAX_NAMES: usize = 512;

/// Half-life of the counts: a flight of the day before counts a quarter.
const HALF_LIFE: Duration = Duration::from_secs(12 * 3600);

/// Minimum interval between pushes. An aircraft that restarts sooner, or whose message arrives
/// twice, gets no new push.
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// Overhead of a datagram in addition to its message.
const DATAGRAM_BYTES: usize = 40;

/// Opcode of messages between the gateways. Passengers' queries with it are refused.
const OPCODE: OpCode = OpCode::Unknown(15);

/// Encodes a start announcement with the number of bytes accepted, or its acknowledgement in the
/// other direction.
pub fn start(bytes: u32, is_reply: bool) -> Vec<u8> {
    let kind = if is_reply { MessageType::Response } else { MessageType::Query };
    let metadata = Metadata::new(0, kind, OPCODE);
    let records = &bytes.to_be_bytes();
    Parts { metadata, question: None, counts: [0; 3], records, edns: None }.write()
}

/// Number of bytes that the air gateway accepts, if `message` is a start announcement.
pub fn read_start(message: &[u8]) -> Option<u32> {
    let bytes = message.get(HEADER..)?.try_into().map(u32::from_be_bytes).ok()?;
    (message[..HEADER] == start(bytes, false)[..HEADER]).then_some(bytes)
}

/// Marks `message`, an answer, as pushed.
pub fn mark_pushed(message: &mut [u8]) {
    if let Ok((mut header, _)) = wire::header(message) {
        header.metadata.op_code = OPCODE;
        wire::set_header(message, &header);
    }
}

/// Answer in a message that [`mark_pushed`] has marked; `Some(None)` for an acknowledgement; `None`
/// for every other message.
pub fn read_pushed(message: &[u8]) -> Option<Option<Vec<u8>>> {
    let (mut header, _) = wire::header(message).ok()?;
    let is_pushed = header.op_code == OPCODE && header.message_type == MessageType::Response;
    let mut answer = is_pushed.then(|| message.to_vec())?;
    header.metadata.op_code = OpCode::Query;
    wire::set_header(&mut answer, &header);
    Some((header.counts.queries == 1).then_some(answer))
}

/// Frequent names of one aircraft, and their push.
#[derive(Debug, Default)]
pub struct Pusher {
    /// Frequency of each name, with decay.
    names: HashMap<Key, f32>,
    halved_at: Duration,
    queue: VecDeque<Key>,
    left_bytes: usize,
    began_at: Option<Duration>,
    /// Time of the next push.
    free_at: Duration,
}

impl Pusher {
    /// Counts a query of the aircraft for `key`.
    pub fn count_query(&mut self, key: &Key, now: Duration) {
        self.decay(now);
        self.queue.retain(|queued| queued != key);
        if let Some(count) = self.names.get_mut(key) {
            *count += 1.0;
            return;
        }
        // A name with more than one query in MAX_NAMES is always present: a new name takes over the
        // count of the one that it replaces (Metwally, Agrawal and El Abbadi, "Space-Saving").
        let mut count = 1.0;
        if self.names.len() >= MAX_NAMES {
            let least = self.names.iter().min_by(|a, b| a.1.total_cmp(b.1).then(a.0.cmp(b.0)));
            let Some((least, of_least)) = least.map(|(key, count)| (key.clone(), *count)) else {
                return;
            };
            self.names.remove(&least);
            count += of_least;
        }
        self.names.insert(key.clone(), count);
    }

    /// Starts a push to an aircraft that accepts `bytes`. The most frequent names are queued first.
    pub fn start_push(&mut self, bytes: usize, now: Duration) {
        self.decay(now);
        if self.began_at.is_some_and(|at| now < at + MIN_INTERVAL) {
            return;
        }
        self.began_at = Some(now);
        self.left_bytes = bytes;
        self.free_at = now;
        let mut names: Vec<_> = self.names.iter().collect();
        // Equally frequent names are ordered by name, so that a run can be repeated.
        names.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
        self.queue = names.into_iter().map(|(key, _)| key.clone()).collect();
    }

    /// Time at which [`next`](Self::next) must be called.
    pub fn next_at(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then_some(self.free_at)
    }

    /// Returns the next name whose answer should be pushed.
    pub fn next(&mut self, now: Duration) -> Option<Key> {
        if now < self.free_at { None } else { self.queue.pop_front() }
    }

    /// Returns `true` if an answer of `bytes` may be pushed now at `bytes_per_second`. If so, it is
    /// counted, and the next one waits for its time.
    pub fn may_push(&mut self, bytes: usize, bytes_per_second: f64, now: Duration) -> bool {
        let Some(left) = self.left_bytes.checked_sub(bytes + DATAGRAM_BYTES) else {
            self.queue.clear();
            return false;
        };
        self.left_bytes = left;
        let takes = (bytes + DATAGRAM_BYTES) as f64 / bytes_per_second.max(1.0);
        self.free_at = self.free_at.max(now) + Duration::from_secs_f64(takes);
        true
    }

    fn decay(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.halved_at).as_secs() / HALF_LIFE.as_secs();
        if passed == 0 {
            return;
        }
        self.halved_at += HALF_LIFE * u32::try_from(passed).unwrap_or(u32::MAX);
        let left = 0.5f32.powi(i32::try_from(passed).unwrap_or(i32::MAX));
        self.names.retain(|_, count| {
            *count *= left;
            *count >= 0.1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Question;
    use hickory_proto::rr::{DNSClass, RecordType};
    use proptest::prelude::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn key(n: u32) -> Key {
        let name = format!("n{n}");
        let name = [&[name.len() as u8][..], name.as_bytes(), &[0]].concat();
        let (kind, class) = (RecordType::A, DNSClass::IN);
        Key::new(Question { name: &name, kind, class }, false, false)
    }

    #[test]
    fn gateway_messages_are_distinct() {
        assert_eq!(read_start(&start(65_536, false)), Some(65_536));
        assert_eq!(read_start(&start(65_536, true)), None);
        assert_eq!(read_pushed(&start(65_536, true)), Some(None));
        let answer = crate::testing::address(&key(1).question(0), 300, 1);
        assert_eq!((read_pushed(&answer), read_start(&answer)), (None, None));
        let mut pushed = answer.clone();
        mark_pushed(&mut pushed);
        assert_eq!(read_pushed(&pushed), Some(Some(answer)));
    }

    #[test]
    fn frequent_names_go_first_and_old_flights_are_forgotten() {
        let mut pusher = Pusher::default();
        for (n, times) in [(1, 2), (2, 5), (3, 1)] {
            (0..times).for_each(|_| pusher.count_query(&key(n), s(10)));
        }
        pusher.start_push(1 << 16, s(100));
        assert_eq!(pusher.next_at(), Some(s(100)));
        assert_eq!(pusher.next(s(100)), Some(key(2)));
        assert!(pusher.may_push(60, 100.0, s(100)));
        assert_eq!((pusher.next(s(100)), pusher.next_at()), (None, Some(s(101))));
        assert_eq!(pusher.next(s(101)), Some(key(1)));
        // The aircraft queries the last name itself.
        pusher.count_query(&key(3), s(101));
        assert_eq!(pusher.next_at(), None);
        // A repeated announcement has no effect.
        pusher.start_push(1 << 16, s(120));
        assert_eq!(pusher.next_at(), None);
        pusher.start_push(1 << 16, s(160));
        assert!(pusher.next_at().is_some());
        pusher.start_push(1 << 16, s(10 * 24 * 3600));
        assert_eq!((pusher.next_at(), pusher.names.len()), (None, 0));
    }

    proptest! {
        /// A push never exceeds the accepted bytes or the rate, and never contains names that the
        /// aircraft has queried.
        #[test]
        fn pushes_stay_within_their_bounds(
            queried in prop::collection::vec(0u32..2000, 1..3000),
            bytes in 0usize..20_000, rate in 100f64..10_000.0,
            meanwhile in prop::collection::vec(0u32..2000, 0..50), size in 20usize..1200,
        ) {
            let mut pusher = Pusher::default();
            for n in &queried {
                pusher.count_query(&key(*n), s(1));
                prop_assert!(pusher.names.len() <= MAX_NAMES);
            }
            pusher.start_push(bytes, s(2));
            for n in &meanwhile {
                pusher.count_query(&key(*n), s(2));
            }
            let (mut sent, mut keys) = (0, Vec::new());
            while let Some(at) = pusher.next_at() {
                let key = pusher.next(at).unwrap();
                prop_assert!(!keys.contains(&key), "twice");
                keys.push(key);
                let in_time = (at - s(2)).as_secs_f64() * rate;
                prop_assert!(sent as f64 <= in_time + 1.0, "{} bytes in {:?}", sent, at);
                if pusher.may_push(size, rate, at) {
                    sent += size + DATAGRAM_BYTES;
                }
            }
            prop_assert!(sent <= bytes);
            prop_assert!(meanwhile.iter().all(|n| !keys.contains(&key(*n))));
        }

        /// A frequent name is found, however many others are queried once.
        #[test]
        fn frequent_names_are_never_lost(rare in 1000u32..4000, step in 2u32..100) {
            let mut pusher = Pusher::default();
            for n in 0..rare {
                pusher.count_query(&key(n + 1), s(1));
                if n % step == 0 {
                    pusher.count_query(&key(0), s(1));
                }
            }
            prop_assert!(pusher.names.contains_key(&key(0)));
        }
    }
}
