//! How a source symbol is coded: its length, then its bytes, then zeros.

use crate::field::multiply;
use crate::kernel::{Kernel, Term};

/// What a source's length takes in front of it.
pub const PREFIX_BYTES: usize = 2;

/// The longest source that can be coded.
pub const MAX_SYMBOL_BYTES: usize = u16::MAX as usize;

/// Adds multiples of sources to a repair: of their lengths to its first two bytes, of their bytes to
/// the rest. No source may be longer than that rest, nor `repair` shorter than the two.
pub(crate) fn add_sources(kernel: Kernel, repair: &mut [u8], terms: &[Term<'_>]) {
    let (prefix, rest) = repair.split_at_mut(PREFIX_BYTES);
    for term in terms {
        let length = (term.source.len() as u16).to_be_bytes();
        for (sum, byte) in prefix.iter_mut().zip(length) {
            *sum ^= multiply(term.factor, byte);
        }
    }
    kernel.add_multiples(rest, terms);
}

/// The source in a repair that combines nothing else, or what is left of one: `None` if its length
/// is more than there is, or if anything but zeros follows it.
pub(crate) fn unpadded(repair: &[u8]) -> Option<&[u8]> {
    let (length, rest) = repair.split_first_chunk::<PREFIX_BYTES>()?;
    let (source, padding) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    padding.iter().all(|byte| *byte == 0).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_padded_is_found_again() {
        assert_eq!(unpadded(&[0, 2, 7, 8, 0, 0]), Some(&[7, 8][..]));
        assert_eq!(unpadded(&[0, 0]), Some(&[][..]));
        assert_eq!(unpadded(&[0, 2, 7]), None);
        assert_eq!(unpadded(&[0, 1, 7, 8]), None);
        assert_eq!(unpadded(&[0]), None);
    }
}
