//! Records that wait to be written to the journal.

use crate::journal::Record;

/// Maximum memory of unwritten records. Further records are not persisted.
const MAX_BYTES: usize = 4 << 20;

/// Memory of a record in addition to its message.
const RECORD_BYTES: usize = 300;

/// Records that are not in the journal yet.
pub struct JournalQueue {
    records: Vec<Record>,
    bytes: usize,
    /// `true` if the caller writes a journal.
    enabled: bool,
}

impl JournalQueue {
    pub fn new(enabled: bool) -> Self {
        Self { records: Vec::new(), bytes: 0, enabled }
    }

    pub fn add(&mut self, record: Record) {
        let message = match &record {
            Record::Answer { message, .. } => message.len(),
            Record::FakeIp { .. } => 0,
        };
        if self.enabled && self.bytes < MAX_BYTES {
            self.bytes += message + RECORD_BYTES;
            self.records.push(record);
        }
    }

    pub fn take(&mut self) -> Vec<Record> {
        self.bytes = 0;
        std::mem::take(&mut self.records)
    }
}
