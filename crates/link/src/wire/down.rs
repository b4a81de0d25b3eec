//! DOWN: paths that the aircraft cannot use.

use super::codec::{Malformed, Reader};

/// Length of a DOWN, its tag included.
pub const DOWN_BYTES: usize = 3;

/// Paths that the aircraft cannot use, because an interface or a modem reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Down {
    /// Number of the news, modulo 256: packets of several paths overtake each other.
    pub number: u8,
    /// A bit for each path.
    pub paths: u8,
}

impl Down {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { number: reader.u8()?, paths: reader.u8()? })
    }
}
