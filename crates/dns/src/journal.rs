//! Journal that outlives the process: records one after another, each under a checksum.
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
        /// Time of its arrival.
        stored_at: Duration,
        /// Key that it answers.
        key: Key,
        /// The message, without OPT.
        message: Arc<[u8]>,
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

    /// Reads what stands under a checksum.
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
    /// Reads the bytes of a file; no records if it is not a journal.
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

/// Place of a journal, locked against every other process as long as this value exists.
pub struct Place {
    path: PathBuf,
    /// A file of its own: the journal is another one after each [`Place::begin`].
    _lock: fs::File,
}

/// Reads the journal at `path`, whoever holds it; nothing if there is none.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match fs::File::open(path) {
        Ok(file) => file.take(MAX_FILE).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes)
}

/// Names and answers are nobody's business but the gateway's.
const MODE: u32 = 0o600;

impl Place {
    /// Takes the journal at `path`, by a lock on the file beside it whose name ends in `.lock`.
    pub fn claim(path: &Path) -> io::Result<Self> {
        let beside = with_suffix(path, ".lock");
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(MODE).open(&beside)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let why = format!(
                    "another process holds {}: stop it first, or give this one a file of its own",
                    beside.display()
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

    /// A journal with `records`, in the place of the one that is there. Whoever is killed meanwhile
    /// leaves the old one or the new one.
    pub fn begin(&self, records: &[Record]) -> io::Result<File> {
        let fresh = with_suffix(&self.path, ".new");
        // Left behind by a crash, with whatever mode.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (file, bytes) = Self::write_new(&fresh, records).inspect_err(|_| {
            // A disk that is full needs the room.
            let _ = fs::remove_file(&fresh);
        })?;
        fs::rename(&fresh, &self.path)?;
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::File::open(folder)?.sync_all()?;
        }
        Ok(File { file, bytes, live: bytes })
    }

    fn write_new(fresh: &Path, records: &[Record]) -> io::Result<(fs::File, u64)> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(fresh)?;
        file.write_all(MAGIC)?;
        let mut bytes = MAGIC.len() as u64;
        for some in records.chunks(AT_A_TIME) {
            bytes += write(&mut file, some)?;
        }
        file.sync_all()?;
        Ok((file, bytes))
    }

    /// Path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// `path` with `suffix` after all of its name, so that no two journals have the same file beside them.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(suffix);
    whole.into()
}

/// Records that are encoded before they are written: some 300 KiB of common answers.
const AT_A_TIME: usize = 1024;

/// Writes `records`, and says how many bytes that were.
fn write(file: &mut fs::File, records: &[Record]) -> io::Result<u64> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    file.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

/// The journal's file. It is made anew at every start, from what could be read of it.
pub struct File {
    file: fs::File,
    bytes: u64,
    /// Live bytes at its beginning.
    live: u64,
}

impl File {
    /// Appends `records`, and comes back when they are on the disk.
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
        let place = Place::claim(&folder.path().join("dns.journal")).unwrap();
        assert_eq!(place.read().unwrap(), b"");
        let mut journal = place.begin(&[]).unwrap();
        journal.append(&some()).unwrap();
        assert_eq!(Records::of(&place.read().unwrap()).collect::<Vec<_>>(), some());
        let many: Vec<_> = (0..100).flat_map(|_| some()).collect();
        while !journal.is_wasteful() {
            journal.append(&many).unwrap();
        }
        let journal = place.begin(&some()).unwrap();
        assert!(!journal.is_wasteful());
        assert_eq!(Records::of(&place.read().unwrap()).count(), 3);
    }

    #[test]
    fn journals_are_apart_and_of_one_process_and_user() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let paths = ["dns.cache", "dns.journal"].map(|name| folder.path().join(name));
        // What another version has left, for all to read.
        fs::write(folder.path().join("dns.cache.new"), "half").unwrap();
        let [one, other] = paths.each_ref().map(|path| Place::claim(path).unwrap());
        one.begin(&some()).unwrap();
        other.begin(&some()[..1]).unwrap();
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
        let error = Place::claim(&paths[0]).err().unwrap();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(one);
        Place::claim(&paths[0]).unwrap();
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
