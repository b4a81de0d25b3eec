//! Disk format of a stored header.
//!
//! The file is a magic number, the fields below, and the BLAKE2s-256 hash of all bytes before it.
//! Integers are big-endian. A file with a wrong hash is ignored, so truncated, partly overwritten
//! or changed files are never used. A file with the right hash is still parsed strictly.

use std::sync::Arc;
use std::time::Duration;

use blake2::{Blake2s256, Digest};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::head::Head;
use crate::key::Key;
use crate::vary::{MAX_VARY_FIELDS, Selection};

/// Maximum length of a header file, bytes. A response with a longer header is not stored.
pub const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Name and version of the format. Files of another version are deleted.
const MAGIC: &[u8; 8] = b"bpwebc\x00\x01";

const SUM_BYTES: usize = 32;

/// Size of the length prefix of a string.
const TEXT_BYTES: usize = 2;

/// Checksum: the first half of a BLAKE2s-256 hash.
pub type Sum = [u8; 16];

/// Checksums of the segments of a body: 4 KiB for a body of 16 MiB.
pub type PieceSums = Arc<[Sum]>;

/// Content of a header file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number in the names of the object's files. It detects renamed files.
    pub id: u64,
    /// Key of the object.
    pub key: Key,
    /// Header of the response.
    pub head: Head,
    /// Length of the body.
    pub body_bytes: u64,
    /// Checksum of the body.
    pub body_sum: Sum,
}

/// Computes the checksum of a body.
pub fn sum(body: &[u8]) -> Sum {
    let mut summing = Checksum::default();
    summing.add(body);
    summing.done()
}

/// Checksum of a body that arrives in pieces.
#[derive(Default)]
pub struct Checksum(Blake2s256);

impl Checksum {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the checksum of all pieces.
    pub fn done(self) -> Sum {
        self.0.finalize()[..16].try_into().expect("a hash of 32 bytes has 16")
    }
}

impl Record {
    /// Encodes the file. Returns `None` if it would exceed [`MAX_HEAD_BYTES`].
    pub fn encode(&self) -> Option<Vec<u8>> {
        let head = &self.head;
        let mut out = Vec::with_capacity(1024);
        out.extend(MAGIC);
        out.extend(self.id.to_be_bytes());
        text(&mut out, self.key.as_str().as_bytes())?;
        out.extend(head.status.as_u16().to_be_bytes());
        out.extend(millis(head.requested_at).to_be_bytes());
        out.extend(millis(head.received_at).to_be_bytes());
        let flags = [head.heuristic_ok, head.invalidated, head.pinned];
        out.push(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        out.extend(self.body_bytes.to_be_bytes());
        out.extend(self.body_sum);
        out.push(u8::try_from(head.selection.0.len()).ok()?);
        for (name, value) in &head.selection.0 {
            text(&mut out, name.as_str().as_bytes())?;
            out.push(u8::from(value.is_some()));
            text(&mut out, value.as_deref().unwrap_or_default())?;
        }
        out.extend(u16::try_from(head.headers.len()).ok()?.to_be_bytes());
        for (name, value) in &head.headers {
            text(&mut out, name.as_str().as_bytes())?;
            text(&mut out, value.as_bytes())?;
        }
        let sum = Blake2s256::digest(&out);
        out.extend(sum);
        (out.len() <= MAX_HEAD_BYTES).then_some(out)
    }

    /// Length of the file that [`Record::encode`] would produce, without encoding it.
    pub fn encoded_bytes(key: &Key, head: &Head) -> usize {
        let selected = head.selection.0.iter().map(|(name, value)| {
            let value = value.as_ref().map_or(0, Vec::len);
            2 * TEXT_BYTES + 1 + name.as_str().len() + value
        });
        let fields = head
            .headers
            .iter()
            .map(|(name, value)| 2 * TEXT_BYTES + name.as_str().len() + value.len());
        // Number, status, two moments, flags, length and checksum of the body, and two counts.
        let fixed = MAGIC.len() + 8 + 2 + 2 * 8 + 1 + 8 + size_of::<Sum>() + 1 + 2;
        let key = TEXT_BYTES + key.as_str().len();
        fixed + key + selected.sum::<usize>() + fields.sum::<usize>() + SUM_BYTES
    }

    /// Decodes a file. Returns `None` if it is not exactly what [`Record::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_HEAD_BYTES {
            return None;
        }
        let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        if Blake2s256::digest(content)[..] != *hash {
            return None;
        }
        parse(content)
    }
}

/// Parses all bytes before the hash.
fn parse(content: &[u8]) -> Option<Record> {
    let mut reader = Reader(content);
    if reader.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let id = reader.u64()?;
    let key = Key::parse(std::str::from_utf8(reader.text()?).ok()?)?;
    let status = StatusCode::from_u16(reader.u16()?).ok()?;
    let requested_at = Duration::from_millis(reader.u64()?);
    let received_at = Duration::from_millis(reader.u64()?);
    let flags = reader.u8()?;
    if flags > 7 {
        return None;
    }
    let body_bytes = reader.u64()?;
    let body_sum = reader.take(16)?.try_into().ok()?;
    let selection = selection(&mut reader)?;
    let headers = headers(&mut reader)?;
    if !reader.0.is_empty() {
        return None;
    }
    let head = Head {
        status,
        headers,
        selection,
        requested_at,
        received_at,
        heuristic_ok: flags & 1 != 0,
        invalidated: flags & 2 != 0,
        pinned: flags & 4 != 0,
    };
    Some(Record { id, key, head, body_bytes, body_sum })
}

fn selection(reader: &mut Reader<'_>) -> Option<Selection> {
    let count = usize::from(reader.u8()?);
    if count > MAX_VARY_FIELDS {
        return None;
    }
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        let name = HeaderName::from_bytes(reader.text()?).ok()?;
        let present = reader.u8()?;
        let value = reader.text()?.to_vec();
        match present {
            0 if value.is_empty() => fields.push((name, None)),
            1 => fields.push((name, Some(value))),
            _ => return None,
        }
    }
    Some(Selection(fields))
}

fn headers(reader: &mut Reader<'_>) -> Option<HeaderMap> {
    let count = reader.u16()?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(reader.text()?).ok()?;
        let value = HeaderValue::from_bytes(reader.text()?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

fn millis(moment: Duration) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend(u16::try_from(bytes.len()).ok()?.to_be_bytes());
    out.extend(bytes);
    Some(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::from(self.u16()?);
        self.take(bytes)
    }
}

/// Decodes any bytes, with their own hash and with a right one, and checks that the result encodes
/// to the same bytes. For the fuzz target.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz(bytes: &[u8]) {
    let _ = Record::decode(bytes);
    if let Some(record) = parse(bytes) {
        let Some(written) = record.encode() else { return };
        assert_eq!(Record::decode(&written).as_ref(), Some(&record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;
    use proptest::prelude::*;

    fn record() -> Record {
        let mut headers = HeaderMap::new();
        headers.append(header::ETAG, HeaderValue::from_static("\"a\""));
        headers.append("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_bytes(b"\xff").unwrap());
        let selection =
            vec![(header::ACCEPT, None), (header::ACCEPT_ENCODING, Some(b"gzip".to_vec()))];
        let head = Head {
            status: StatusCode::OK,
            headers,
            selection: Selection(selection),
            requested_at: Duration::from_millis(1),
            received_at: Duration::from_millis(2),
            heuristic_ok: true,
            invalidated: false,
            pinned: true,
        };
        let key = Key::parse("http://a.test:80/x?y").unwrap();
        Record { id: 7, key, head, body_bytes: 5, body_sum: sum(b"hello") }
    }

    #[test]
    fn a_record_round_trips() {
        let written = record().encode().unwrap();
        assert_eq!(Record::decode(&written), Some(record()));
        assert_eq!(Record::encoded_bytes(&record().key, &record().head), written.len());
        fuzz(&written);
        fuzz(&written[..written.len() - SUM_BYTES]);
    }

    #[test]
    fn every_bit_flip_and_truncation_is_detected() {
        let written = record().encode().unwrap();
        for at in 0..written.len() * 8 {
            let mut flipped = written.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert_eq!(Record::decode(&flipped), None, "bit {at}");
        }
        for cut in 0..written.len() {
            assert_eq!(Record::decode(&written[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_too_long_header_is_not_encoded() {
        let mut long = record();
        for n in 0..40 {
            let name: HeaderName = format!("x-{n}").parse().unwrap();
            long.head.headers.insert(name, HeaderValue::from_str(&"a".repeat(1000)).unwrap());
        }
        assert_eq!(long.encode(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            fuzz(&bytes);
        }

        /// Damages bytes under a right hash, so that the parser itself meets them.
        #[test]
        fn damage_under_a_right_hash_does_not_panic(at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
            let written = record().encode().unwrap();
            let mut content = written[..written.len() - SUM_BYTES].to_vec();
            let at = at.index(content.len());
            content[at] = to;
            content.truncate(cut.index(content.len()) + 1);
            fuzz(&content);
        }
    }
}
