//! Persistence of the resolver's state.

use std::time::Duration;

use super::Resolver;
use crate::answer::{Answer, Kind};
use crate::cache::State;
use crate::journal::Record;

/// Slots visited by one call of [`Resolver::snapshot`]: about 100 µs.
const SLOTS_PER_CALL: usize = 1024;

impl<C> Resolver<C> {
    /// Takes the records that are not in the journal yet.
    pub fn take_journal(&mut self) -> Vec<Record> {
        self.journal_queue.take()
    }

    /// Restores a record of an earlier run. Invalid and expired records are ignored.
    pub fn restore(&mut self, record: Record, now: Duration) {
        match record {
            Record::Answer { stored_at, key, message } => {
                let Ok(answer) = Answer::parse(&key, &message) else { return };
                self.cache.put(&key, answer, stored_at, None, &self.settings);
                self.cache.forget_if_over(&key, now, &self.settings);
            }
            assigned @ Record::FakeIp { .. } => {
                if let Some(pool) = &mut self.pool {
                    pool.restore(assigned, now);
                }
            }
        }
    }

    /// Returns some of the records for a new journal, and where to continue, from 0 to the end.
    /// Later records are unwritten and follow in [`take_journal`](Self::take_journal).
    pub fn snapshot(&mut self, from: usize, now: Duration) -> (Vec<Record>, Option<usize>) {
        if from == 0 {
            self.journal_queue.take();
        }
        if from >= self.cache.slot_count() {
            // At most 65,536 records: about 10 ms.
            return (self.pool.iter().flat_map(|pool| pool.records(now)).collect(), None);
        }
        let mut records = Vec::new();
        for entry in self.cache.entries(from..from + SLOTS_PER_CALL) {
            let counts = entry.state(now, &self.settings) != State::Over;
            if counts && entry.answer.kind != Kind::Failure {
                let (stored_at, key) = (entry.stored_at(), entry.key().clone());
                let message = entry.answer.message().clone();
                records.push(Record::Answer { stored_at, key, message });
            }
        }
        (records, Some(from + SLOTS_PER_CALL))
    }
}
