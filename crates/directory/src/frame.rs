//! Frames between two neighbours, on a stream that keeps their order.
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | kind: KNOWS 1, ENTRY 2 |
//! | 2 | length of the rest |
//! | | KNOWS: public keys of the grounds in the sender's file, of 32 bytes each; ENTRY: an entry |
//!
//! A receiver skips other kinds.

use std::collections::BTreeSet;

use crate::entry::{Claimed, Entry, EntryError};
use crate::{Key, MAX_PEERS};

/// Length of a key.
const KEY_BYTES: usize = 32;

/// Bytes before the contents.
pub const HEADER_BYTES: usize = 3;

/// Maximum length of the contents: a KNOWS of 128 grounds has 4 KiB.
pub const MAX_CONTENT_BYTES: usize = MAX_PEERS * KEY_BYTES;

const KNOWS: u8 = 1;
const ENTRY: u8 = 2;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The grounds in the sender's file. They speak to the sender themselves.
    Knows(BTreeSet<Key>),
    /// An entry.
    Entry(Claimed),
    /// An invalid entry about the ground with this key, with its length.
    Invalid(Key, usize, EntryError),
}

/// Bytes that violate the protocol between neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A frame is longer than any.
    #[error("a frame of the directory has {0} bytes")]
    Long(usize),
    /// A KNOWS has another length than keys have.
    #[error("a list of grounds ends within a key")]
    Keys,
    /// An entry is shorter than a key.
    #[error("an entry of the directory has {0} bytes")]
    Short(usize),
    /// The neighbour's own entry is invalid.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

/// Appends the list of grounds in the own file.
pub fn put_knows<'a>(keys: impl Iterator<Item = &'a Key>, out: &mut Vec<u8>) {
    let keys: Vec<u8> = keys.take(MAX_PEERS).flatten().copied().collect();
    put(KNOWS, &keys, out);
}

/// Appends an entry.
pub fn put_entry(entry: &Entry, out: &mut Vec<u8>) {
    put(ENTRY, entry.bytes(), out);
}

fn put(kind: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend((content.len() as u16).to_be_bytes()); // at most MAX_CONTENT_BYTES
    out.extend(content);
}

/// Decoder of the frames on one stream, in pieces of any size. It holds less than one frame.
#[derive(Debug, Default)]
pub struct Decoder(Vec<u8>);

impl Decoder {
    /// Takes the next `bytes`, and gives each frame that is whole now to `take`.
    pub fn decode(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(Frame) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let wanted = self.wanted()?;
            let (some, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.0.extend(some);
            bytes = rest;
            if self.0.len() >= HEADER_BYTES && self.wanted()? == 0 {
                let frame = Frame::read(self.0[0], &self.0[HEADER_BYTES..])?;
                self.0.clear();
                frame.map_or(Ok(()), &mut take)?;
            }
        }
        Ok(())
    }

    /// Number of bytes that are missing from the header, or from the frame once the header is whole.
    fn wanted(&self) -> Result<usize, Malformed> {
        let &[_, high, low, ..] = &self.0[..] else { return Ok(HEADER_BYTES - self.0.len()) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > MAX_CONTENT_BYTES {
            return Err(Malformed::Long(length));
        }
        Ok(HEADER_BYTES + length - self.0.len())
    }
}

impl Frame {
    fn read(kind: u8, content: &[u8]) -> Result<Option<Self>, Malformed> {
        Ok(match kind {
            KNOWS => {
                let (keys, rest) = content.as_chunks::<KEY_BYTES>();
                if !rest.is_empty() {
                    return Err(Malformed::Keys);
                }
                Some(Self::Knows(keys.iter().copied().collect()))
            }
            ENTRY => {
                let key = content.first_chunk().ok_or(Malformed::Short(content.len()))?;
                let invalid = |error| Self::Invalid(*key, content.len(), error);
                Some(Claimed::decode(content).map_or_else(invalid, Self::Entry))
            }
            _ => None,
        })
    }

    /// Length, without keys that a KNOWS repeats.
    pub fn length(&self) -> usize {
        HEADER_BYTES
            + match self {
                Self::Knows(keys) => keys.len() * KEY_BYTES,
                Self::Entry(claimed) => claimed.unproven().bytes().len(),
                Self::Invalid(_, length, _) => *length,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry_of, ground};
    use proptest::prelude::*;

    fn frames(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, Malformed> {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.decode(piece, |frame| {
                frames.push(frame);
                Ok(())
            })?;
            assert!(decoder.0.len() < HEADER_BYTES + MAX_CONTENT_BYTES);
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_the_same_frames(piece in 1usize..300) {
            let keys = [ground(1).1, ground(2).1];
            let mut bytes = Vec::new();
            put_knows(keys.iter(), &mut bytes);
            put(77, b"of a later version", &mut bytes);
            put(78, b"", &mut bytes);
            put_entry(&entry_of(3, 9), &mut bytes);
            let claimed = Claimed::decode(entry_of(3, 9).bytes()).unwrap();
            let expected = [Frame::Knows(keys.into()), Frame::Entry(claimed)];
            prop_assert_eq!(frames(&bytes, piece).unwrap(), expected);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), piece in 1usize..100) {
            let _ = frames(&bytes, piece);
        }
    }

    #[test]
    fn a_frame_beyond_the_bound_is_refused_by_its_header() {
        assert_eq!(frames(&[ENTRY, 0xff, 0xff], 1), Err(Malformed::Long(65_535)));
        assert_eq!(frames(&[KNOWS, 0, 1, 0], 4), Err(Malformed::Keys));
        let long = [&[ENTRY, 0x08, 0x00][..], &[0; 0x800]].concat();
        let invalid = Frame::Invalid([0; 32], 0x800, EntryError("it is too long"));
        assert_eq!(frames(&long, 9), Ok(vec![invalid]));
        assert_eq!(frames(&[ENTRY, 0, 1, 0], 4), Err(Malformed::Short(1)));
    }

    #[test]
    fn a_frame_knows_its_length() {
        let mut bytes = Vec::new();
        put_knows([ground(1).1, ground(2).1].iter(), &mut bytes);
        assert_eq!(frames(&bytes, 9).unwrap()[0].length(), bytes.len());
        bytes.clear();
        put_entry(&entry_of(3, 9), &mut bytes);
        assert_eq!(frames(&bytes, 9).unwrap()[0].length(), bytes.len());
        bytes[2] -= 60; // within the signature
        bytes.truncate(bytes.len() - 60);
        assert_eq!(frames(&bytes, 9).unwrap()[0].length(), bytes.len());
    }
}
