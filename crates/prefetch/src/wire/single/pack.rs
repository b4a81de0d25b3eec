//! The cabin's end.

use std::sync::LazyLock;

use zstd::bulk::Compressor;
use zstd::dict::EncoderDictionary;

use super::down::put_said;
use super::split::{find, split};
use super::{
    CHUNK_HEAD_BYTES, DICTIONARY, HEAD, MAGIC, MAX_CHUNK_BYTES, MAX_PACKED_HEAD_BYTES, MAX_RATIO,
    MAX_TEXT_BYTES,
};

/// Three bytes more than the most that zstd does, in a sixth of the time.
const LEVEL: i32 = 9;

const END: &[u8] = b"\r\n\r\n";

static PREPARED: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL));

/// Cuts what goes to an origin into chunks.
#[derive(Debug, Default)]
pub struct HeadPacker {
    /// Incomplete head.
    head: Vec<u8>,
    is_as_it_is: bool,
    packed: u64,
    saved_bytes: u64,
}

impl HeadPacker {
    /// Takes `bytes` and appends chunks to `out`; of a head that is not whole there are none yet, until
    /// [`flush`](Self::flush). Holds 16 KiB at most, and never more than it was given at once beside them.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.is_as_it_is {
            return put_said(bytes, out);
        }
        let looked_at = self.head.len().saturating_sub(END.len() - 1);
        self.head.extend_from_slice(bytes);
        let mut from = looked_at;
        while let Some(end) = find(&self.head[from..], END) {
            let rest = self.head.split_off(from + end + END.len());
            let head = std::mem::replace(&mut self.head, rest);
            self.put_head(&head, out);
            from = 0;
            if !is_followed_by_a_head(&head) {
                return self.flush(out);
            }
        }
        if self.head.len() > MAX_PACKED_HEAD_BYTES {
            self.flush(out);
        }
    }

    /// Gives what is there of a head that is not whole; what follows crosses as it is, for it may be the
    /// rest of a secret.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        let head = std::mem::take(&mut self.head);
        self.is_as_it_is |= !head.is_empty();
        put_said(&head, out);
    }

    /// Number of heads packed since the last call, and of bytes saved.
    pub fn take_saved(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.packed), std::mem::take(&mut self.saved_bytes))
    }

    fn put_head(&mut self, head: &[u8], out: &mut Vec<u8>) {
        self.is_as_it_is |= !is_followed_by_a_head(head);
        let chunk = (head.len() <= MAX_PACKED_HEAD_BYTES).then(|| packed(head)).flatten();
        match chunk {
            Some(chunk) if chunk.len() < head.len() => {
                self.packed += 1;
                self.saved_bytes += (head.len() - chunk.len()) as u64;
                out.extend(chunk);
            }
            _ => put_said(head, out),
        }
    }
}

/// Returns `true` if the request has no content, so that the next bytes are another's head. An
/// unclear request counts as one with content.
fn is_followed_by_a_head(head: &[u8]) -> bool {
    let is_read = head.starts_with(b"GET ") || head.starts_with(b"HEAD ");
    is_read
        && head.split(|byte| *byte == b'\n').all(|line| {
            let Some(colon) = find(line, b":") else { return true };
            let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            !(name.eq_ignore_ascii_case(b"transfer-encoding")
                || name.eq_ignore_ascii_case(b"upgrade")
                || name.eq_ignore_ascii_case(b"content-length") && value != b"0")
        })
}

/// The chunk of a head, or `None` where the other end would not take it.
fn packed(head: &[u8]) -> Option<Vec<u8>> {
    let (text, kept) = split(head)?;
    let mut packer = Compressor::with_prepared_dictionary(&PREPARED).ok()?;
    // What both ends know needs no saying.
    packer.include_contentsize(false).ok()?;
    packer.include_dictid(false).ok()?;
    let frame = packer.compress(&text).ok()?;
    let frame = frame.strip_prefix(&MAGIC)?;
    let is_taken = text.len() <= MAX_TEXT_BYTES.min(MAX_RATIO * frame.len());
    let mut body = Vec::new();
    put_counted(&mut body, frame)?;
    kept.into_iter().try_for_each(|piece| put_counted(&mut body, piece))?;
    let mut chunk = Vec::with_capacity(CHUNK_HEAD_BYTES + body.len());
    chunk.push(HEAD);
    put_counted(&mut chunk, &body).filter(|()| is_taken && body.len() <= MAX_CHUNK_BYTES)?;
    Some(chunk)
}

fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend(u16::try_from(bytes.len()).ok()?.to_be_bytes());
    out.extend_from_slice(bytes);
    Some(())
}
