//! Unasked pushes of the ground to an aircraft that begins without knowing anything: the names that
//! it used to ask for often.
//!
//! On board nobody asks ahead for a name that has not been asked for three times, so in the first minutes
//! the ground alone acts, and only when the aircraft says that it begins; from then on the resolver on
//! board alone keeps fresh what it uses. A name that the aircraft asks for itself is not pushed any more.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hickory_proto::op::{MessageType, Metadata, OpCode};

use crate::key::Key;
use crate::parts::Parts;
use crate::wire::{self, HEADER};

/// Names that are counted: at some 200 bytes each, 100 KiB for an aircraft.
pub const MOST_NAMES: usize = 512;

/// Yesterday's flight counts a quarter.
const HALF_LIFE: Duration = Duration::from_secs(12 * 3600);

/// An aircraft that begins again sooner, or whose message comes twice, is not served anew.
const AT_MOST_EVERY: Duration = Duration::from_secs(60);

/// Overhead of a datagram in addition to its message.
const DATAGRAM_BYTES: usize = 40;

/// The opcode of what is between the gateways alone: passengers' queries that have it are refused.
const OPCODE: OpCode = OpCode::Unknown(15);

/// Says "I begin, and take so many bytes", where the other direction says "I have heard that".
pub fn beginning(bytes: u32, is_reply: bool) -> Vec<u8> {
    let kind = if is_reply { MessageType::Response } else { MessageType::Query };
    let metadata = Metadata::new(0, kind, OPCODE);
    let records = &bytes.to_be_bytes();
    Parts { metadata, question: None, counts: [0; 3], records, edns: None }.write()
}

/// The bytes that the air gateway takes that has sent `message`, if it says that it begins.
pub fn read_beginning(message: &[u8]) -> Option<u32> {
    let bytes = message.get(HEADER..)?.try_into().map(u32::from_be_bytes).ok()?;
    (message[..HEADER] == beginning(bytes, false)[..HEADER]).then_some(bytes)
}

/// `message`, which is an answer, as one that nobody has asked for.
pub fn mark_pushed(message: &mut [u8]) {
    if let Ok((mut header, _)) = wire::header(message) {
        header.metadata.op_code = OPCODE;
        wire::set_header(message, &header);
    }
}

/// The answer in a message that [`mark_pushed`] has marked, or nothing in one that says only that the
/// beginning was heard. `None` for every other.
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
    /// The next goes then.
    free_at: Duration,
}

impl Pusher {
    /// The aircraft has asked for `key`.
    pub fn asked(&mut self, key: &Key, now: Duration) {
        self.decay(now);
        self.queue.retain(|queued| queued != key);
        if let Some(count) = self.names.get_mut(key) {
            *count += 1.0;
            return;
        }
        // What is asked for more often than one in MOST_NAMES is always there: who comes takes over
        // the count of the one that goes (Metwally, Agrawal and El Abbadi, "Space-Saving").
        let mut count = 1.0;
        if self.names.len() >= MOST_NAMES {
            let least = self.names.iter().min_by(|a, b| a.1.total_cmp(b.1).then(a.0.cmp(b.0)));
            let Some((least, of_least)) = least.map(|(key, count)| (key.clone(), *count)) else {
                return;
            };
            self.names.remove(&least);
            count += of_least;
        }
        self.names.insert(key.clone(), count);
    }

    /// The aircraft begins, and takes so many `bytes`: the names it used to ask for most often are due,
    /// the most frequent first.
    pub fn begins(&mut self, bytes: usize, now: Duration) {
        self.decay(now);
        if self.began_at.is_some_and(|at| now < at + AT_MOST_EVERY) {
            return;
        }
        self.began_at = Some(now);
        self.left_bytes = bytes;
        self.free_at = now;
        let mut names: Vec<_> = self.names.iter().collect();
        // Of those asked for equally often the order is that of the names, so that a run can be repeated.
        names.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
        self.queue = names.into_iter().map(|(key, _)| key.clone()).collect();
    }

    /// Time at which [`next`](Self::next) is to be called.
    pub fn next_at(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then_some(self.free_at)
    }

    /// The next name whose answer is to be pushed.
    pub fn next(&mut self, now: Duration) -> Option<Key> {
        if now < self.free_at { None } else { self.queue.pop_front() }
    }

    /// Returns `true` if an answer of so many `bytes` may be pushed now, at so many per second. It
    /// is then counted, and the next waits for its time.
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
    fn messages_between_gateways_are_no_others() {
        assert_eq!(read_beginning(&beginning(65_536, false)), Some(65_536));
        assert_eq!(read_beginning(&beginning(65_536, true)), None);
        assert_eq!(read_pushed(&beginning(65_536, true)), Some(None));
        let answer = crate::testing::address(&key(1).question(0), 300, 1);
        assert_eq!((read_pushed(&answer), read_beginning(&answer)), (None, None));
        let mut pushed = answer.clone();
        mark_pushed(&mut pushed);
        assert_eq!(read_pushed(&pushed), Some(Some(answer)));
    }

    #[test]
    fn what_was_asked_for_most_goes_first_and_old_flights_are_forgotten() {
        let mut pusher = Pusher::default();
        for (n, times) in [(1, 2), (2, 5), (3, 1)] {
            (0..times).for_each(|_| pusher.asked(&key(n), s(10)));
        }
        pusher.begins(1 << 16, s(100));
        assert_eq!(pusher.next_at(), Some(s(100)));
        assert_eq!(pusher.next(s(100)), Some(key(2)));
        assert!(pusher.may_push(60, 100.0, s(100)));
        assert_eq!((pusher.next(s(100)), pusher.next_at()), (None, Some(s(101))));
        assert_eq!(pusher.next(s(101)), Some(key(1)));
        // It asks for the last itself.
        pusher.asked(&key(3), s(101));
        assert_eq!(pusher.next_at(), None);
        // Twice is once.
        pusher.begins(1 << 16, s(120));
        assert_eq!(pusher.next_at(), None);
        pusher.begins(1 << 16, s(160));
        assert!(pusher.next_at().is_some());
        pusher.begins(1 << 16, s(10 * 24 * 3600));
        assert_eq!((pusher.next_at(), pusher.names.len()), (None, 0));
    }

    proptest! {
        /// Never more bytes than were asked for, nor faster, nor what the aircraft has asked for.
        #[test]
        fn pushes_stay_within_their_bounds(
            asked in prop::collection::vec(0u32..2000, 1..3000),
            bytes in 0usize..20_000, rate in 100f64..10_000.0,
            meanwhile in prop::collection::vec(0u32..2000, 0..50), size in 20usize..1200,
        ) {
            let mut pusher = Pusher::default();
            for n in &asked {
                pusher.asked(&key(*n), s(1));
                prop_assert!(pusher.names.len() <= MOST_NAMES);
            }
            pusher.begins(bytes, s(2));
            for n in &meanwhile {
                pusher.asked(&key(*n), s(2));
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

        /// However many others are asked for once, what is asked for often is found.
        #[test]
        fn frequent_names_are_never_lost(rare in 1000u32..4000, step in 2u32..100) {
            let mut pusher = Pusher::default();
            for n in 0..rare {
                pusher.asked(&key(n + 1), s(1));
                if n % step == 0 {
                    pusher.asked(&key(0), s(1));
                }
            }
            prop_assert!(pusher.names.contains_key(&key(0)));
        }
    }
}
