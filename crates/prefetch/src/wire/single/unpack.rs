//! The ground's end.

use std::sync::LazyLock;

use zstd::bulk::Decompressor;
use zstd::dict::DecoderDictionary;
use zstd::zstd_safe::find_frame_compressed_size;

use super::{
    AS_IT_IS, CHUNK_HEAD_BYTES, DICTIONARY, HEAD, MAGIC, MARK, MAX_CHUNK_BYTES, MAX_RATIO,
    MAX_TEXT_BYTES,
};
use crate::wire::WireError;
use crate::wire::codec::Reader;

static PREPARED: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));

/// Puts together again what was cut. Between chunks it holds nothing.
#[derive(Debug, Default)]
pub struct HeadUnpacker {
    /// Incomplete chunk of a head, or of the three bytes before a chunk.
    chunk: Vec<u8>,
    /// To come of a chunk as it is.
    left_bytes: usize,
}

impl HeadUnpacker {
    /// Takes the first of `bytes`, up to the end of a chunk at most, appends what they come to to `out`,
    /// 24 KiB or as many as it took, and says how many it took: at least one, if there is one. After an
    /// error nothing more can be read.
    pub fn unpack(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, WireError> {
        if self.left_bytes > 0 {
            let part = &bytes[..bytes.len().min(self.left_bytes)];
            out.extend_from_slice(part);
            self.left_bytes -= part.len();
            return Ok(part.len());
        }
        let mut taken = self.fill(CHUNK_HEAD_BYTES, bytes);
        let &[kind, high, low, ..] = &self.chunk[..] else { return Ok(taken) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > MAX_CHUNK_BYTES {
            return Err(WireError::Large);
        }
        match kind {
            AS_IT_IS if length > 0 => {
                self.left_bytes = length;
                self.chunk = Vec::new();
            }
            HEAD => {
                taken += self.fill(CHUNK_HEAD_BYTES + length, &bytes[taken..]);
                if self.chunk.len() == CHUNK_HEAD_BYTES + length {
                    let chunk = std::mem::take(&mut self.chunk);
                    head(&chunk[CHUNK_HEAD_BYTES..], out)?;
                }
            }
            _ => return Err(WireError::Malformed),
        }
        Ok(taken)
    }

    /// Returns `true` if all received bytes have been given: only then the sender can have ended.
    pub fn is_between_chunks(&self) -> bool {
        self.chunk.is_empty() && self.left_bytes == 0
    }

    /// Takes of `bytes` until the chunk is that long.
    fn fill(&mut self, length: usize, bytes: &[u8]) -> usize {
        let wanted = length.saturating_sub(self.chunk.len()).min(bytes.len());
        self.chunk.extend_from_slice(&bytes[..wanted]);
        wanted
    }
}

/// Appends the head that is in `body`.
fn head(body: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut from = Reader::new(body);
    let frame = from.counted()?;
    let most = MAX_TEXT_BYTES.min(MAX_RATIO * frame.len());
    let unpacker = Decompressor::with_prepared_dictionary(&PREPARED);
    let mut unpacker = unpacker.map_err(|_| WireError::Packed)?;
    let frame = [&MAGIC, frame].concat();
    if find_frame_compressed_size(&frame) != Ok(frame.len()) {
        // Others behind it, or what decoders skip.
        return Err(WireError::Packed);
    }
    let text = unpacker.decompress(&frame, most).map_err(|_| WireError::Packed)?;
    let before_bytes = out.len();
    let mut pieces = text.split(|byte| *byte == MARK);
    out.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.extend_from_slice(from.counted()?);
        out.extend_from_slice(piece);
    }
    // One that comes to nothing would cost the ground work, and its reader nothing to wait for.
    let is_whole = from.is_empty() && out.len() > before_bytes;
    if is_whole { Ok(()) } else { Err(WireError::Malformed) }
}
