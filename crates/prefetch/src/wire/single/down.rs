//! Downward bytes for a site: the origin's bytes in chunks, and their end.

use bytes::{Buf, Bytes};

use super::{AS_IT_IS, CHUNK_HEAD_BYTES, END, MAX_CHUNK_BYTES};
use crate::wire::WireError;

/// End of an origin's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As the origin wanted: with TLS it has said so, and all that it said is here.
    Whole,
    /// It broke off, or ended without saying so: some may be missing.
    Cut,
    /// The ground has no such site; nothing has reached an origin.
    NoSite,
    /// The ground could not make TLS with the origin, or does not believe that it is the origin; nothing of the
    /// request has reached it.
    Tls,
}

impl End {
    /// All of them, each at its byte.
    const ALL: [Self; 4] = [Self::Whole, Self::Cut, Self::NoSite, Self::Tls];

    /// Appends what ends the stream.
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend([END, 0, 1, self as u8]);
    }
}

/// Appends `bytes` of an origin's, in as many chunks as they need.
pub fn put_said(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.chunks(MAX_CHUNK_BYTES) {
        out.push(AS_IT_IS);
        out.extend((part.len() as u16).to_be_bytes());
        out.extend_from_slice(part);
    }
}

/// Reads what came down. It holds three bytes at most.
#[derive(Debug, Default)]
pub struct Downs {
    /// Part of the three bytes before a chunk.
    head: Vec<u8>,
    /// To come of a chunk.
    left_bytes: usize,
    has_said: bool,
    end: Option<End>,
}

impl Downs {
    /// Takes of `bytes` until there is something that the origin has said, `most_bytes` at most, and gives that:
    /// nothing where all of them are taken, or the end has come. After an error nothing more can be read.
    pub fn take(&mut self, bytes: &mut Bytes, most_bytes: usize) -> Result<Bytes, WireError> {
        while self.end.is_none() && !bytes.is_empty() {
            if self.left_bytes > 0 {
                let count = self.left_bytes.min(bytes.len()).min(most_bytes);
                self.left_bytes -= count;
                return Ok(bytes.split_to(count));
            }
            let wanted = CHUNK_HEAD_BYTES + usize::from(self.head.first() == Some(&END));
            let count = wanted.saturating_sub(self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..count]);
            bytes.advance(count);
            self.read_head()?;
        }
        Ok(Bytes::new())
    }

    /// The end, once it has come.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    fn read_head(&mut self) -> Result<(), WireError> {
        match self.head[..] {
            [AS_IT_IS, high, low] => {
                self.left_bytes = u16::from_be_bytes([high, low]).into();
                self.head = Vec::new();
                self.has_said = true;
                match self.left_bytes {
                    0 => Err(WireError::Malformed),
                    1..=MAX_CHUNK_BYTES => Ok(()),
                    _ => Err(WireError::Large),
                }
            }
            [END, 0, 1, end] => {
                let end = *End::ALL.get(usize::from(end)).ok_or(WireError::Malformed)?;
                // Whoever has said something was reached.
                if self.has_said && matches!(end, End::NoSite | End::Tls) {
                    return Err(WireError::Malformed);
                }
                self.end = Some(end);
                Ok(())
            }
            [AS_IT_IS | END] | [AS_IT_IS | END, _] | [END, 0, 1] => Ok(()),
            _ => Err(WireError::Malformed),
        }
    }
}
