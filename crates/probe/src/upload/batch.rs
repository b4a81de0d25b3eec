//! Names, contents and receipts of batches.

use std::fmt;
use std::io::Read;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::record::{Record, Session, envelope, opened};

/// Size of a compressed batch, except that one record may be larger.
///
/// With a request header of 300 bytes and a cut each minute at 64 kbit/s, 300 / B + B / 960,000 bytes are wasted for
/// each byte of a batch of B bytes: 3.5 % at 16 kB, which is near the minimum.
const BATCH_BYTES: usize = 16 * 1024;

/// Largest compressed batch.
pub const MAX_BODY: usize = 256 * 1024;

/// Most text that is packed into one batch, except that one record may be larger. It is some 500 records.
pub const MAX_PACKED_TEXT: usize = 256 * 1024;

/// Largest text of a batch, and longest line. A parsed line takes up to 16 times its length.
const MAX_TEXT: usize = 1024 * 1024;
const MAX_LINE: usize = 512 * 1024;

/// Largest window of the decompressor: 2 MiB.
const WINDOW_LOG: u32 = 21;

/// Compression level. Higher levels save less than 2 % of such small texts.
const LEVEL: i32 = 9;

/// Largest number of a record. Names of batches have room for it.
const MAX_NUMBER: u64 = 999_999_999_999;

/// Session and range of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Random identifier of the session.
    pub session: String,
    /// Number of the first record.
    pub first: u64,
    /// Number of the last record.
    pub last: u64,
    /// Number of records. Numbers may be missing between the first and the last.
    pub records: u64,
}

impl Name {
    /// Reads a session and a range as [`fmt::Display`] writes it. Other text, such as `..`, is not a name.
    pub fn parse(session: &str, range: &str) -> Option<Self> {
        let mut numbers = range.splitn(3, '-').map(|number| number.parse().ok());
        let (first, last, records) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let name = Self { session: session.to_owned(), first, last, records };
        (name.is_possible() && name.to_string() == range).then_some(name)
    }

    fn is_possible(&self) -> bool {
        is_session(&self.session)
            && 0 < self.records
            && 0 < self.first
            && self.first <= self.last
            && self.last <= MAX_NUMBER
            && self.records - 1 <= self.last - self.first
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012}-{:012}-{}", self.first, self.last, self.records)
    }
}

/// Returns `true` for an identifier of a session: 32 hexadecimal digits.
pub fn is_session(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// SHA-256 in hexadecimal.
pub fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Records of one session, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Name.
    pub name: Name,
    /// SHA-256 of the body in hexadecimal.
    pub digest: String,
    /// Lines of JSON in their envelopes, compressed with zstd.
    pub body: Vec<u8>,
}

/// Reason why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotABatch {
    /// The digest differs.
    #[error("the digest is not that of the body")]
    Digest,
    /// The body is not zstd, or too large.
    #[error("the body is not zstd, or larger than {MAX_TEXT} bytes without compression")]
    Compression,
    /// A line is not a record of the session, or not in order.
    #[error("line {0} is not the next record of the session")]
    Line(usize),
    /// The name claims another range.
    #[error("the records are not those of the range")]
    Range,
}

impl Batch {
    /// Packs the first of `records`, as many as fit. Returns `None` if there are none.
    pub fn pack(session: &Session, records: &[Record]) -> Option<Self> {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for record in records {
            let line = format!("{}\n", envelope(session, record));
            if !ends.is_empty() && text.len() + line.len() > MAX_PACKED_TEXT {
                break;
            }
            text.extend_from_slice(line.as_bytes());
            ends.push(text.len());
        }
        let mut count = ends.len();
        while count > 0 {
            let body = zstd::bulk::compress(&text[..ends[count - 1]], LEVEL).ok()?;
            if body.len() <= BATCH_BYTES || count == 1 {
                let name = Name {
                    session: session.id.clone(),
                    first: records[0].number,
                    last: records[count - 1].number,
                    records: count as u64,
                };
                return Some(Self { name, digest: digest(&body), body });
            }
            // A little less than the proportion, so that the second attempt mostly fits.
            let fitting = count * BATCH_BYTES * 15 / (body.len() * 16);
            count = fitting.clamp(1, count - 1);
        }
        None
    }

    /// Checks that the body has the digest, and that it has the records of the name and nothing else.
    pub fn check(&self) -> Result<(), NotABatch> {
        if digest(&self.body) != self.digest {
            return Err(NotABatch::Digest);
        }
        let text = unpacked(&self.body).ok_or(NotABatch::Compression)?;
        let mut numbers = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fault = NotABatch::Line(index + 1);
            let record = (line.len() <= MAX_LINE).then(|| opened(line)).flatten();
            match record {
                Some((session, record))
                    if session == self.name.session
                        && numbers.last().is_none_or(|last| *last < record.number) =>
                {
                    numbers.push(record.number);
                }
                _ => return Err(fault),
            }
        }
        let ends = (numbers.first().copied(), numbers.last().copied(), numbers.len() as u64);
        let expected = (Some(self.name.first), Some(self.name.last), self.name.records);
        if ends == expected { Ok(()) } else { Err(NotABatch::Range) }
    }
}

fn unpacked(body: &[u8]) -> Option<String> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body).ok()?;
    decoder.window_log_max(WINDOW_LOG).ok()?;
    let mut text = String::new();
    decoder.take(MAX_TEXT as u64 + 1).read_to_string(&mut text).ok()?;
    (text.len() <= MAX_TEXT).then_some(text)
}

/// The receiver's word that a batch is on its disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Name of the batch.
    #[serde(flatten)]
    pub name: Name,
    /// SHA-256 of the batch in hexadecimal.
    pub sha256: String,
    /// Records of the session at the receiver, up to the last of this batch.
    pub total: u64,
}

impl Receipt {
    /// Returns `true` if the receipt is that of a batch.
    pub fn is_of(&self, batch: &Batch) -> bool {
        self.name == batch.name && self.sha256 == batch.digest && self.total >= batch.name.records
    }
}
