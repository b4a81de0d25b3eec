//! What outlives the process: records one after another, each under a checksum.
//!
//! ```text
//! file:   "bentpipe dns 1\n" · records
//! record: length u32 · BLAKE2s-64 of what follows · kind u8 · body
//! answer: kind 1 · stored at, ms since 1970, u64 · length of key u16 · key · message
//! instant name: kind 2 · address number u32 · held until, ms, u64 · name
//! ```
//!
//! Numbers are in network order. A process that is killed leaves at most a record that is cut short;
//! reading ends there, or at the first whose checksum is wrong. [`File`] writes them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blake2::digest::consts::U8;
use blake2::{Blake2s, Digest};

use crate::key::Key;

const MAGIC: &[u8] = b"bentpipe dns 1\n";
const HEAD: usize = 12;
const ANSWER: u8 = 1;
const INSTANT: u8 = 2;

/// A message, a key and what stands before them.
const MAX_RECORD: usize = 65_535 + 1024;

/// A file is written anew when it is this much larger than what it has to hold, and twice as large.
const SLACK_BYTES: u64 = 1 << 20;

/// More is not read of a file: as much as the largest cache takes twice.
const MAX_FILE: u64 = 1 << 30;

/// One thing to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An answer of the ground.
    Answer {
        /// When it came.
        stored_at: Duration,
        /// What it answers.
        key: Key,
        /// The message, without OPT.
        message: Vec<u8>,
    },
    /// An address that stands for a name.
    Instant {
        /// Its place in the pool.
        number: u32,
        /// It stands for no other name before this.
        until: Duration,
        /// The name.
        name: String,
    },
}

impl Record {
    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; HEAD]);
        match self {
            Self::Answer { stored_at, key, message } => {
                out.push(ANSWER);
                out.extend(millis(*stored_at).to_be_bytes());
                // A key is a name of at most 255 bytes and five more.
                out.extend((key.as_bytes().len() as u16).to_be_bytes());
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(message);
            }
            Self::Instant { number, until, name } => {
                out.push(INSTANT);
                out.extend(number.to_be_bytes());
                out.extend(millis(*until).to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
        }
        let length = (out.len() - start - HEAD) as u32;
        let sum = checksum(&out[start + HEAD..]);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        out[start + 4..start + HEAD].copy_from_slice(&sum);
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        match *kind {
            ANSWER => {
                let (stored_at, rest) = rest.split_first_chunk()?;
                let (length, rest) = rest.split_first_chunk()?;
                let (key, message) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
                let stored_at = Duration::from_millis(u64::from_be_bytes(*stored_at));
                let key = Key::from_bytes(key).ok()?;
                Some(Self::Answer { stored_at, key, message: message.to_vec() })
            }
            INSTANT => {
                let (number, rest) = rest.split_first_chunk()?;
                let (until, name) = rest.split_first_chunk()?;
                let until = Duration::from_millis(u64::from_be_bytes(*until));
                let name = std::str::from_utf8(name).ok()?.to_owned();
                Some(Self::Instant { number: u32::from_be_bytes(*number), until, name })
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

/// The records of a file, up to the first that is not whole.
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// Of the bytes of a file; none where it is not a journal.
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

/// The journal's file. It is made anew at every start, from what could be read of it.
pub struct File {
    path: PathBuf,
    file: fs::File,
    bytes: u64,
    /// What it began with.
    live: u64,
}

/// What stands in the file at `path`; nothing where there is none.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match fs::File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes)
}

impl File {
    /// A file at `path` with `records`, in the place of the one that is there. Whoever is killed
    /// meanwhile leaves the old one or the new one.
    pub fn begin(path: &Path, records: &[u8]) -> io::Result<Self> {
        let fresh = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&fresh)?;
        file.write_all(MAGIC)?;
        file.write_all(records)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::File::open(folder)?.sync_all()?;
        }
        let bytes = (MAGIC.len() + records.len()) as u64;
        Ok(Self { path: path.to_owned(), file, bytes, live: bytes })
    }

    /// Appends `records`, and comes back when they are on the disk.
    pub fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.file.write_all(records)?;
        self.file.sync_data()?;
        self.bytes += records.len() as u64;
        Ok(())
    }

    /// Whether it holds so much that is over that it should be begun anew.
    pub fn is_wasteful(&self) -> bool {
        self.bytes > 2 * self.live + SLACK_BYTES
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
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
        Record::Answer { stored_at, key: key(&query), message: address(&query, 300, n) }
    }

    fn some() -> Vec<Record> {
        let instant =
            Record::Instant { number: 7, until: Duration::from_secs(9), name: "www.gov.uk".into() };
        vec![record(1), instant, record(2)]
    }

    fn file(records: &[Record]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        records.iter().for_each(|record| record.encode(&mut bytes));
        bytes
    }

    #[test]
    fn a_file_cut_anywhere_gives_whole_records() {
        let (records, bytes) = (some(), file(&some()));
        assert_eq!(Records::of(&bytes).collect::<Vec<_>>(), records);
        for cut in 0..bytes.len() {
            let read: Vec<_> = Records::of(&bytes[..cut]).collect();
            assert!(read.len() < records.len() && records.starts_with(&read), "cut at {cut}");
        }
    }

    #[test]
    fn a_byte_flipped_anywhere_gives_nothing_wrong() {
        let (records, bytes) = (some(), file(&some()));
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
    fn files_grow_and_are_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns.journal");
        assert_eq!(read(&path).unwrap(), b"");
        let mut journal = File::begin(&path, &[]).unwrap();
        let mut bytes = Vec::new();
        some().iter().for_each(|record| record.encode(&mut bytes));
        journal.append(&bytes).unwrap();
        assert_eq!(Records::of(&read(&path).unwrap()).collect::<Vec<_>>(), some());
        while !journal.is_wasteful() {
            journal.append(&bytes.repeat(100)).unwrap();
        }
        let journal = File::begin(&path, &bytes).unwrap();
        assert!(!journal.is_wasteful());
        assert_eq!(Records::of(&read(&path).unwrap()).count(), 3);
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
