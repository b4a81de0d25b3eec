//! The Capsule Protocol (RFC 9297 §3). Only DATAGRAM capsules are used.
//!
//! ```text
//! type (varint), length (varint), value; DATAGRAM is type 0 and its value one HTTP Datagram
//! ```

use bytes::{Bytes, BytesMut};

use crate::wire::{self, HeaderBuf};

/// Largest UDP payload (RFC 9298 §5).
pub(crate) const MAX_PAYLOAD_BYTES: usize = 65_527;

/// Longest context id (RFC 9000 §16).
const MAX_CONTEXT_BYTES: usize = 8;

/// Largest HTTP Datagram that is accepted in a capsule.
pub(crate) const MAX_DATAGRAM_BYTES: usize = MAX_CONTEXT_BYTES + MAX_PAYLOAD_BYTES;

/// Largest HTTP Datagram that is sent in a capsule. Our context ids have one byte.
pub(crate) const MAX_SENT_BYTES: usize = 1 + MAX_PAYLOAD_BYTES;

/// Context id of UDP payloads (RFC 9298 §4).
const UDP_CONTEXT: u64 = 0;

/// A UDP payload larger than any packet. The stream must be aborted (RFC 9298 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oversized;

/// Type of a DATAGRAM capsule (RFC 9297 §3.5).
const DATAGRAM: u64 = 0x00;

/// Parser of a stream of capsules. Buffers at most one datagram of [`MAX_DATAGRAM_BYTES`].
#[derive(Default)]
pub(crate) struct Capsules {
    header: HeaderBuf,
    /// Bytes of the current value that have not arrived.
    missing: u64,
    /// The datagram that they belong to, or `None` if they are skipped.
    datagram: Option<BytesMut>,
    oversized: u64,
}

impl Capsules {
    /// Parses `bytes`, and calls `each` for every datagram that they complete.
    ///
    /// Capsules of other types are skipped (RFC 9297 §3.2). Too large datagrams of other contexts
    /// are skipped and counted.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Bytes)) -> Result<(), Oversized> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.missing > 0 {
                let here =
                    usize::try_from(self.missing).map_or(bytes.len(), |n| n.min(bytes.len()));
                let (value, rest) = bytes.split_at(here);
                self.missing -= here as u64;
                self.take(value)?;
                bytes = rest;
            } else {
                bytes = rest;
                let Some((kind, len)) = self.header.push(*first) else { continue };
                self.header.clear();
                self.missing = len;
                // Grows with the arriving bytes, so a header alone costs nothing.
                self.datagram = (kind == DATAGRAM).then(BytesMut::new);
            }
            if self.missing == 0
                && let Some(datagram) = self.datagram.take()
            {
                each(datagram.freeze());
            }
        }
        Ok(())
    }

    /// Returns `true` after a complete capsule. A stream may end only there (RFC 9297 §3.3).
    pub fn is_whole(&self) -> bool {
        self.header.is_empty() && self.missing == 0
    }

    /// Number of datagrams skipped for their size since the last call.
    pub fn take_oversized(&mut self) -> u64 {
        std::mem::take(&mut self.oversized)
    }

    /// Handles a part of the current value. `missing` bytes follow.
    fn take(&mut self, value: &[u8]) -> Result<(), Oversized> {
        let Some(datagram) = &mut self.datagram else { return Ok(()) };
        // The limit depends on the context id, so nothing more is buffered until that is known.
        let (head, rest) = value.split_at(value.len().min(MAX_CONTEXT_BYTES));
        datagram.extend_from_slice(head);
        let len = (datagram.len() + rest.len()) as u64 + self.missing;
        let payload = wire::read_varint(datagram)
            .map(|(context, held)| (context, (held.len() + rest.len()) as u64 + self.missing));
        match payload {
            Some((UDP_CONTEXT, payload)) if payload > MAX_PAYLOAD_BYTES as u64 => {
                return Err(Oversized);
            }
            Some(_) if len > MAX_DATAGRAM_BYTES as u64 => {
                self.oversized += 1;
                self.datagram = None;
            }
            _ => datagram.extend_from_slice(rest),
        }
        Ok(())
    }
}

/// Encodes a DATAGRAM capsule in a DATA frame of its own.
pub(crate) fn datagram(payload: &[u8]) -> Bytes {
    let mut header = BytesMut::with_capacity(wire::MAX_FRAME_HEADER);
    wire::write_varint(DATAGRAM, &mut header);
    wire::write_varint(payload.len() as u64, &mut header);
    let mut frame = BytesMut::with_capacity(wire::MAX_FRAME_HEADER + header.len() + payload.len());
    wire::data_header(header.len() + payload.len(), &mut frame);
    frame.extend_from_slice(&header);
    frame.extend_from_slice(payload);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        wire::write_varint(kind, &mut bytes);
        wire::write_varint(value.len() as u64, &mut bytes);
        bytes.extend_from_slice(value);
        bytes.to_vec()
    }

    fn fed(parser: &mut Capsules, bytes: &[u8], cut: usize) -> Vec<Bytes> {
        let mut got = Vec::new();
        for piece in bytes.chunks(cut) {
            parser.feed(piece, |datagram| got.push(datagram)).expect("none is oversized");
        }
        got
    }

    #[test]
    fn capsules_follow_rfc_9297() {
        // DATA frame of 6 bytes, DATAGRAM capsule of 4: context 0 and "abc".
        assert_eq!(&datagram(b"\0abc")[..], b"\x00\x06\x00\x04\0abc");
    }

    #[test]
    fn a_datagram_at_the_limit_is_accepted_and_a_larger_one_skipped() {
        let mut parser = Capsules::default();
        let largest = [&b"\xc0\0\0\0\0\0\0\0"[..], &[7; MAX_PAYLOAD_BYTES]].concat();
        for cut in [1, 1000] {
            assert_eq!(fed(&mut parser, &capsule(DATAGRAM, &largest), cut), [&largest[..]]);
        }
        // Context 7 is not UDP.
        let beyond = capsule(DATAGRAM, &vec![7; MAX_DATAGRAM_BYTES + 1]);
        let then = [beyond, capsule(DATAGRAM, b"next")].concat();
        for cut in [1, 1000] {
            assert_eq!(fed(&mut parser, &then, cut), ["next"]);
            assert_eq!((parser.take_oversized(), parser.take_oversized()), (1, 0));
        }
    }

    #[test]
    fn oversized_udp_payloads_are_errors() {
        for context in [&b"\0"[..], b"\x40\0", b"\xc0\0\0\0\0\0\0\0"] {
            let beyond = [context, &[7; MAX_PAYLOAD_BYTES + 1]].concat();
            for cut in [1, 1000] {
                let mut parser = Capsules::default();
                let bytes = capsule(DATAGRAM, &beyond);
                let told = bytes.chunks(cut).any(|piece| parser.feed(piece, |_| ()).is_err());
                assert!(told, "{context:?} in pieces of {cut}");
            }
        }
    }

    /// A length of 2^62 - 1 is only ever a number.
    #[test]
    fn an_endless_capsule_is_not_buffered() {
        for kind in [DATAGRAM, 0x17, u64::MAX >> 2] {
            let mut parser = Capsules::default();
            let mut bytes = BytesMut::new();
            wire::write_varint(kind, &mut bytes);
            wire::write_varint(u64::MAX >> 2, &mut bytes);
            // Context 7.
            bytes.extend_from_slice(&[7; 4096]);
            assert!(fed(&mut parser, &bytes, 4096).is_empty());
            assert!(parser.datagram.is_none() && !parser.is_whole());
        }
    }

    proptest! {
        #[test]
        fn capsules_are_found_however_they_are_cut(
            capsules in prop::collection::vec(
                (prop_oneof![Just(DATAGRAM), 0u64..0x100, 0u64..1 << 62],
                 prop::collection::vec(any::<u8>(), 0..200)),
                0..20),
            cut in 1usize..300,
        ) {
            let bytes: Vec<u8> =
                capsules.iter().flat_map(|(kind, value)| capsule(*kind, value)).collect();
            let wanted: Vec<Bytes> = capsules.into_iter()
                .filter(|(kind, _)| *kind == DATAGRAM)
                .map(|(_, value)| value.into())
                .collect();
            let mut parser = Capsules::default();
            prop_assert_eq!(fed(&mut parser, &bytes, cut), wanted);
            prop_assert!(parser.is_whole());
        }

        #[test]
        fn any_capsules_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..5000), cut in 1usize..99) {
            let mut parser = Capsules::default();
            for piece in bytes.chunks(cut) {
                let taken = parser.feed(piece, |datagram| {
                    assert!(datagram.len() <= MAX_DATAGRAM_BYTES);
                });
                if taken.is_err() {
                    break;
                }
            }
            let held = parser.datagram.as_ref().map_or(0, BytesMut::len);
            prop_assert!(held <= bytes.len());
        }
    }
}
