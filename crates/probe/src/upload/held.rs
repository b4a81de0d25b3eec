//! The receiver's batches, and what it accepts.

use std::collections::BTreeMap;

use super::batch::Name;

/// Maximum number of sessions, and of batches of all: 32 bytes each, 32 MB together.
const MAX_SESSIONS: usize = 100_000;
const MAX_BATCHES: usize = 1_000_000;

/// Maximum number of batches of a session, and of their bytes. A flight of 12 h has some 500 batches of 16 kB.
const MAX_SESSION_BATCHES: usize = 65_536;
const MAX_SESSION_BYTES: u64 = 1 << 30;

/// Maximum number of bytes of all batches.
const MAX_BYTES: u64 = 10 << 30;

/// Size of a block of the disk, to which files are rounded up.
const BLOCK: u64 = 4096;

/// Batches of a receiver.
#[derive(Debug, Default)]
pub struct Held {
    sessions: BTreeMap<String, OfSession>,
    batches: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct OfSession {
    /// In the order of their records.
    batches: Vec<Entry>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    first: u64,
    last: u64,
    records: u64,
    /// Records of the session up to the last of this batch.
    total: u64,
}

/// Answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the session's next one. With it the session has `total` records.
    Next {
        /// Records.
        total: u64,
    },
    /// A batch of this name is there.
    There {
        /// Records of the session up to the last of this batch.
        total: u64,
    },
    /// It overlaps other batches, or comes too late.
    Conflict,
    /// A bound is reached.
    Full(&'static str),
}

impl Held {
    /// Decides on a batch of so many bytes.
    pub fn verdict(&self, name: &Name, bytes: u64) -> Verdict {
        let none = OfSession::default();
        let session = self.sessions.get(&name.session).unwrap_or(&none);
        let place = session.batches.binary_search_by_key(&name.first, |entry| entry.first);
        if let Ok(place) = place {
            let entry = session.batches[place];
            let same = (entry.last, entry.records) == (name.last, name.records);
            return if same { Verdict::There { total: entry.total } } else { Verdict::Conflict };
        }
        let (last, total) =
            session.batches.last().map_or((0, 0), |entry| (entry.last, entry.total));
        if name.first <= last {
            return Verdict::Conflict;
        }
        let bytes = on_disk(bytes);
        if session.batches.len() >= MAX_SESSION_BATCHES || session.bytes + bytes > MAX_SESSION_BYTES
        {
            Verdict::Full("the session has too many records")
        } else if self.batches >= MAX_BATCHES || self.bytes + bytes > MAX_BYTES {
            Verdict::Full("the receiver has no room for further batches")
        } else if session.batches.is_empty() && self.sessions.len() >= MAX_SESSIONS {
            Verdict::Full("the receiver has no room for further sessions")
        } else {
            Verdict::Next { total: total + name.records }
        }
    }

    /// Adds a batch after all others of its session.
    pub fn add(&mut self, name: &Name, bytes: u64) {
        let session = self.sessions.entry(name.session.clone()).or_default();
        let total = session.batches.last().map_or(0, |entry| entry.total) + name.records;
        let Name { first, last, records, .. } = *name;
        session.batches.push(Entry { first, last, records, total });
        session.bytes += on_disk(bytes);
        self.batches += 1;
        self.bytes += on_disk(bytes);
    }

    /// The last batch of a session, and the number of the session's records.
    pub fn last(&self, session: &str) -> Option<(Name, u64)> {
        let entry = self.sessions.get(session)?.batches.last()?;
        let Entry { first, last, records, total } = *entry;
        Some((Name { session: session.to_owned(), first, last, records }, total))
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(first: u64, last: u64) -> Name {
        Name { session: "0".repeat(32), first, last, records: last - first + 1 }
    }

    #[test]
    fn batches_follow_each_other() {
        let mut held = Held::default();
        assert_eq!(held.last(&name(1, 1).session), None);
        for (first, last, total) in [(1, 10, 10), (11, 20, 20), (25, 30, 26)] {
            assert_eq!(held.verdict(&name(first, last), 5000), Verdict::Next { total });
            held.add(&name(first, last), 5000);
        }
        assert_eq!(held.verdict(&name(11, 20), 1), Verdict::There { total: 20 });
        for (first, last) in [(11, 19), (5, 12), (21, 24), (30, 40), (1, 40)] {
            assert_eq!(held.verdict(&name(first, last), 1), Verdict::Conflict, "{first}-{last}");
        }
        assert_eq!(held.last(&name(1, 1).session), Some((name(25, 30), 26)));
        assert_eq!(held.bytes, 3 * 8192);
    }

    #[test]
    fn bounds_end_a_session_and_the_receiver() {
        let mut held = Held::default();
        held.add(&name(1, 1), MAX_SESSION_BYTES - BLOCK);
        assert_eq!(held.verdict(&name(2, 2), BLOCK), Verdict::Next { total: 2 });
        assert!(matches!(held.verdict(&name(2, 2), BLOCK + 1), Verdict::Full(_)));
        let mut held = Held::default();
        (1..=MAX_SESSION_BATCHES as u64).for_each(|number| held.add(&name(number, number), 1));
        let next = MAX_SESSION_BATCHES as u64 + 1;
        assert!(matches!(held.verdict(&name(next, next), 1), Verdict::Full(_)));
        let other = Name { session: "1".repeat(32), ..name(1, 1) };
        assert_eq!(held.verdict(&other, 1), Verdict::Next { total: 1 });
        assert!(matches!(held.verdict(&other, MAX_BYTES), Verdict::Full(_)));
    }
}
