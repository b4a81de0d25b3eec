//! Integers and length-prefixed bytes in network order.

use super::WireError;

/// Reads from the front of a slice. Returns [`Missing`] if the slice is too short. For a stream
/// this means that more must arrive first.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

/// The slice ends too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing;

impl From<Missing> for WireError {
    /// Missing bytes are an error if the input is complete.
    fn from(_: Missing) -> Self {
        Self::Malformed
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, whole: bytes.len() }
    }

    pub(super) fn u8(&mut self) -> Result<u8, Missing> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Missing> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Missing> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Missing> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Missing)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes after a length in two bytes.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], Missing> {
        let length = self.u16()?;
        self.bytes(length.into())
    }

    /// Number of bytes read.
    pub(super) fn taken(&self) -> usize {
        self.whole - self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Missing> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Missing)?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Appends `bytes` after their length in two bytes. Every caller bounds `bytes`.
pub(super) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= usize::from(u16::MAX));
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend(bytes);
}
