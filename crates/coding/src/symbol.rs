//! Coded form of a source symbol: its length, its bytes, zero padding.

use crate::field::multiply;
use crate::kernel::{Kernel, Term};

/// Size of the length prefix of a source.
pub const PREFIX_BYTES: usize = 2;

/// Maximum length of a source.
pub const MAX_SYMBOL_BYTES: usize = u16::MAX as usize;

/// Adds multiples of sources to a repair symbol: of their lengths to its first two bytes, of their
/// bytes to the rest. `repair` must have at least two bytes, and no source may be longer than the
/// rest.
pub(crate) fn add_sources(kernel: Kernel, repair: &mut [u8], terms: &[Term<'_>]) {
    let (prefix, rest) = repair.split_at_mut(PREFIX_BYTES);
    for (sum, byte) in prefix.iter_mut().zip(lengths(terms).to_be_bytes()) {
        *sum ^= byte;
    }
    kernel.add_multiples(rest, terms);
}

/// Sum of the multiples of the sources' lengths.
///
/// A vector kernel gains nothing here, because each source contributes only two bytes. As in the
/// portable kernel, lengths are summed per bit of the factors and multiplied at the end.
fn lengths(terms: &[Term<'_>]) -> u16 {
    let mut sums = [0u16; 8];
    for term in terms {
        let length = term.source.len() as u16;
        for (bit, sum) in sums.iter_mut().enumerate() {
            let mask = u16::from(term.factor >> bit & 1).wrapping_neg();
            *sum ^= length & mask;
        }
    }
    let product = |bit: usize, byte: u8| multiply(1 << bit, byte);
    let products = (0..8).map(|bit| sums[bit].to_be_bytes().map(|byte| product(bit, byte)));
    products.fold(0, |total, product| total ^ u16::from_be_bytes(product))
}

/// Source in a coded symbol without other sources. Returns `None` if its length exceeds the
/// available bytes, or if anything but zeros follows it.
pub(crate) fn unpadded(repair: &[u8]) -> Option<&[u8]> {
    let (length, rest) = repair.split_first_chunk::<PREFIX_BYTES>()?;
    let (source, padding) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    padding.iter().all(|byte| *byte == 0).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_removed_and_checked() {
        assert_eq!(unpadded(&[0, 2, 7, 8, 0, 0]), Some(&[7, 8][..]));
        assert_eq!(unpadded(&[0, 0]), Some(&[][..]));
        assert_eq!(unpadded(&[0, 2, 7]), None);
        assert_eq!(unpadded(&[0, 1, 7, 8]), None);
        assert_eq!(unpadded(&[0]), None);
    }
}
