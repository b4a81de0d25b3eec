//! Journal that survives the process: a sequence of records, each under a checksum.
//!
//! ```text
//! file:   "bentpipe dns 1\n" · records
//! record: length u32 · BLAKE2s-64 of the rest · kind u8 · body
//! answer: kind 1 · stored at, ms since 1970, u64 · length of key u16 · key · message
//! fake-IP address: kind 2 · address number u32 · held until, ms, u64 · name
//! ```
//!
//! Numbers are in network byte order. A killed process leaves at most one incomplete record.
//! Reading ends there, or at the first wrong checksum. [`JournalFile`] writes the records.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blake2::digest::consts::U8;
use blake2::{Blake2s, Digest};

use crate::key::Key;

pub(crate) const MAGIC: &[u8] = b"bentpipe dns 1\n";
const HEADER_BYTES: usize = 12;
const ANSWER: u8 = 1;
const FAKE_IP: u8 = 2;

/// Maximum size of a record: a message, a key, and their headers.
const MAX_RECORD: usize = 65_535 + 1024;

/// A file is rewritten when it is this much larger than its live records, and twice as large.
const SLACK_BYTES: u64 = 1 << 20;

/// Maximum number of bytes read from a file: twice the largest cache.
const MAX_FILE: u64 = 1 << 30;

/// Journal record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Answer of the ground.
    Answer {
        /// Arrival time.
        stored_at: Duration,
        /// Key of the answer.
        key: Key,
        /// Message, without OPT record.
        message: Arc<[u8]>,
    },
    /// Fake-IP address that stands for a name.
    FakeIp {
        /// Number of the address in the pool.
        number: u32,
        /// Time before which the address stands for no other name.
        until: Duration,
        /// Name.
        name: String,
    },
}

impl Record {
    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; HEADER_BYTES]);
        match self {
            Self::Answer { stored_at, key, message } => {
                out.push(ANSWER);
                out.extend(millis(*stored_at).to_be_bytes());
                // A key is a name of at most 255 bytes and five more bytes.
                out.extend((key.as_bytes().len() as u16).to_be_bytes());
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(message);
            }
            Self::FakeIp { number, until, name } => {
                out.push(FAKE_IP);
                out.extend(number.to_be_bytes());
                out.extend(millis(*until).to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
        }
        let length = (out.len() - start - HEADER_BYTES) as u32;
        let sum = checksum(&out[start + HEADER_BYTES..]);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        out[start + 4..start + HEADER_BYTES].copy_from_slice(&sum);
    }

    /// Decodes the body under a checksum.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        match *kind {
            ANSWER => {
                let (stored_at, rest) = rest.split_first_chunk()?;
                let (length, rest) = rest.split_first_chunk()?;
                let (key, message) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
                let stored_at = Duration::from_millis(u64::from_be_bytes(*stored_at));
                let key = Key::from_bytes(key).ok()?;
                Some(Self::Answer { stored_at, key, message: message.into() })
            }
            FAKE_IP => {
                let (number, rest) = rest.split_first_chunk()?;
                let (until, name) = rest.split_first_chunk()?;
                let until = Duration::from_millis(u64::from_be_bytes(*until));
                let name = std::str::from_utf8(name).ok()?.to_owned();
                Some(Self::FakeIp { number: u32::from_be_bytes(*number), until, name })
            }
            _ => None,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn checksum(body: &[u8]) -> [u8; 8] {
    Blake2s::<U8>::digest(body).into()
}

/// Records of a file, up to the first incomplete one.
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// Iterates over the records in the bytes of a file; none if it is not a journal.
    pub fn of(file: &'a [u8]) -> Self {
        Self(file.strip_prefix(MAGIC).unwrap_or_default())
    }

    fn take(&mut self) -> Option<Record> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let (body, rest) = rest.split_at_checked(length).filter(|_| length <= MAX_RECORD)?;
        if checksum(body) != *sum {
            return None;
        }
        self.0 = rest;
        Record::decode(body)
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let record = self.take();
        if record.is_none() {
            self.0 = &[];
        }
        record
    }
}

/// Lock on a journal against all other processes, for the lifetime of this value.
pub struct JournalLock {
    path: PathBuf,
    /// The lock has its own file, because each [`JournalLock::rewrite`] replaces the journal.
    _lock: fs::File,
}

/// Reads the journal at `path` without a lock; empty if there is none.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match fs::File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes)
}

/// File mode: names and answers are private to the gateway.
const MODE: u32 = 0o600;

impl JournalLock {
    /// Locks the journal at `path` through the file of the same name with `.lock` appended.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        let lock_path = with_suffix(path, ".lock");
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(MODE).open(&lock_path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let why = format!(
                    "another process holds {}: stop it first, or give this one a file of its own",
                    lock_path.display()
                );
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Content of the journal; empty if there is none.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        read(&self.path)
    }

    /// Replaces the journal by one with `records`. A process killed meanwhile leaves either the old
    /// or the new one.
    pub fn rewrite(&self, records: &[Record]) -> io::Result<JournalFile> {
        let fresh = with_suffix(&self.path, ".new");
        // A crash may have left this file, with any mode.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (file, bytes) = Self::write_new(&fresh, records).inspect_err(|_| {
            // A full disk needs the space.
            let _ = fs::remove_file(&fresh);
        })?;
        fs::rename(&fresh, &self.path)?;
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::File::open(folder)?.sync_all()?;
        }
        Ok(JournalFile { file, bytes, live: bytes })
    }

    fn write_new(fresh: &Path, records: &[Record]) -> io::Result<(fs::File, u64)> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(fresh)?;
        file.write_all(MAGIC)?;
        let mut bytes = MAGIC.len() as u64;
        for chunk in records.chunks(RECORDS_PER_WRITE) {
            bytes += write(&mut file, chunk)?;
        }
        file.sync_all()?;
        Ok((file, bytes))
    }

    /// Path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Appends `suffix` to the full name, so that no two journals share an auxiliary file.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(suffix);
    whole.into()
}

/// Records encoded per write: about 300 KiB of common answers.
const RECORDS_PER_WRITE: usize = 1024;

/// Writes `records` and returns the number of bytes.
fn write(file: &mut fs::File, records: &[Record]) -> io::Result<u64> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    file.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

/// Open journal. It is rewritten at every start from its readable records.
pub struct JournalFile {
    file: fs::File,
    bytes: u64,
    /// Live bytes at its start.
    live: u64,
}

impl JournalFile {
    /// Appends `records` and syncs them to disk.
    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let written = write(&mut self.file, records)?;
        self.file.sync_data()?;
        self.bytes += written;
        Ok(())
    }

    /// Returns `true` if it holds so many dead records that it should be rewritten.
    pub fn is_wasteful(&self) -> bool {
        self.bytes > 2 * self.live + SLACK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{address, key, query};
    use hickory_proto::rr::RecordType;
    use proptest::prelude::*;

    fn record(n: u8) -> Record {
        let query = query(&format!("n{n}.test."), RecordType::A);
        let stored_at = Duration::from_millis(1_000_000 + u64::from(n));
        Record::Answer { stored_at, key: key(&query), message: address(&query, 300, n).into() }
    }

    fn sample() -> Vec<Record> {
        let fake_ip =
            Record::FakeIp { number: 7, until: Duration::from_secs(9), name: "www.gov.uk".into() };
        vec![record(1), fake_ip, record(2)]
    }

    fn file(records: &[Record]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        records.iter().for_each(|record| record.encode(&mut bytes));
        bytes
    }

    #[test]
    fn a_truncated_file_yields_complete_records() {
        let (records, bytes) = (sample(), file(&sample()));
        assert_eq!(Records::of(&bytes).collect::<Vec<_>>(), records);
        for cut in 0..bytes.len() {
            let read: Vec<_> = Records::of(&bytes[..cut]).collect();
            assert!(read.len() < records.len() && records.starts_with(&read), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_byte_yields_no_wrong_record() {
        let (records, bytes) = (sample(), file(&sample()));
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut broken = bytes.clone();
                broken[at] ^= flip;
                let read: Vec<_> = Records::of(&broken).collect();
                assert!(read.len() < records.len() && records.starts_with(&read), "at {at}");
            }
        }
    }

    #[test]
    fn files_grow_and_are_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let lock = JournalLock::acquire(&folder.path().join("dns.journal")).unwrap();
        assert_eq!(lock.read().unwrap(), b"");
        let mut journal = lock.rewrite(&[]).unwrap();
        journal.append(&sample()).unwrap();
        assert_eq!(Records::of(&lock.read().unwrap()).collect::<Vec<_>>(), sample());
        let many: Vec<_> = (0..100).flat_map(|_| sample()).collect();
        while !journal.is_wasteful() {
            journal.append(&many).unwrap();
        }
        let journal = lock.rewrite(&sample()).unwrap();
        assert!(!journal.is_wasteful());
        assert_eq!(Records::of(&lock.read().unwrap()).count(), 3);
    }

    #[test]
    fn journals_are_separate_and_belong_to_one_process_and_user() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let paths = ["dns.cache", "dns.journal"].map(|name| folder.path().join(name));
        // File left by another version, readable by all.
        fs::write(folder.path().join("dns.cache.new"), "half").unwrap();
        let [one, other] = paths.each_ref().map(|path| JournalLock::acquire(path).unwrap());
        one.rewrite(&sample()).unwrap();
        other.rewrite(&sample()[..1]).unwrap();
        assert_eq!(Records::of(&one.read().unwrap()).count(), 3);
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = names
            .map(|entry| {
                (entry.file_name(), entry.metadata().unwrap().permissions().mode() & 0o777)
            })
            .map(|(name, mode)| format!("{} {mode:o}", name.display()))
            .collect();
        names.sort();
        let all = ["dns.cache 600", "dns.cache.lock 600"];
        assert_eq!(names, [all, ["dns.journal 600", "dns.journal.lock 600"]].concat());
        let error = JournalLock::acquire(&paths[0]).err().unwrap();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(one);
        JournalLock::acquire(&paths[0]).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, magic: bool) {
            if magic {
                bytes.splice(0..0, MAGIC.iter().copied());
            }
            crate::fuzz::fuzz_journal(&bytes);
        }
    }
}
