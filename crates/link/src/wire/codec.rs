//! Cursors over bytes: little-endian integers and LEB128 varints.

/// The bytes ended, or a varint ran past 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is cut short or malformed")]
pub struct Malformed;

/// Longest varint: ten groups of seven bits hold a `u64`.
pub const MAX_VARINT_BYTES: usize = 10;

/// Reader of fields from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns `true` if everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    /// Reads the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = tail;
        Ok(*head)
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a LEB128 varint. Only the shortest form is accepted, so that a message has one
    /// encoding.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for group in 0..MAX_VARINT_BYTES {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * group as u32;
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && group > 0 { Err(Malformed) } else { Ok(value) };
            }
        }
        Err(Malformed)
    }
}

/// Appends a LEB128 varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number of bytes that [`put_varint`] appends.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_read_back(value: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), Err(Malformed));
        assert_eq!(Reader::new(&[0xff; 10]).varint(), Err(Malformed));
        assert_eq!(Reader::new(&[0x80]).varint(), Err(Malformed));
    }
}
