//! State of the resolver that outlives it.

use std::time::Duration;

use super::Front;
use crate::answer::{Answer, Kind};
use crate::cache::State;
use crate::journal::Record;

/// Memory of records that wait to be written; records beyond it are not stored over a restart.
const MOST_BYTES: usize = 4 << 20;

/// Memory of a record in addition to its message.
const RECORD_BYTES: usize = 300;

/// Places looked at by one call of [`Front::snapshot`]: some 100 µs.
const AT_A_TIME: usize = 1024;

/// Records that the journal has not got yet.
pub struct Unwritten {
    records: Vec<Record>,
    bytes: usize,
    /// `true` if somebody writes them.
    wanted: bool,
}

impl Unwritten {
    pub fn new(wanted: bool) -> Self {
        Self { records: Vec::new(), bytes: 0, wanted }
    }

    pub fn add(&mut self, record: Record) {
        let message = match &record {
            Record::Answer { message, .. } => message.len(),
            Record::Instant { .. } => 0,
        };
        if self.wanted && self.bytes < MOST_BYTES {
            self.bytes += message + RECORD_BYTES;
            self.records.push(record);
        }
    }

    fn take(&mut self) -> Vec<Record> {
        self.bytes = 0;
        std::mem::take(&mut self.records)
    }
}

impl<C> Front<C> {
    /// Records that the journal has not got yet.
    pub fn take_journal(&mut self) -> Vec<Record> {
        self.unwritten.take()
    }

    /// Takes back a record of an earlier run; what cannot be understood, or is too old, is left out.
    pub fn restore(&mut self, record: Record, now: Duration) {
        match record {
            Record::Answer { stored_at, key, message } => {
                let Ok(answer) = Answer::parse(&key, &message) else { return };
                self.cache.put(&key, answer, stored_at, None, &self.settings);
                self.cache.forget_if_over(&key, now, &self.settings);
            }
            assigned @ Record::Instant { .. } => {
                if let Some(pool) = &mut self.pool {
                    pool.restore(assigned, now);
                }
            }
        }
    }

    /// Some of the records that a new journal begins with, and where to go on, from 0 to the end.
    /// What comes meanwhile is unwritten, and follows.
    pub fn snapshot(&mut self, from: usize, now: Duration) -> (Vec<Record>, Option<usize>) {
        if from == 0 {
            self.unwritten.take();
        }
        if from >= self.cache.places() {
            // At most 65,536: some 10 ms.
            return (self.pool.iter().flat_map(|pool| pool.records(now)).collect(), None);
        }
        let mut records = Vec::new();
        for entry in self.cache.entries(from..from + AT_A_TIME) {
            let counts = entry.state(now, &self.settings) != State::Over;
            if counts && entry.answer.kind != Kind::Failure {
                let (stored_at, key) = (entry.stored_at(), entry.key().clone());
                let message = entry.answer.message().clone();
                records.push(Record::Answer { stored_at, key, message });
            }
        }
        (records, Some(from + AT_A_TIME))
    }
}
